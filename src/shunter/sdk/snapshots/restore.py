"""Bring a snapshot back: the folder as it was at submit."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from shunter.errors import BlobCorrupt, UsageError
from shunter.model.snapshot import Entry, Manifest
from shunter.packs import Piece, read_pack
from shunter.sdk.client import Client, part


def restore(
    client: Client, snapshot_id: str, folder: Path, progress: Callable[[str, int, int], None] | None = None
) -> Manifest:
    """Write the snapshot into `folder`, which is new or empty. It appears there whole, or not at all.

    The bytes are verified on the way; the manifest has been checked to stay inside the folder.
    """
    _check_empty(folder)
    path = f"/api/v1/snapshots/{part(snapshot_id)}"
    manifest = Manifest.from_bytes(client.raw("GET", path).body)
    if manifest.snapshot_id != snapshot_id:
        raise BlobCorrupt(f"The server answered with another snapshot than {snapshot_id[:12]}.")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{folder.absolute().name}-", dir=folder.absolute().parent))
    try:
        _write(client, path, manifest, stage, progress)
        stage.chmod(0o777 & ~_umask())
        os.replace(stage, folder)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    return manifest


def _write(
    client: Client, path: str, manifest: Manifest, stage: Path, progress: Callable[[str, int, int], None] | None
) -> None:
    places: dict[str, list[Entry]] = {}
    for entry in manifest.entries:
        (stage / entry.path).parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "file":
            places.setdefault(entry.digest, []).append(entry)
    total, done = sum(manifest.blobs.values()), 0
    file: BinaryIO | None = None
    for piece in read_pack(client.stream(path + "/pack")):
        if not isinstance(piece, Piece):
            continue
        first, *others = places[piece.blob.digest]
        if file is None:
            file = (stage / first.path).open("wb")
        file.write(piece.data)
        done += len(piece.data)
        if progress is not None:
            progress("Restoring", done, total)
        if piece.last:
            file.close()
            file = None
            for entry in others:
                shutil.copyfile(stage / first.path, stage / entry.path)
            del places[piece.blob.digest]
            for entry in (first, *others):
                (stage / entry.path).chmod(entry.mode & ~_umask())
    if places:
        raise BlobCorrupt(f"The server left out {len(places)} files of the snapshot.")
    for entry in manifest.entries:
        if entry.kind == "link":
            (stage / entry.path).symlink_to(entry.target)


def _check_empty(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is there already and is no folder.", hint="Name a new folder.")
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty.", hint="Name a new or an empty folder: nothing is overwritten.")


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
