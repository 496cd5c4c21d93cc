"""A sign that something is under way whose length nobody knows; only where a person looks on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(what: str, enabled: bool = True) -> Iterator[None]:
    """Show `what` with a spinner on stderr until the block ends."""
    if not enabled or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what + " …"):
        yield
