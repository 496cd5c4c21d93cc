"""Keeps the server up to date while a script runs."""

from __future__ import annotations

import os
import time

from shunter.node.home import Refused
from shunter.node.spool import Spool, Unwanted

BEAT_SECONDS = 10.0


class Pusher:
    """A thread that keeps the server up to date while the script runs: quickly at first, then a few times a second."""

    def __init__(self, spool):
        # type: (Spool) -> None
        import threading

        self.spool = spool
        self._stop = threading.Event()
        self._wake = threading.Event()
        spool.interrupted = self._stop.is_set
        self._thread = threading.Thread(target=self._push, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self.spool.interrupted = bool

    def hurry(self) -> None:
        """Somebody waits for what was said to be home."""
        self._wake.set()

    def _push(self) -> None:
        pause, tries, beat = 0.02, 0, time.monotonic()
        try:
            os.nice(5)  # the script comes first
        except OSError:
            pass
        while not self._stop.is_set():
            try:
                due = time.monotonic() - beat >= BEAT_SECONDS
                if due or self.spool.behind():
                    whole = self.spool.push(beat=due)
                    beat = time.monotonic()
                    tries = 0
                    if not whole:
                        continue
                self.spool.send_uploads()
                if self.spool.wanted:
                    for top in list(self.spool.wanted):
                        self._copy(top)
            except Unwanted:
                return
            except (OSError, Refused):
                tries += 1
            pause = patience(tries) if tries else min(pause * 1.3, 0.25)
            self._wake.wait(pause)
            self._wake.clear()

    def _copy(self, top):
        # type: (str) -> None
        """Somebody asked for the outputs so far: they are pushed, not moved, as the script is still using them."""
        collect, self.spool.collect = self.spool.collect, "push"
        try:
            self.spool.wanted = []
            self.spool.send_files(top, self._patience)
            self.spool.post_pieces([({"copied": top}, b"")])
        finally:
            self.spool.collect = collect

    def _patience(self, tries):
        # type: (int) -> float
        if self._stop.is_set():
            raise InterruptedError("the script has ended: its outcome comes first")
        return min(patience(tries), 1.0)


def patience(tries):
    # type: (int) -> float
    """How long to wait before the next try: short at first, at most half a minute."""
    return float(min(0.05 * 1.7 ** min(tries, 20), 30.0))
