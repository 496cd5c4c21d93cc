"""Files that a script hands over while it runs: copied into the spool whole, brought home by the launcher."""

from __future__ import annotations

import itertools
import os

from ._errors import RunUsageError
from ._lines import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, Tuple

TRIES = 3
_numbers = itertools.count()
_BLOCK = 8 << 20


def keep(folder, name, source):
    # type: (str, str, Any) -> int
    """Put a copy of `source` (a path or a binary stream) at `folder/name`, all of it or nothing. Returns its size."""
    target = os.path.join(folder, clean_path(name))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # Beside the folder: what is in it is whole.
    os.makedirs(folder + ".part", exist_ok=True)
    temporary = os.path.join(folder + ".part", "%d.%d" % (os.getpid(), next(_numbers)))
    try:
        if hasattr(source, "read"):
            size = _copy_stream(source, temporary)
        else:
            size = _copy_file(os.fspath(source), temporary)
        os.rename(temporary, target)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass
        raise
    return size


def files_below(path):
    # type: (str) -> Iterator[Tuple[str, str]]
    """All regular files below `path` as (path relative to it, full path)."""
    for here, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            full = os.path.join(here, name)
            if os.path.isfile(full) and not os.path.islink(full):
                yield os.path.relpath(full, path).replace(os.sep, "/"), full


def clean_path(name):
    # type: (str) -> str
    """`name` as a plain relative path; `./outputs/x` is `outputs/x`. What leads out is refused."""
    parts = [p for p in str(name).replace("\\", "/").split("/") if p not in ("", ".")]
    if not parts or ".." in parts or "\0" in name:
        raise RunUsageError("%r cannot be the name of an uploaded file: give a relative path without '..'." % name)
    return "/".join(parts)


def _copy_file(source, target):
    # type: (str, str) -> int
    """Copy a file that may be changing: again, until it stood still meanwhile."""
    for _ in range(TRIES):
        with open(source, "rb") as file:
            before = os.fstat(file.fileno())
            out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                size = _copy_bytes(file.fileno(), out, before.st_size)
            finally:
                os.close(out)
            after = os.stat(source)
        if size == before.st_size and _same(before, after):
            return size
    warn("%s kept changing while it was copied; the copy is of one moment or another" % source)
    return size


def _same(before, after):
    # type: (os.stat_result, os.stat_result) -> bool
    return (before.st_size, before.st_mtime_ns, before.st_ino) == (after.st_size, after.st_mtime_ns, after.st_ino)


def _copy_bytes(source, target, size):
    # type: (int, int, int) -> int
    done = 0
    by_range = getattr(os, "copy_file_range", None)
    while done < size:
        try:
            if by_range is not None:  # shares the blocks where the file system can
                moved = by_range(source, target, min(size - done, 1 << 30))
            else:
                moved = os.sendfile(target, source, done, min(size - done, 1 << 30))
        except OSError as error:
            if by_range is None or error.errno not in (18, 22, 38, 95):  # other device, unsupported
                raise
            by_range = None
            os.lseek(target, done, os.SEEK_SET)
            continue
        if not moved:
            break
        done += moved
    return done


def _copy_stream(stream, target):
    # type: (Any, str) -> int
    done = 0
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        while True:
            block = stream.read(_BLOCK)
            if not block:
                return done
            view = memoryview(block.encode() if isinstance(block, str) else block)
            while view:
                written = os.write(out, view)
                view = view[written:]
                done += written
    finally:
        os.close(out)
