"""Blobs in a folder: pack files of concatenated contents, and an index that says what lies where.

    packs/ab/ab12….pack    whole, synced, never changed again
    incoming/….part        being written

A pack file gets its name only when all of it is on the disk, and rows only when it has its name. So a crash leaves at
worst a file that nobody knows of, and `compact` removes those.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from blake3 import blake3

from shunter.errors import BlobCorrupt, NotFound, StorageFull
from shunter.packs import BLOCK_BYTES, Blob, Table, read_pack, write_pack
from shunter.server.storage.blobs.base import BlobIndex, Compacted, Location, Received
from shunter.server.storage.blobs.writing import NewPack

log = logging.getLogger(__name__)


class FileBlobs:
    """A BlobStore in a folder of its own."""

    def __init__(self, folder: Path, index: BlobIndex, *, clock: Callable[[], float] = time.time) -> None:
        self._packs = folder / "packs"
        self._incoming = folder / "incoming"
        self._index = index
        self._clock = clock
        for path in (self._packs, self._incoming):
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def missing(self, digests: Iterable[str]) -> list[str]:
        wanted = dict.fromkeys(digests)
        held = self._index.find(wanted)
        return [digest for digest in wanted if digest not in held]

    def receive(self, chunks: Iterable[bytes]) -> Received:
        seen: set[str] = set()
        with self._new_pack() as pack:
            for part in read_pack(chunks):
                if isinstance(part, Table):
                    seen.update(self._index.find(blob.digest for blob in part.blobs))
                    self._check_room(sum(blob.size for blob in part.blobs if blob.digest not in seen))
                elif part.blob.digest not in seen:
                    pack.write(part.data)
                    if part.last:
                        pack.end_blob(part.blob)
                        seen.add(part.blob.digest)
            pack.publish(self._index, self._index.add)
        return Received(len(pack.rows), pack.size)

    def locate(self, digests: Iterable[str]) -> dict[str, Location]:
        found = self._index.find(dict.fromkeys(digests))
        return {row.digest: Location(self._path(row.pack), row.offset, row.size) for row in found.values()}

    def stream(self, digest: str) -> Iterator[bytes]:
        hasher = blake3()
        with self._open(digest) as (file, size):
            for data in _read(file, size):
                hasher.update(data)
                yield data
            if hasher.hexdigest() != digest:
                raise BlobCorrupt(f"blob {digest[:12]} in {file.name} is damaged", hint=_SUBMIT_AGAIN)

    def read(self, digest: str) -> bytes:
        return b"".join(self.stream(digest))

    def pack(self, digests: Iterable[str], *, compress: bool = True) -> Iterator[bytes]:
        wanted = dict.fromkeys(digests)
        found = self._index.find(wanted)
        for digest in wanted:
            if digest not in found:
                raise _unknown(digest)
        blobs = [Blob(digest, found[digest].size) for digest in wanted]
        return write_pack(blobs, lambda blob: self.stream(blob.digest), compress=compress)

    def delete(self, digests: Iterable[str]) -> None:
        found = self._index.find(dict.fromkeys(digests))
        self._index.remove(found)
        for pack in {row.pack for row in found.values()}:
            self._retire(pack)

    def compact(self, *, grace_seconds: float = 3600.0) -> Compacted:
        rewritten = sum(self._rewrite(pack) for pack, held in self._index.packs().items() if self._is_thin(pack, held))
        deleted = freed = 0
        live = self._index.packs()
        still_young = self._clock() - grace_seconds
        for path in [*self._packs.glob("??/*.pack"), *self._incoming.glob("*.part")]:
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                if found.st_mtime <= still_young and not (path.suffix == ".pack" and path.stem in live):
                    path.unlink()
                    deleted += 1
                    freed += found.st_size
        return Compacted(rewritten, deleted, freed)

    def _is_thin(self, pack: str, held: int) -> bool:
        """Is less than half of this pack alive?"""
        try:
            return held * 2 < self._path(pack).stat().st_size
        except FileNotFoundError:
            return False

    def _rewrite(self, pack: str) -> bool:
        """Copy what lives of a pack into a new one; the old one is then dead, and deleted when its grace is over."""
        try:
            with self._path(pack).open("rb") as file, self._new_pack() as new:
                for row in self._index.rows_of(pack):
                    file.seek(row.offset)
                    for data in _read(file, row.size):
                        new.write(data)
                    new.end_blob(Blob(row.digest, row.size))
                new.publish(self._index, lambda rows: self._index.move(rows, source=pack))
        except (FileNotFoundError, BlobCorrupt):
            log.warning("the pack %s in %s is damaged and stays as it is", pack, self._packs)
            return False
        self._retire(pack)
        return True

    def _retire(self, pack: str) -> None:
        """Start the grace of a pack that may be dead now: its age counts from here."""
        with contextlib.suppress(FileNotFoundError):
            now = self._clock()
            os.utime(self._path(pack), (now, now))

    @contextlib.contextmanager
    def _open(self, digest: str) -> Iterator[tuple[BinaryIO, int]]:
        """The pack of this blob, at its first byte, and its size. What turns out to be damaged is held no longer, so
        that the next submit sends it anew."""
        lost = ""
        while True:
            row = self._index.find([digest]).get(digest)
            if row is None:
                raise _unknown(digest)
            try:
                file = self._path(row.pack).open("rb")
                break
            except FileNotFoundError as error:
                if row.pack == lost:
                    if self._path(row.pack).parent.is_dir():  # else the whole disk may be away, and come back
                        self._index.remove([digest])
                    raise BlobCorrupt(
                        f"blob {digest[:12]}: its pack {row.pack} is gone from {self._packs}", hint=_SUBMIT_AGAIN
                    ) from error
                lost = row.pack  # a clean-up may have moved it between the two lines above: look again
        with file:
            file.seek(row.offset)
            try:
                yield file, row.size
            except BlobCorrupt:
                self._index.remove([digest])
                raise

    @contextlib.contextmanager
    def _new_pack(self) -> Iterator[NewPack]:
        name = uuid.uuid4().hex
        part = self._incoming / f"{name}.part"
        try:
            with part.open("xb", buffering=BLOCK_BYTES) as file:
                yield NewPack(name, file, part, self._path(name))
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise StorageFull(f"{self._packs} has no room left: {error.strerror}", hint=_MAKE_ROOM) from error
            raise
        finally:
            part.unlink(missing_ok=True)

    def _check_room(self, size: int) -> None:
        """Refuse early what cannot fit, rather than fill the disk first and fail everybody else meanwhile."""
        if not hasattr(os, "statvfs"):
            return
        disk = os.statvfs(self._incoming)
        free = disk.f_bavail * disk.f_frsize
        if size > free:
            raise StorageFull(f"{self._packs} has room for {free:,} bytes, {size:,} are to come", hint=_MAKE_ROOM)

    def _path(self, pack: str) -> Path:
        return self._packs / pack[:2] / f"{pack}.pack"


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_MAKE_ROOM = "Free some space on the server's disk, or delete old runs; then try again."
_SUBMIT_AGAIN = "Submit from the source folder again: what is missing is then sent anew."


def _read(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        data = file.read(min(size, BLOCK_BYTES))
        if not data:
            raise BlobCorrupt(f"{file.name} is shorter than its index says", hint=_SUBMIT_AGAIN)
        size -= len(data)
        yield data


def _unknown(digest: str) -> NotFound:
    return NotFound(f"the server does not hold the blob {digest[:12]}", hint=_SUBMIT_AGAIN)
