"""The parts that a simulated story is made of: launches as their nodes know them, a driver whose messages fail, streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol, cast

from pydantic import BaseModel

from shunter.drivers.base import Capabilities, Capacity, Driver, Facts, Handle, Sign
from shunter.drivers.base import Launch as LaunchOrder
from shunter.errors import DriverError
from shunter.model.run import Launch, Run

NODES = 3


class Fate(Protocol):
    """What the parts ask of the story they are in."""

    plant: str
    random: Random
    launches: dict[str, SimLaunch]

    def step(self, name: str) -> None: ...
    def fate(self) -> str: ...
    def later(self, seconds: float, what: Callable[[], None]) -> None: ...
    def on_launch(self, launch_id: str) -> None: ...
    def on_cancel(self, launch_id: str) -> None: ...
    def sign(self, launch_id: str) -> Sign: ...


class Killed(BaseException):
    """The server was killed at this very step. Not an Exception: no code of ours may survive it."""


@dataclass
class SimLaunch:
    """A launch as its node knows it: survives everything but the loss of the node."""

    id: str
    node: int
    claimed: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    outcome: dict[str, Any] | None = None
    launcher_alive: bool = False
    lost: bool = False
    cancel: bool = False
    log: bytes = b""
    held: int = 0
    told_start: bool = False
    done: bool = False
    starts: int = 0

    @property
    def script_alive(self) -> bool:
        return self.started_at is not None and self.ended_at is None and not self.lost


class MemoryFiles:
    """The server's streams, in memory; they survive its death as files do."""

    def __init__(self, world: Fate) -> None:
        self.world = world
        self.streams: dict[tuple[str, str], bytes] = {}

    def append(self, launch_id: str, stream: str, offset: int, data: bytes) -> int:
        self.world.step("append")
        held = self.streams.get((launch_id, stream), b"")
        if offset > len(held):
            return len(held)
        fresh = data[len(held) - offset :]
        if self.world.plant == "lost_acknowledgement" and fresh and self.world.random.random() < 0.1:
            return len(held) + len(fresh)
        self.streams[(launch_id, stream)] = held + fresh
        return len(held) + len(fresh)

    def stream_path(self, launch_id: str, stream: str) -> Path:
        return Path(launch_id, stream)

    def of(self, run_id: str) -> Path:
        return Path("/nonexistent") / run_id

    def cut(self, launch_id: str, stream: str, size: int) -> None: ...


class SimDriver:
    """A target whose messages fail in every way a network can."""

    kind: ClassVar[str] = "simulated"
    Config: ClassVar[type[BaseModel]] = BaseModel
    can: ClassVar[Capabilities] = Capabilities(multi_node=True)

    def __init__(self, world: Fate) -> None:
        self.world = world

    def capacity(self) -> Capacity:
        return Capacity(slots=2, nodes=NODES)

    async def probe(self) -> Facts:
        return Facts("sim", "sim", 2, 1)

    async def launch(self, job: LaunchOrder) -> Handle:
        self.world.step("launch")
        fate = self.world.fate()
        if fate == "lost":
            raise DriverError("the message was lost")
        if fate == "late":
            self.world.later(self.world.random.uniform(1, 40), lambda: self.world.on_launch(job.id))
            raise DriverError("no answer in time")
        self.world.on_launch(job.id)
        if fate == "repeated":
            self.world.later(self.world.random.uniform(0, 30), lambda: self.world.on_launch(job.id))
        if fate == "unanswered":
            raise DriverError("the answer was lost")
        return {"launch": job.id}

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        self.world.step("poll")
        return [self.world.sign(str(h["launch"])) for h in handles]

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        self.world.step("fetch")
        if self.world.fate() in ("lost", "late"):
            raise DriverError("the connection broke")
        launch = self.world.launches[str(handle["launch"])]
        return launch.log[offset : offset + 16] if stream == "log" else b""

    async def cancel(self, handle: Handle) -> None:
        self.world.step("cancel")
        if self.world.fate() in ("lost", "late"):
            raise DriverError("the message was lost")
        self.world.on_cancel(str(handle["launch"]))

    async def clean(self, handle: Handle) -> None: ...

    async def close(self) -> None: ...


class OneTarget:
    def __init__(self, driver: SimDriver) -> None:
        self._driver = driver

    def driver(self, workspace: str, name: str) -> Driver:
        return cast("Driver", self._driver)


class PlainOrders:
    def order(self, run: Run, launch: Launch) -> LaunchOrder:
        return LaunchOrder(launch.id, launch.node, {}, run.snapshot_id)
