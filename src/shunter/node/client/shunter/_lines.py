"""The stream of what a script says: one JSON line, one write, appended on the node. The launcher brings it home.

Several processes append at once: the kernel keeps appended writes apart. Nothing is buffered, so nothing is lost when
the script ends by `os._exit` or is killed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

#: So many lines wait in memory while the disk is full; then the oldest are dropped, and that is said.
MAX_WAITING = 100000


def warn(words):
    # type: (str) -> None
    """Tell the log, if it can be told: it may lie on the same full disk."""
    try:
        sys.stderr.write("shunter: " + words + "\n")
    except (OSError, ValueError, AttributeError):
        pass


class Lines:
    """Appends to one file. `write` never raises: a full disk keeps lines in memory until there is room."""

    def __init__(self, path):
        # type: (str) -> None
        self._path = path
        self._fd = -1
        self._waiting = []  # type: List[bytes]
        self._torn = False
        self._dropped = 0

    def write(self, line):
        # type: (bytes) -> None
        """Append a line (its newline included)."""
        try:
            if self._waiting or self._torn:
                self._catch_up()
            if os.write(self._fd, line) == len(line):
                return
            self._torn = True
        except OSError as error:
            if self._fd < 0 or error.errno == 9:  # not opened yet, or closed behind our back
                self._fd = -1
                if self._open():
                    self.write(line)
                    return
        self._keep(line)

    def _open(self):
        # type: () -> bool
        try:
            import fcntl

            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                # A high number: scripts that close and open low ones by hand must not hit ours.
                self._fd = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
                os.close(fd)
            except OSError:
                self._fd = fd
        except (ImportError, OSError):
            return False
        return True

    def _catch_up(self) -> None:
        """Write what waited. A line that was cut short by the full disk is ended first: readers skip it."""
        if self._torn:
            os.write(self._fd, b"\n")
            self._torn = False
        while self._waiting:
            line = self._waiting[0]
            done = os.write(self._fd, line)
            if done != len(line):
                self._torn = True
                raise OSError(28, "short write")
            del self._waiting[0]

    def _keep(self, line):
        # type: (bytes) -> None
        if not self._waiting and not self._dropped:
            warn("metrics cannot be written now (is the disk full?); they wait in memory")
        self._waiting.append(line)
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[0]
            self._dropped += 1
