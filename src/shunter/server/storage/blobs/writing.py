"""One pack file on its way into the store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from shunter.packs import Blob
from shunter.server.storage.blobs.base import BlobIndex, Row


class NewPack:
    """Takes contents one after the other, and becomes part of the store with `publish`, or not at all."""

    def __init__(self, name: str, file: BinaryIO, part: Path, final: Path) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.size = 0
        self._file = file
        self._part = part
        self._final = final
        self._begun = 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self.size += len(data)

    def end_blob(self, blob: Blob) -> None:
        self.rows.append(Row(blob.digest, self.name, self._begun, blob.size))
        self._begun = self.size

    def publish(self, index: BlobIndex, record: Callable[[Sequence[Row]], None]) -> None:
        """Sync, name, then `record` the rows: in this order, so that a row never points at nothing."""
        if not self.rows:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        _make_folder(self._final.parent)
        os.replace(self._part, self._final)
        _sync_folder(self._final.parent)
        try:
            record(self.rows)
        except BaseException:
            # A failed commit may have come through all the same; only when it surely has not the file may go.
            with contextlib.suppress(Exception):
                if not any(row.pack == self.name for row in index.find(row.digest for row in self.rows).values()):
                    self._final.unlink(missing_ok=True)
            raise


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(exist_ok=True, mode=0o700)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return  # a folder cannot be synced there
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
