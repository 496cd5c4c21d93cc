"""What is kept and what goes: deleting runs, and freeing what nothing refers to any more. Delete means delete."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import ShunterError, UsageError
from shunter.model.run import OVER, Run

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

log = logging.getLogger("shunter.retention")

DAY_SECONDS = 86400.0


@dataclass
class Freed:
    """What a clean-up freed, or would free: for each kind how many things and how many bytes."""

    dry_run: bool
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, kind: str, count: int, size: int) -> None:
        found = self.kinds.setdefault(kind, {"count": 0, "bytes": 0})
        found["count"] += count
        found["bytes"] += size

    @property
    def bytes(self) -> int:
        return sum(found["bytes"] for found in self.kinds.values())

    def to_wire(self) -> dict[str, Any]:
        return {"dry_run": self.dry_run, "bytes": self.bytes, "kinds": self.kinds}


def forget_run(parts: Parts, run_id: str) -> int:
    """Delete a run that is over with everything it left: rows first, then files. Returns the bytes of its files."""
    run = parts.runs.get(run_id)
    size = 0
    for child in parts.runs.list(run.workspace, parent_id=run_id, limit=10_000):
        if child.config.get("made_by_script"):
            size += forget_run(parts, child.id)
    size += parts.files.size(run_id)
    parts.context.metrics.delete(run_id)
    parts.context.checkpoints.delete(run_id)
    parts.context.notifier.notices.delete(run_id)
    parts.runs.delete(run_id)
    parts.files.delete(run_id)
    return size


def collect_garbage(
    parts: Parts, *, older_than_days: float | None = None, checkpoints: bool = True, dry_run: bool = True,
    grace_seconds: float = 3600.0,
) -> Freed:  # fmt: skip
    """Free what nothing refers to: snapshots and inputs without runs, folders of runs that were deleted, checkpoints of
    runs that completed, pieces of files that never became whole. With `older_than_days`, also runs that ended earlier.
    """
    if older_than_days is not None and older_than_days < 0:
        raise UsageError("`older_than_days` is negative.")
    freed = Freed(dry_run)
    now = parts.clock()
    everything = list(_all_runs(parts))
    gone: set[str] = set()
    if older_than_days is not None:
        before = now - older_than_days * DAY_SECONDS
        for run in everything:
            if run.is_over and (run.ended_at or run.submitted_at) < before and run.id not in gone and not is_held(run):
                gone.add(run.id)
                freed.add("runs", 1, parts.files.size(run.id))
                if not dry_run and not run.config.get("made_by_script"):
                    forget_run(parts, run.id)
    kept = [run for run in everything if run.id not in gone]
    if checkpoints:
        _free_checkpoints(parts, kept, freed)
    _free_snapshots(parts, kept, freed, now - grace_seconds, grace_seconds)
    _free_inputs(parts, everything, freed, now - max(grace_seconds, 0.0))
    _free_folders(parts, {run.id for run in everything}, freed, now - grace_seconds)
    return freed


async def free_on_machines(parts: Parts, freed: Freed, grace_seconds: float) -> None:
    """Copies of inputs on machines that keep some; one that does not answer now keeps them until it is asked again."""

    def busy() -> list[str]:
        given = (g for run in _all_runs(parts) if not run.is_over for g in run.config.get("inputs") or ())
        return sorted({str(g.get("key")) for g in given})

    keys = await asyncio.to_thread(busy)
    for compute in await asyncio.to_thread(parts.computes.list):
        try:
            driver: Any = parts.targets.driver(compute.workspace, compute.name)
            if hasattr(driver, "free_inputs"):
                count, size = await driver.free_inputs(keys, max(grace_seconds, 0.0), not freed.dry_run)
                if count:
                    freed.add(f"copies of inputs on {compute.name}", count, size)
        except ShunterError as error:
            log.warning("%s: nothing was freed there: %s", compute.name, error.message)


def is_held(run: Run) -> bool:
    """Whether a registered model is made of its files (`services/models.py` says so in its properties)."""
    return any(key.startswith("model.") for key in run.properties)


def snapshots_in_use(runs: Iterable[Run]) -> set[str]:
    """The snapshots that these runs need: their code, and inputs that were sent with them. Pure."""
    found = set()
    for run in runs:
        found.add(run.snapshot_id)
        for given in run.config.get("inputs") or ():
            if isinstance(given, Mapping) and given.get("snapshot_id"):
                found.add(str(given["snapshot_id"]))
    return found


def _all_runs(parts: Parts) -> Iterable[Run]:
    for workspace in parts.workspaces.list():
        before = None
        while True:
            page = parts.runs.list(str(workspace["name"]), before=before, limit=1000)
            yield from page
            if len(page) < 1000:
                break
            before = page[-1].submitted_at


def _free_checkpoints(parts: Parts, runs: Iterable[Run], freed: Freed) -> None:
    """A completed run needs no checkpoint to go on from; one that failed may be started again from its last."""
    for run in runs:
        if run.status in OVER and str(run.status) == "Completed":
            size = parts.context.checkpoints.bytes_of(run.id)
            if size:
                freed.add("checkpoints", 1, size)
                if not freed.dry_run:
                    parts.context.checkpoints.delete(run.id)


def _free_snapshots(parts: Parts, runs: list[Run], freed: Freed, before: float, grace_seconds: float) -> None:
    used = snapshots_in_use(runs)
    unused = [found for found in parts.snapshots.ids() if found not in used and _is_old(parts, found, before)]
    wanted = {
        e.digest for found in parts.snapshots.ids() if found not in unused for e in parts.snapshots.get(found).entries
    }
    for snapshot_id in unused:
        manifest = parts.snapshots.get(snapshot_id)
        alone = {e.digest: e.size for e in manifest.entries if e.kind == "file" and e.digest not in wanted}
        freed.add("snapshots", 1, sum(alone.values()))
        wanted |= set(alone)  # counted once
        if not freed.dry_run:
            parts.snapshots.delete(snapshot_id)
            parts.blobs.delete(alone)
    if not freed.dry_run:
        parts.orders.forget()
        done = parts.blobs.compact(grace_seconds=grace_seconds)
        if done.bytes_freed:
            freed.add("blob files", done.files_deleted, done.bytes_freed)


def _free_inputs(parts: Parts, runs: Iterable[Run], freed: Freed, before: float) -> None:
    """Copies of inputs on this machine that no run is using and none has used lately; they can be brought again."""
    busy = {str(g.get("key")) for run in runs if not run.is_over for g in run.config.get("inputs") or ()}
    folder = parts.home / "node" / "inputs"
    for whole in folder.glob("*.whole") if folder.is_dir() else ():
        key = whole.name.removesuffix(".whole")
        if key not in busy and whole.stat().st_mtime < before:
            freed.add("copies of inputs", 1, _size(folder / key))
            if not freed.dry_run:
                whole.unlink(missing_ok=True)
                for here, _, _ in os.walk(folder / key):
                    os.chmod(here, 0o700)
                shutil.rmtree(folder / key, ignore_errors=True)


def _is_old(parts: Parts, snapshot_id: str, before: float) -> bool:
    """A snapshot is sent a moment before its run is: a young one may be waiting for it."""
    return parts.snapshots.created_at(snapshot_id) < before


def _free_folders(parts: Parts, known: set[str], freed: Freed, before: float) -> None:
    for folder in _folders(parts.files.folder):
        if folder.name not in known and folder.stat().st_mtime < before:
            freed.add("folders of deleted runs", 1, _size(folder))
            if not freed.dry_run:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        incoming = folder / "incoming"
        for piece in incoming.iterdir() if incoming.is_dir() else ():
            try:
                stat = piece.stat()
            except FileNotFoundError:
                continue  # whole by now
            if stat.st_mtime < before:
                freed.add("unfinished files", 1, stat.st_size)
                if not freed.dry_run:
                    piece.unlink(missing_ok=True)


def _folders(base: Path) -> Iterable[Path]:
    for shelf in base.iterdir() if base.is_dir() else ():
        if shelf.is_dir():
            yield from (folder for folder in shelf.iterdir() if folder.is_dir())


def _size(folder: Path) -> int:
    return sum(os.lstat(os.path.join(here, name)).st_size for here, _, names in os.walk(folder) for name in names)
