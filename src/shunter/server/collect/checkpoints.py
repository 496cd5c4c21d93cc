"""Takes in checkpoints while their run goes on: contents piece by piece, then the version that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shunter.errors import UsageError
from shunter.model.run import Run, parse_launch_id
from shunter.server.storage.checkpoints import KEEP, Checkpoints, File, Version
from shunter.server.storage.files import check_path


class CheckpointTaker:
    def __init__(self, store: Checkpoints, clock: Callable[[], float]) -> None:
        self.store = store
        self.clock = clock

    def blob(self, run: Run, launch_id: str, header: dict[str, Any], payload: bytes) -> tuple[str, int]:
        sha256 = str(header["blob"])
        return "blob/" + sha256, self.store.put(run.id, sha256, int(header["offset"]), payload, int(header["total"]))

    def commit(self, run: Run, launch_id: str, header: dict[str, Any], payload: bytes) -> tuple[str, int]:
        """A version of a checkpoint is whole. What an old attempt still sends does not become the newest."""
        _, attempt, node_index = parse_launch_id(launch_id)
        about = header["checkpoint"]
        name = check_path(str(about["name"]))[:255]
        files = tuple(
            File(str(path), int(size), str(sha), int(mode) & 0o777) for path, size, sha, mode in about["files"]
        )
        if not files or len(files) > 100_000:
            raise UsageError(f"Checkpoint {name}: it has {len(files)} files.")
        key = "checkpoint/" + name
        known = self.store.list(run.id, node_index, name)
        if known and known[0].files == files and known[0].attempt == attempt:
            return key, known[0].version  # said again, as its answer was lost
        if known and known[0].attempt > attempt:
            return key, known[0].version
        size = sum(file.size for file in files)
        keep = run.config.get("keep_checkpoints")
        version = Version(run.id, node_index, name, 0, attempt, self.clock(), size, files)
        return key, self.store.commit(version, keep if isinstance(keep, int) else KEEP)
