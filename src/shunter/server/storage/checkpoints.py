"""Checkpoints of runs: versions of what scripts wrote under SHUNTER_CHECKPOINT_DIR, the newest kept.

    runs/ab/RUN/checkpoints/SHA256      contents, each once

A checkpoint is a file or a folder at the top of that directory. A version of it is added when all of its contents are
here and verified, so there are no half ones.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from shunter.errors import NotFound, UsageError
from shunter.server.storage.database import Database
from shunter.server.storage.files import RunFiles, append, check_path, full_disk
from shunter.server.storage.schema import checkpoints

KEEP = 5
#: Of each checkpoint, so many versions: when the newest turns out to be broken, there is one before it.
KEEP_VERSIONS = 2
_BLOCK = 1 << 20


class File(NamedTuple):
    path: str
    size: int
    sha256: str
    mode: int


class Version(NamedTuple):
    """One state of one checkpoint."""

    run_id: str
    node_index: int
    name: str
    version: int
    attempt: int
    at: float
    bytes: int
    files: tuple[File, ...]


class Checkpoints:
    def __init__(self, database: Database, files: RunFiles) -> None:
        self.database = database
        self.run_files = files

    def put(self, run_id: str, sha256: str, offset: int, data: bytes, total: int) -> int:
        """Add a piece of a content and return how much is held: one more than its size when it is whole and right."""
        path = self.path(run_id, sha256)
        if path.exists():
            return total + 1
        aside = path.with_name(sha256 + ".part")
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            held = append(aside, offset, data)
            if held < total:
                return held
            if held > total or digest(aside) != sha256:
                aside.unlink()
                return 0
            os.replace(aside, path)
        except OSError as error:
            raise full_disk(error) from error
        return total + 1

    def commit(self, version: Version, keep: int = KEEP) -> int:
        """Add a version whose contents are all here, and let go of what is too old. Returns its number."""
        for file in version.files:
            check_path(file.path)
            if not self.path(version.run_id, file.sha256).exists():
                raise UsageError(f"Checkpoint {version.name}: the contents of {file.path} are not here yet.")
        newest = max((v.version for v in self.list(version.run_id, version.node_index, version.name)), default=0)
        files = json.dumps([list(file) for file in version.files])
        row = version._asdict() | {"version": newest + 1, "files": files}
        with self.database.begin() as connection:
            connection.execute(sa.insert(checkpoints), row)
        self._prune(version.run_id, max(keep, 1))
        return newest + 1

    def list(self, run_id: str, node_index: int | None = None, name: str | None = None) -> list[Version]:
        """Versions, the newest first."""
        query = sa.select(checkpoints).where(checkpoints.c.run_id == run_id)
        if node_index is not None:
            query = query.where(checkpoints.c.node_index == node_index)
        if name is not None:
            query = query.where(checkpoints.c.name == name)
        query = query.order_by(checkpoints.c.at.desc(), checkpoints.c.version.desc())
        with self.database.read() as connection:
            return [_version(row) for row in connection.execute(query)]

    def to_restore(self, run_id: str, node_index: int) -> dict[str, Any] | None:
        """What a new attempt on a node begins with: each checkpoint, its versions from the newest on. Of its own node,
        else of the first."""
        found = self.list(run_id, node_index) or self.list(run_id, 0)
        if not found:
            return None
        units: dict[str, list[dict[str, Any]]] = {}
        for version in found:
            about = {"version": version.version, "at": version.at, "files": [list(file) for file in version.files]}
            units.setdefault(version.name, []).append(about)
        return {"run": run_id, "units": [{"name": name, "versions": versions} for name, versions in units.items()]}

    def read(self, run_id: str, sha256: str, offset: int, size: int) -> bytes:
        try:
            with self.path(run_id, sha256).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        except FileNotFoundError as error:
            raise NotFound(f"Run {run_id[:8]} has no checkpoint with the contents {sha256[:12]}.") from error

    def bytes_of(self, run_id: str) -> int:
        folder = self.run_files.of(run_id) / "checkpoints"
        return sum(file.stat().st_size for file in folder.iterdir()) if folder.is_dir() else 0

    def delete(self, run_id: str) -> None:
        with self.database.begin() as connection:
            connection.execute(sa.delete(checkpoints).where(checkpoints.c.run_id == run_id))
        self._sweep(run_id, ())

    def path(self, run_id: str, sha256: str) -> Path:
        if len(sha256) != 64 or not all(c in "0123456789abcdef" for c in sha256):
            raise UsageError(f"{sha256!r} is not a SHA-256 digest.")
        return self.run_files.of(run_id) / "checkpoints" / sha256

    def _prune(self, run_id: str, keep: int) -> None:
        found = self.list(run_id)
        kept, gone = sort_out(found, keep)
        with self.database.begin() as connection:
            for old in gone:
                connection.execute(_DELETE, {"r": old.run_id, "n": old.node_index, "name_": old.name, "v": old.version})
        if gone:
            self._sweep(run_id, kept)

    def _sweep(self, run_id: str, kept: Sequence[Version]) -> None:
        wanted = {file.sha256 for version in kept for file in version.files}
        folder = self.run_files.of(run_id) / "checkpoints"
        for file in folder.iterdir() if folder.is_dir() else ():
            if file.name not in wanted and not file.name.endswith(".part"):
                file.unlink(missing_ok=True)


def sort_out(versions: Sequence[Version], keep: int) -> tuple[list[Version], list[Version]]:
    """Which versions stay and which go: of each node the newest `keep` checkpoints, of each its newest versions. Pure.

    The newest first in `versions`.
    """
    kept: list[Version] = []
    gone: list[Version] = []
    names: dict[int, list[str]] = {}
    count: dict[tuple[int, str], int] = {}
    for version in versions:
        known = names.setdefault(version.node_index, [])
        if version.name not in known:
            known.append(version.name)
        key = (version.node_index, version.name)
        count[key] = count.get(key, 0) + 1
        stays = known.index(version.name) < keep and count[key] <= KEEP_VERSIONS
        (kept if stays else gone).append(version)
    return kept, gone


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()


_DELETE = sa.delete(checkpoints).where(
    checkpoints.c.run_id == sa.bindparam("r"),
    checkpoints.c.node_index == sa.bindparam("n"),
    checkpoints.c.name == sa.bindparam("name_"),
    checkpoints.c.version == sa.bindparam("v"),
)


def _version(row: Any) -> Version:
    files = tuple(File(*file) for file in json.loads(row.files))
    return Version(row.run_id, row.node_index, row.name, row.version, row.attempt, row.at, row.bytes, files)
