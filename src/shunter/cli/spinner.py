"""A sign that something is under way whose length nobody knows; only where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def waiting(what: str, enabled: bool = True) -> Iterator[None]:
    """Show `what` with a moving bar and the time it has taken, on stderr, until the block ends."""
    with moving_bar(what, enabled):
        yield


@contextmanager
def moving_bar(what: str, enabled: bool = True) -> Iterator[Callable[..., None]]:
    """The same; yields a function that changes the words, and the (done, total) of a bar whose length is known."""
    if not enabled or not sys.stderr.isatty():
        yield lambda *_, **__: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    task = bar.add_task(what + " …", total=None)

    def change(words: str, done: int | None = None, total: int | None = None) -> None:
        about: dict[str, Any] = {"description": words[:60] + " …"}
        if total is not None:
            about |= {"completed": done or 0, "total": total}
        bar.update(task, **about)

    with bar:
        yield change
