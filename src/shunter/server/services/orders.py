"""A launch as an order to its driver: the job that the node's launcher reads, and where the snapshot's bytes lie."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from shunter.drivers.base import Home
from shunter.drivers.base import Launch as LaunchOrder
from shunter.errors import BlobCorrupt, NotFound
from shunter.model.run import Launch, Run
from shunter.server.storage.blobs.base import BlobStore
from shunter.server.storage.snapshots import Snapshots
from shunter.server.tokens import Tokens

Layout = Sequence[tuple[str, str, int, str, int, int]]
#: Adds to a job what other parts need on the node (environments, inputs, secrets); called in the order of the list.
Addition = Callable[[Run, Launch, dict[str, Any]], None]


class Found(NamedTuple):
    """Where the files of a snapshot lie, and in which packs."""

    layout: Layout
    digests: Sequence[str]
    packs: Set[Path]


class Orders:
    def __init__(self, snapshots: Snapshots, blobs: BlobStore, tokens: Tokens, home: Home) -> None:
        self.snapshots = snapshots
        self.blobs = blobs
        self.tokens = tokens
        self.home = home
        self.additions: list[Addition] = []
        self._layouts: OrderedDict[str, Found] = OrderedDict()

    def order(self, run: Run, launch: Launch) -> LaunchOrder:
        job: dict[str, Any] = {
            "id": launch.id,
            "run_id": run.id,
            "run_name": run.name,
            "experiment": run.experiment,
            "workspace": run.workspace,
            "attempt": launch.attempt,
            "node_index": launch.node_index,
            "node_count": run.node_count,
            "snapshot_id": run.snapshot_id,
            "script": run.script,
            "arguments": list(run.arguments),
            "interpreter": run.config.get("interpreter"),
            "env": dict(run.config.get("env") or {}),
            "max_duration_seconds": run.config.get("max_duration_seconds"),
            "grace_seconds": run.config.get("grace_seconds") or 10,
            "framework": run.config.get("framework"),
            "communicator": run.config.get("communicator"),
            "processes_per_node": run.config.get("processes_per_node"),
            "max_silence_seconds": run.config.get("max_silence_seconds"),
            "resources": {"cpus": run.slots, "gpus": run.config.get("gpus"), "memory_bytes": run.config.get("memory_bytes")},
            "home": {"url": self.home.url, "endpoint_file": self.home.endpoint_file, "token": self.tokens.for_run(run.id)},
        }
        for add in self.additions:
            add(run, launch, job)
        layout, digests = self._layout(run.snapshot_id)
        return LaunchOrder(launch.id, launch.node, job, run.snapshot_id, layout, digests)

    def forget(self) -> None:
        """Packs were rewritten: what was located may lie elsewhere."""
        self._layouts.clear()

    def _layout(self, snapshot_id: str) -> tuple[Layout, Sequence[str]]:
        found = self._layouts.get(snapshot_id)
        if found is None or not all(path.exists() for path in found.packs):
            found = self._layouts[snapshot_id] = self._find(snapshot_id)
            while len(self._layouts) > 32:
                self._layouts.popitem(last=False)
        return found.layout, found.digests

    def _find(self, snapshot_id: str) -> Found:
        """Where all files of a snapshot lie. BlobCorrupt when one was lost: the next submit of the folder sends it anew."""
        manifest = self.snapshots.get(snapshot_id)
        places = self.blobs.locate({e.digest for e in manifest.entries if e.kind == "file"})
        packs = {place.path for place in places.values()}
        sizes = {path: path.stat().st_size for path in packs if path.exists()}
        layout = []
        for entry in manifest.entries:
            if entry.kind == "link":
                layout.append((entry.path, "link", 0, entry.target, 0, 0))
                continue
            place = places.get(entry.digest)
            if place is None or sizes.get(place.path, -1) < place.offset + place.size:
                self._lost(snapshot_id, [e.digest for e in manifest.entries if e.kind == "file"])
                raise BlobCorrupt(
                    f"The snapshot {snapshot_id[:12]} lacks the contents of {entry.path}: the server's store lost it.",
                    hint="Submit from the source folder again: what is missing is then sent anew.",
                )
            layout.append((entry.path, "file", entry.mode, str(place.path), place.offset, place.size))
        return Found(layout, [entry.digest if entry.kind == "file" else "" for entry in manifest.entries], packs)

    def _lost(self, snapshot_id: str, digests: Sequence[str]) -> None:
        """Read all of it: the store lets go of what is damaged."""
        for digest in digests:
            try:
                for _ in self.blobs.stream(digest):
                    pass
            except (BlobCorrupt, NotFound):
                self.snapshots.doubt(snapshot_id)
