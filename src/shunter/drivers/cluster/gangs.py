"""A gang: the room that one attempt of a run holds on a cluster. Values and the decisions about them, no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shunter.drivers.cluster.folder import LEFT

#: asked → placed → over; or withdrawn, failed, canceled, lost on the way.
ASKED, PLACED, OVER, FAILED, CANCELED, LOST = "asked", "placed", "over", "failed", "canceled", "lost"

#: Room that an attempt gave back is kept for the next of the same shape for so long: Ray needs up to a second to place
#: a group into room that was just freed, and a queue of short runs would wait most of its time.
LINGER_SECONDS = 1.0
#: A gang that nobody has asked about for so long is no longer wanted: its server is gone, or has forgotten it.
FORGOTTEN_SECONDS = 120.0
#: Nodes that came to nothing while a gang waited, before it is told that it cannot be placed.
MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Gang:
    id: str
    run: str
    bundle: Mapping[str, float]
    count: int
    since: float
    state: str = ASKED
    group: str = ""
    nodes: Sequence[str] = ()
    addresses: Sequence[str] = ()
    ports: Sequence[int] = ()
    placed_at: float = 0.0
    why: str = ""
    lost_node: str = ""

    @property
    def key(self) -> str:
        """Gangs with the same key need the same room."""
        return json.dumps([dict(sorted(self.bundle.items())), self.count])

    @property
    def is_open(self) -> bool:
        return self.state in (ASKED, PLACED)

    def launch(self, index: int) -> str:
        return f"{self.id}.{index}"

    def evolve(self, **changes: Any) -> Gang:
        return replace(self, **changes)

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Room:
    """A group that was given back and not yet taken from Ray."""

    group: str
    key: str
    nodes: Sequence[str]
    addresses: Sequence[str]
    since: float


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the keeper sees it."""

    name: str
    asked_at: float
    is_up: bool
    is_alive: bool
    is_leaving: bool = False
    ended_at: float | None = None
    why: str = ""


def bundle_for(
    cpus: int, gpus: int, memory_bytes: int, node_cpus: int, node_gpus: int
) -> dict[str, float]:
    """What one member takes of its node: all of it, unless it said how much."""
    if cpus >= node_cpus:
        return {"CPU": float(node_cpus), **({"GPU": float(node_gpus)} if node_gpus else {})}
    found: dict[str, float] = {"CPU": float(cpus)}
    if memory_bytes:
        found["memory"] = float(memory_bytes)
    if gpus:
        found["GPU"] = float(gpus)
    return found


def find_room(rooms: Iterable[Room], gang: Gang, nodes: Mapping[str, NodeView]) -> Room | None:
    """Room of the right shape whose nodes all live: the gang takes it over without asking Ray."""
    for room in rooms:
        if room.key == gang.key and all(name in nodes and is_usable(nodes[name]) for name in room.nodes):
            return room
    return None


def is_usable(node: NodeView) -> bool:
    return node.is_alive and node.is_up and not node.is_leaving and node.ended_at is None


def counts(nodes: Iterable[NodeView], busy: Iterable[str]) -> dict[str, int]:
    """Nodes by state, in the words of the documents."""
    found = dict.fromkeys(("idle", "running", "preparing", "leaving", "preempted", "unusable"), 0)
    held = set(busy)
    for node in nodes:
        found[state_of(node, held)] += 1
    return found


def state_of(node: NodeView, busy: set[str] | frozenset[str]) -> str:
    if node.ended_at is not None or not node.is_alive:
        return "unusable"
    if node.is_leaving:
        return "leaving"
    if not node.is_up:
        return "preparing"
    return "running" if node.name in busy else "idle"


def words(
    gang: Gang, cluster: str, size: str, head: str, nodes: Sequence[NodeView], busy: set[str], most: int, now: float
) -> str:
    """What a gang waits for, and since when."""
    if head != "up":
        return f"The head of {cluster} is being started ({head})."
    coming = [n for n in nodes if n.is_alive and not n.is_up and n.ended_at is None]
    here = {n.name for n in nodes if is_usable(n)}
    if coming:
        since = now - min(n.asked_at for n in coming)
        return f"{_nodes(len(coming))} of size {size} coming up on {cluster} since {since:.0f} s; {len(here)} there already."
    if busy and len(here) >= most:
        return f"All {_nodes(most)} of {cluster} are there, {len(busy & here)} in use; it needs {gang.count}."
    failed = [n for n in nodes if n.ended_at is not None and n.ended_at > gang.since and n.why != LEFT]
    if failed:
        return f"A node of {cluster} came to nothing ({failed[-1].why}); another is asked for."
    return f"The autoscaler of {cluster} was asked for {_nodes(gang.count)} of size {size} {now - gang.since:.0f} s ago."


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def failures(nodes: Iterable[NodeView], since: float) -> list[NodeView]:
    """Nodes that never came up, since a moment."""
    return [n for n in nodes if n.ended_at is not None and not n.is_up and n.asked_at >= since]


@dataclass(slots=True)
class Zero:
    """How long a cluster has had nothing to do: after a while its head goes too."""

    since: float | None = None
    kept: Sequence[str] = field(default=())

    def seen(
        self, gangs: Iterable[Gang], rooms: Sequence[Room], nodes: Iterable[NodeView], min_nodes: int, now: float
    ) -> float:
        """Seconds at zero, 0.0 while anything is there."""
        alive = any(n.ended_at is None for n in nodes)
        if min_nodes or rooms or alive or any(g.is_open for g in gangs):
            self.since = None
            return 0.0
        if self.since is None:
            self.since = now
        return now - self.since
