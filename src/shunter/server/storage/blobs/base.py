"""What a blob store owes us, and what it keeps its books in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class Location(NamedTuple):
    """Where a blob's bytes lie, as they are: `size` bytes of the file `path` from `offset`."""

    path: Path
    offset: int
    size: int


class Received(NamedTuple):
    """What a pack brought that was not held before."""

    blobs: int
    bytes: int


class Compacted(NamedTuple):
    """What a clean-up did."""

    packs_rewritten: int
    files_deleted: int
    bytes_freed: int


class Row(NamedTuple):
    """One line of the index: which pack holds the blob, and where."""

    digest: str
    pack: str
    offset: int
    size: int


class BlobStore(Protocol):
    """Contents by their BLAKE3 digest. Safe to call from several threads; what was acknowledged outlives a crash."""

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Those that are not held, in the order given, each once."""

    def receive(self, chunks: Iterable[bytes]) -> Received:
        """Take in a pack (`shunter.packs`), verified and with flat memory. All of it is held afterwards, or none:
        BlobCorrupt for a pack that is damaged or cut off, StorageFull when there is no room, and whatever `chunks`
        raises; none of them leaves anything behind. Sending the same again is safe."""

    def locate(self, digests: Iterable[str]) -> dict[str, Location]:
        """Where these lie; what is not held is not in the answer. Good for as long as the grace of `compact`."""

    def stream(self, digest: str) -> Iterator[bytes]:
        """The bytes of one blob, verified when the last has been given. NotFound, BlobCorrupt."""

    def read(self, digest: str) -> bytes:
        """The same in one piece, verified before it is given."""

    def pack(self, digests: Iterable[str], *, compress: bool = True) -> Iterator[bytes]:
        """A pack of these blobs, each once, to be sent on. NotFound before the first chunk."""

    def delete(self, digests: Iterable[str]) -> None:
        """Hold these no longer; unknown ones do not matter. Their space is freed by `compact`."""

    def compact(self, *, grace_seconds: float = 3600.0) -> Compacted:
        """Free what is dead. A crash at any moment loses nothing. Files that a reader may still have been told of
        stay for `grace_seconds`."""


class BlobIndex(Protocol):
    """The books of a blob store: which digest lies where. Each call is one transaction."""

    def add(self, rows: Iterable[Row]) -> None:
        """Add these; a digest that is there already keeps its row."""

    def find(self, digests: Iterable[str]) -> dict[str, Row]:
        """The rows of these digests; unknown ones are not in the answer."""

    def remove(self, digests: Iterable[str]) -> None:
        """Remove these; unknown ones do not matter."""

    def packs(self) -> Mapping[str, int]:
        """Pack → bytes of the blobs that the index has in it."""

    def rows_of(self, pack: str) -> list[Row]:
        """All rows of a pack, by offset."""

    def move(self, rows: Iterable[Row], *, source: str) -> None:
        """Give these digests their new place, where they still lie in `source`."""
