"""Digests of many files, on all cores.

Workers take batches of files: one task per file costs more in hand-overs than two cores gain. Files are read, never
mapped: a mapped file that is cut short while it is hashed would end this process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from blake3 import blake3

from shunter.sdk.snapshots.cache import Found

READ_BYTES = 1 << 20
_BATCH_BYTES = 8 << 20
_BATCH_FILES = 256
_MANY_THREADS_BYTES = 16 << 20
_ATTEMPTS = 3
OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe put in the file's place must not make us wait
)


class Hashed(NamedTuple):
    """What became of one file: a digest with the stat that it belongs to, or a problem. Neither: the file is gone."""

    path: str
    stat: os.stat_result
    digest: str = ""
    problem: str = ""


def hash_files(
    root: str, files: Sequence[Found], done: Callable[[int, int], None], *, threads: int | None = None
) -> list[Hashed]:
    """Hash these files below `root`, in any order. `done(files, bytes)` hears of each batch, one call at a time."""
    batches = iter(list(_batches(files)))
    results: list[Hashed] = []
    failures: list[BaseException] = []
    lock = threading.Lock()

    def work() -> None:
        try:
            while not failures:
                with lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                hashed = [hash_file(root, path, seen) for path, seen in batch]
                with lock:
                    results.extend(hashed)
                    done(len(batch), sum(seen.st_size for _, seen in batch))
        except BaseException as error:
            failures.append(error)

    if threads is None:
        threads = min(4, os.cpu_count() or 1)
    helpers = [threading.Thread(target=work, name="hash", daemon=True) for _ in range(threads - 1)]
    if len(files) > 1 and sum(seen.st_size for _, seen in files) > _BATCH_BYTES:
        for helper in helpers:
            helper.start()
    else:
        helpers = []
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
    return results


def hash_file(root: str, path: str, seen: os.stat_result) -> Hashed:
    """The digest of one file, of a moment in which it did not change: read again if its stat moved meanwhile."""
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(f"{root}/{path}", OPEN_FLAGS)
        except FileNotFoundError:
            return Hashed(path, seen)
        except OSError as error:
            return Hashed(path, seen, problem=f"cannot be read: {error.strerror}")
        try:
            size = seen.st_size
            if size < READ_BYTES:
                # One byte more than expected, to see that the end is where it should be.
                data = os.read(handle, size + 1)
                while len(data) <= size and (more := os.read(handle, READ_BYTES)):
                    data += more
                hasher = blake3(data)
            else:
                hasher = blake3(max_threads=blake3.AUTO if size >= _MANY_THREADS_BYTES else 1)
                large = READ_BYTES * 8 if size >= _MANY_THREADS_BYTES else READ_BYTES
                while data := os.read(handle, large):
                    hasher.update(data)
            after = os.fstat(handle)
        except OSError as error:
            return Hashed(path, seen, problem=f"cannot be read: {error.strerror}")
        finally:
            os.close(handle)
        if is_same(seen, after):
            return Hashed(path, seen, hasher.hexdigest())
        seen = after
    return Hashed(path, seen, problem="changes all the time")


def is_same(before: os.stat_result, after: os.stat_result) -> bool:
    """Do these two stats say that the file was not written to in between?"""
    if before.st_size != after.st_size or before.st_mtime_ns != after.st_mtime_ns:
        return False
    # On Windows a listing gives no inode, and its ctime is another thing than fstat's.
    return not before.st_ino or (before.st_ino == after.st_ino and before.st_ctime_ns == after.st_ctime_ns)


def _batches(files: Sequence[Found]) -> Iterator[list[Found]]:
    batch: list[Found] = []
    held = 0
    for found in files:
        batch.append(found)
        held += found[1].st_size
        if held >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
