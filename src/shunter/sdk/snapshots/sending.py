"""The contents of a frozen file on their way out, if they still are what was frozen."""

from __future__ import annotations

import os
from collections.abc import Iterator

from blake3 import blake3

from shunter.errors import SnapshotChanged
from shunter.packs import BLOCK_BYTES, Blob
from shunter.sdk.snapshots.cache import is_settled
from shunter.sdk.snapshots.hashing import OPEN_FLAGS, is_same


def contents(root: str, path: str, blob: Blob, seen: os.stat_result, *, frozen_ns: int) -> Iterator[bytes]:
    """The bytes of this file in pieces; SnapshotChanged if it is no longer what was hashed when its stat was `seen`.

    A file whose stat is still the same was not written to since, unless it was touched in the very moment of the
    freeze; all others are hashed again on the way. (The receiver hashes everything, so nothing wrong is ever kept:
    this is here to name the file, and to name it early.)
    """
    try:
        handle = os.open(f"{root}/{path}", OPEN_FLAGS)
    except OSError as error:
        raise _changed(path, f"can no longer be read: {error.strerror}") from error
    try:
        before = os.fstat(handle)
        hasher = None if is_same(seen, before) and is_settled(seen, frozen_ns) else blake3()
        left = blob.size
        held = b""  # the last piece goes out only when the whole is known to be right
        # A read asks for what should be there: a buffer of a megabyte for each small file would cost more than it.
        while data := os.read(handle, min(left + 1, BLOCK_BYTES)):
            left -= len(data)
            if left < 0:
                break
            if hasher is not None:
                hasher.update(data)
            if held:
                yield held
            held = data
        after = os.fstat(handle)
    except OSError as error:
        raise _changed(path, f"can no longer be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if left or (hasher.hexdigest() != blob.digest if hasher is not None else not is_same(before, after)):
        raise _changed(path, "changed while it was being sent")
    if held:
        yield held


def _changed(path: str, what: str) -> SnapshotChanged:
    return SnapshotChanged(
        f"{path!r} {what}",
        hint="Submit again. If something writes this file all the time, leave it out with .amlignore.",
    )
