"""An index of blobs that lives in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from shunter.server.storage.blobs.base import Row


class MemoryBlobIndex:
    """A BlobIndex with the behaviour of the real one and no database."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._lock = threading.Lock()

    def add(self, rows: Iterable[Row]) -> None:
        with self._lock:
            for row in rows:
                self._rows.setdefault(row.digest, row)

    def find(self, digests: Iterable[str]) -> dict[str, Row]:
        with self._lock:
            return {digest: self._rows[digest] for digest in digests if digest in self._rows}

    def remove(self, digests: Iterable[str]) -> None:
        with self._lock:
            for digest in list(digests):
                self._rows.pop(digest, None)

    def packs(self) -> Mapping[str, int]:
        live: dict[str, int] = {}
        with self._lock:
            for row in self._rows.values():
                live[row.pack] = live.get(row.pack, 0) + row.size
        return live

    def rows_of(self, pack: str) -> list[Row]:
        with self._lock:
            return sorted((row for row in self._rows.values() if row.pack == pack), key=lambda row: row.offset)

    def move(self, rows: Iterable[Row], *, source: str) -> None:
        with self._lock:
            for row in rows:
                held = self._rows.get(row.digest)
                if held is not None and held.pack == source:
                    self._rows[row.digest] = row
