"""Progress bars for work that takes long enough to be noticed; only where a person looks on."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

#: Nothing is shown before; so a quick submit neither flickers nor pays for importing Rich.
PATIENCE_SECONDS = 0.4


class Bar:
    """Called with (what, done, total) as often as one likes; draws on stderr, and only on a terminal.

    with Bar() as bar:
        run.download("out", progress=bar)
    """

    def __init__(self) -> None:
        self._enabled = sys.stderr.isatty() and sys.stdout.isatty()
        self._begun = time.monotonic()
        self._drawn: Any = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        if not self._enabled or (self._drawn is None and time.monotonic() - self._begun < PATIENCE_SECONDS):
            return
        if self._drawn is None:
            self._drawn = _start()
        if what not in self._tasks:
            self._tasks[what] = self._drawn.add_task(what, total=total)
        self._drawn.update(self._tasks[what], completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away; the next call draws a new one if it has to."""
        if self._drawn is not None:
            self._drawn.stop()
            self._drawn = None
            self._tasks = {}


def _start() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=None), DownloadColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    progress.start()
    return progress
