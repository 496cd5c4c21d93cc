"""A cluster of a thousand simulated nodes and a long queue, on the real dispatcher and a real database."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import sqlalchemy as sa
from pydantic import BaseModel

from shunter.drivers.base import Capabilities, Capacity, Driver, Facts, Handle, Launch, NodeState, Running, Sign
from shunter.model.run import Outcome, Run, Status
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.storage import schema
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.runs import SqlRuns, _row

WORKSPACE, TARGET = "default", "crowd"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a round takes in the middle, and by how much the process grew over all of them."""

    queued: int
    milliseconds: float
    grown_bytes: int
    started: int


class Crowd:
    """A target whose launches do nothing, at once. It offers what a target with nodes of its own offers."""

    kind: ClassVar[str] = "crowd"
    Config: ClassVar[type[BaseModel]] = BaseModel
    can: ClassVar[Capabilities] = Capabilities(multi_node=True)

    def __init__(self, nodes: int) -> None:
        self.count = nodes

    def capacity(self) -> Capacity:
        return Capacity(slots=2, nodes=self.count, whole_nodes=True)

    def facts(self) -> Facts:
        return Facts("crowd", "none", 2, 1 << 30)

    async def probe(self) -> Facts:
        return self.facts()

    async def launch(self, job: Launch) -> Handle:
        return {"launch": job.id}

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        return [Running()] * len(handles)

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        return b""

    async def cancel(self, handle: Handle) -> None: ...
    async def clean(self, handle: Handle) -> None: ...
    async def close(self) -> None: ...
    async def start(self) -> None: ...
    async def apply(self) -> None: ...
    async def remove(self) -> None: ...

    async def nodes(self) -> Sequence[NodeState]:
        return []

    def shared_folder(self, launch: str, node: str) -> Path | None:
        return None

    # It is its own table of targets, maker of orders, and fetcher.

    def driver(self, workspace: str, name: str) -> Driver:
        return cast("Driver", self)

    def order(self, run: Run, launch: Any) -> Launch:
        return Launch(launch.id, launch.node, {}, run.snapshot_id)


def measure(folder: Path, queued: int, nodes: int = 1000, rounds: int = 30, freed: int = 10) -> Cost:
    """Fill the cluster, then let `freed` runs end before each round, and time the rounds."""
    return asyncio.run(_measure(folder, queued, nodes, rounds, freed))


async def _measure(folder: Path, queued: int, nodes: int, rounds: int, freed: int) -> Cost:
    database = Database.open(sqlite_url(folder / f"crowd-{queued}.db"))
    store, crowd = SqlRuns(database), Crowd(nodes)
    try:
        rows = [_row(_run(number)) | {"alias": f"crowd_{number}"} for number in range(nodes + queued)]
        with database.begin() as connection:
            for start in range(0, len(rows), 5000):
                connection.execute(sa.insert(schema.runs), rows[start : start + 5000])
        dispatcher = Dispatcher(store, crowd, crowd, cast("Any", crowd), clock=time.time)
        while len(store.slots_in_use(WORKSPACE, TARGET)) < nodes:
            dispatcher.queue_changed(WORKSPACE, TARGET)
            await dispatcher.round()
            await dispatcher.settle()
        dispatcher.look_at.clear()
        took: list[float] = []
        begun, started = _resident_bytes(), 0
        for _ in range(rounds):
            for run_id, _slots in store.slots_in_use(WORKSPACE, TARGET)[:freed]:
                dispatcher.on_outcome(f"{run_id}.1.0", Outcome("completed", exit_code=0))
            before = time.perf_counter()
            await dispatcher.round()
            took.append(time.perf_counter() - before)
            await dispatcher.settle()
            dispatcher.look_at.clear()
            started += freed
        assert len(store.slots_in_use(WORKSPACE, TARGET)) == nodes
        return Cost(queued, statistics.median(took) * 1000, _resident_bytes() - begun, started)
    finally:
        database.engine.dispose()


def _run(number: int) -> Run:
    return Run(
        f"{number:032x}", WORKSPACE, "crowd", f"crowd-{number}", TARGET, Status.QUEUED, "s", "t.py", (), {},
        float(number), float(number), slots=2, number=number,
    )  # fmt: skip


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
