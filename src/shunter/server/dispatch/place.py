"""Which queued runs start now, and why the others wait. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shunter.drivers.base import Capacity
from shunter.model.run import Event, Launch, LaunchState, Run, Status, launch_id
from shunter.server.dispatch.moves import move


@dataclass(frozen=True, slots=True)
class Pool:
    """A target's room: what it has, and who holds how much of it."""

    capacity: Capacity
    in_use: Sequence[tuple[str, int]] = ()
    gpus_in_use: int = 0

    @property
    def total(self) -> int:
        return self.capacity.slots * self.capacity.nodes

    @property
    def free(self) -> int:
        return self.total - sum(slots for _, slots in self.in_use)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a run does not start yet."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """A new attempt of a run: what is written before anything is done about it."""

    run: Run
    before: Run
    launches: tuple[Launch, ...]
    events: tuple[Event, ...]


def choose(queue: Sequence[Run], pool: Pool) -> list[Run]:
    """The runs at the head of the queue that fit. In order: a large run is not overtaken for ever by small ones."""
    free = pool.free
    free_gpus = pool.capacity.gpus * pool.capacity.nodes - pool.gpus_in_use
    chosen = []
    for run in queue:
        need, gpus = run.slots * run.node_count, gpus_of(run)
        if need > free or (gpus and gpus > free_gpus):
            break
        chosen.append(run)
        free -= need
        free_gpus -= gpus
    return chosen


def gpus_of(run: Run) -> int:
    """How many GPUs a run holds while it is placed."""
    return int(run.config.get("gpus") or 0) * run.node_count


def begin_attempt(
    run: Run, now: float, handle: Callable[[str], Mapping[str, Any]], prepare: str = "", nodes: Sequence[str] = (),
    provision: str = "", price_per_hour: float | None = None,
) -> Start:  # fmt: skip
    """The intent to start a run: the next attempt with one launch for each node.

    `prepare`: what must be made first; `provision`: whose nodes must be found first; the price is that of now, whatever it
    becomes later.
    """
    attempt = run.attempt + 1
    launches = tuple(
        Launch(
            run_id=run.id,
            attempt=attempt,
            node_index=index,
            state=LaunchState.INTENDED,
            intended_at=now,
            node=nodes[index] if index < len(nodes) else "",
            handle=handle(launch_id(run.id, attempt, index)),
        )
        for index in range(run.node_count)
    )
    to = Status.PREPARING if prepare else Status.PROVISIONING if provision else Status.STARTING
    reason = prepare or provision or f"Attempt {attempt} is being started on {run.target}."
    usage = dict(run.usage) if price_per_hour is None else {**run.usage, "price_per_hour": price_per_hour}
    moved, event = move(run, to, now, reason, attempt=attempt, usage=usage, data={"attempt": attempt})
    return Start(moved, run, launches, (event,))


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a request could ever start on a target, and the nearest that would."""

    possible: bool
    why: str = ""
    nearest: str = ""
    missing: Mapping[str, Any] = field(default_factory=dict)


def fits(capacity: Capacity, *, slots: int, node_count: int, gpus: int = 0, memory_bytes: int = 0) -> Fit:
    if node_count > capacity.nodes:
        return Fit(False, f"it asks for {node_count} nodes, the target has {capacity.nodes}", f"--nodes {capacity.nodes}")
    if slots > capacity.slots:
        return Fit(False, f"it asks for {slots} CPUs, a node of the target has {capacity.slots}", f"--cpus {capacity.slots}")
    if gpus > capacity.gpus:
        return Fit(False, f"it asks for {gpus} GPUs, a node of the target has {capacity.gpus}", f"--gpus {capacity.gpus}")
    if capacity.memory_bytes and memory_bytes > capacity.memory_bytes:
        have = capacity.memory_bytes / 2**30
        return Fit(
            False,
            f"it asks for {memory_bytes / 2**30:.1f} GiB of memory, a node of the target has {have:.1f}",
            f"--memory {int(have)}G",
        )
    return Fit(True)
