"""Watching an environment being built: what is being done, as a bar, below what the installer says."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from shunter.cli.spinner import moving_bar
from shunter.cli.streaming import EXIT_STATUS, outcome_line

if TYPE_CHECKING:
    from shunter.sdk.run import Run

LOOK_SECONDS = 0.25
#: How far a build has come, by words of its state and reason; the last that fits counts.
STEPS = (
    ("queued", 0), ("solving", 1), ("preparing", 2), ("creating", 2), ("waiting", 2), ("building", 2), ("getting", 2),
    ("installing", 3), ("compiling", 4), ("running", 5), ("finalizing", 5), ("completed", 6),
)  # fmt: skip


def how_far(status: str, reason: str) -> int:
    """The steps of a build that are behind it.

    >>> how_far("Preparing", "Installing 12 packages.")
    3
    """
    words = f"{status} {reason}".lower()
    return max([number for word, number in STEPS if word in words] or [0])


def watch_build(run: Run) -> int:
    """Stream a build on a terminal, under a bar. The exit status is the run's."""
    with moving_bar("Queued") as change:
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_SECONDS):
                try:
                    why = run.why()
                except Exception:  # the server is away: the stream says so
                    continue
                reason = str((why["reasons"] or [""])[0])
                change(reason or str(why["status"]), how_far(str(why["status"]), reason), STEPS[-1][1])

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            for chunk in run.follow():
                # The bar is one line at the bottom: whole lines are written over it, and it is drawn again below.
                sys.stderr.write("\r\x1b[2K")
                sys.stderr.flush()
                sys.stdout.buffer.write(chunk)
                sys.stdout.flush()
            run.wait()
        finally:
            over.set()
            looker.join()
    print(outcome_line(run))
    return EXIT_STATUS.get(run.data["status"], 1)
