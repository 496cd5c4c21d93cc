"""Whole files on their way home: in pieces, resumed after a cut, and shown there only when all of one version is.

A version is size and time of change. A file that changes on the way is begun again; its torn copy is never seen.
"""

from __future__ import annotations

import os

from shunter.node.home import CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Tuple

    from shunter.node.home import Frame

    #: Sends frames and returns what the server holds of each name in them.
    Post = Callable[[List[Frame]], Dict[str, int]]

PIECE_BYTES = 4 * CHUNK_BYTES
TRIES = 5


class Changing(Exception):
    """The file did not stand still long enough."""


def send_file(post, source, name, extra=None):
    # type: (Post, str, str, Dict[str, Any] | None) -> bool
    """Send the file at `source` as `name`. False when it is not there any more. Raises OSError, Refused, Changing."""
    for _ in range(TRIES):
        try:
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            if _send_version(post, fd, source, dict(extra or {}, file=name)):
                return True
        finally:
            os.close(fd)
    raise Changing(name)


def _send_version(post, fd, source, header):
    # type: (Post, int, str, Dict[str, Any]) -> bool
    """Send what the open file holds now; False when it changed meanwhile."""
    before = os.fstat(fd)
    header = dict(header, total=before.st_size, mtime_ns=before.st_mtime_ns)
    name = "file/" + str(header["file"])
    # Ask first: after a cut the server may have most of it, or all.
    held = post([(dict(header, offset=0, size=0), b"")]).get(name, 0)
    while True:
        if held == before.st_size + 1:  # one more than there is: this version is there and whole
            return True
        data = os.pread(fd, min(PIECE_BYTES, before.st_size - held), held)
        now = os.fstat(fd)
        if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns) or not _is_there(source, now):
            post([(dict(header, offset=0, size=0, drop=True), b"")])
            return False
        last = held + len(data) == before.st_size
        held = post([(dict(header, offset=held, size=len(data), last=last), data)]).get(name, 0)


def _is_there(source, now):
    # type: (str, os.stat_result) -> bool
    """Still the file of that name: one that was replaced by another is sent as the new one."""
    try:
        return os.stat(source).st_ino == now.st_ino
    except OSError:
        return False
