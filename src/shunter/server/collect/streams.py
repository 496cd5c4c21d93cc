"""Who wants to know when more of a stream has come home. A family of its own: a new stream is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shunter.model.run import Run

#: Called after bytes of the stream are stored: (run, launch id, file that holds the stream). In a thread; may raise.
Handler = Callable[[Run, str, Path], None]


class Handlers:
    """The handlers of one server, by the name of the stream."""

    def __init__(self) -> None:
        self._by_stream: dict[str, list[Handler]] = {}

    def add(self, stream: str, handler: Handler) -> None:
        self._by_stream.setdefault(stream, []).append(handler)

    def stored(self, stream: str, run: Run, launch_id: str, path: Path) -> None:
        for handler in self._by_stream.get(stream, ()):
            handler(run, launch_id, path)
