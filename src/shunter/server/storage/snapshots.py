"""Snapshots: manifests by their id. Their contents are blobs."""

from __future__ import annotations

import zlib
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from shunter.errors import NotFound, SnapshotUnknown
from shunter.model.snapshot import Manifest
from shunter.server.storage.database import Database
from shunter.server.storage.schema import snapshots


class Snapshots:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._manifest = lru_cache(maxsize=64)(self._read)
        self._doubtful: set[str] = set()

    def add(self, manifest: Manifest, now: float) -> None:
        """Keep a manifest whose blobs are all held. Doing it again is fine."""
        row = {
            "id": manifest.snapshot_id,
            "manifest": zlib.compress(manifest.to_bytes(), 1),
            "files": len(manifest.entries),
            "bytes": manifest.total_bytes,
            "created_at": now,
        }
        try:
            with self.database.begin() as connection:
                connection.execute(sa.insert(snapshots), row)
        except IntegrityError:
            pass
        self._doubtful.discard(manifest.snapshot_id)

    def get(self, snapshot_id: str) -> Manifest:
        return self._manifest(snapshot_id)

    def require(self, snapshot_id: str) -> Manifest:
        """The manifest, or SnapshotUnknown: the client then sends it."""
        try:
            if snapshot_id in self._doubtful:
                raise NotFound("Some of its contents are lost.")
            return self.get(snapshot_id)
        except NotFound as error:
            raise SnapshotUnknown(f"The snapshot {snapshot_id[:12]} has not been sent yet.") from error

    def doubt(self, snapshot_id: str) -> None:
        """Some of its contents were lost: whoever submits it again is asked for them."""
        self._doubtful.add(snapshot_id)

    def delete(self, snapshot_id: str) -> None:
        with self.database.begin() as connection:
            connection.execute(sa.delete(snapshots).where(snapshots.c.id == snapshot_id))
        self._manifest.cache_clear()

    def created_at(self, snapshot_id: str) -> float:
        with self.database.read() as connection:
            query = sa.select(snapshots.c.created_at).where(snapshots.c.id == snapshot_id)
            return float(connection.execute(query).scalar() or 0.0)

    def ids(self) -> list[str]:
        with self.database.read() as connection:
            return [row.id for row in connection.execute(sa.select(snapshots.c.id))]

    def _read(self, snapshot_id: str) -> Manifest:
        with self.database.read() as connection:
            found = connection.execute(_GET, {"id": snapshot_id}).scalar()
        if found is None:
            raise NotFound(f"There is no snapshot {snapshot_id[:12]}.")
        return Manifest.from_bytes(zlib.decompress(found))


_GET = sa.select(snapshots.c.manifest).where(snapshots.c.id == sa.bindparam("id"))
