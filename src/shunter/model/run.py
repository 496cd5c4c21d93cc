"""A run, its states and the one table by which they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """Where a run stands. The names are those that users of the first SDK know."""

    NOT_STARTED = "NotStarted"
    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    PREPARING = "Preparing"
    STARTING = "Starting"
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    NOT_RESPONDING = "NotResponding"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"

    @property
    def is_over(self) -> bool:
        return self in OVER


OVER = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED})
WAITING = frozenset({Status.NOT_STARTED, Status.QUEUED})
#: States in which an attempt may be on a node: it holds its slots and must be looked after.
PLACED = frozenset(Status) - OVER - WAITING

_ON_NODE = {Status.PROVISIONING, Status.PREPARING, Status.STARTING, Status.RUNNING, Status.FINALIZING}
_ALWAYS = {Status.CANCEL_REQUESTED, Status.FAILED, Status.CANCELED}

#: The only way a run moves. Backwards to Queued is a new attempt; everything else goes forward or aside.
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.NOT_STARTED: frozenset({Status.QUEUED} | _ALWAYS | {Status.RUNNING, Status.COMPLETED}),
    # Completed: a lost attempt that comes back with a success while its successor is still queued is not run again.
    Status.QUEUED: frozenset({Status.PROVISIONING, Status.PREPARING, Status.STARTING, Status.COMPLETED} | _ALWAYS),
    Status.PROVISIONING: frozenset(
        {Status.QUEUED, Status.PREPARING, Status.STARTING, Status.RUNNING, Status.NOT_RESPONDING}
        | {Status.FINALIZING, Status.COMPLETED}
        | _ALWAYS
    ),
    Status.PREPARING: frozenset(
        {Status.QUEUED, Status.STARTING, Status.RUNNING, Status.FINALIZING, Status.NOT_RESPONDING, Status.COMPLETED}
        | _ALWAYS
    ),
    Status.STARTING: frozenset(
        {Status.QUEUED, Status.PREPARING, Status.RUNNING, Status.FINALIZING, Status.NOT_RESPONDING, Status.COMPLETED}
        | _ALWAYS
    ),
    Status.RUNNING: frozenset(
        {Status.QUEUED, Status.FINALIZING, Status.NOT_RESPONDING, Status.COMPLETED} | _ALWAYS
    ),
    Status.FINALIZING: frozenset({Status.QUEUED, Status.NOT_RESPONDING, Status.COMPLETED} | _ALWAYS),
    Status.NOT_RESPONDING: frozenset({Status.QUEUED, Status.COMPLETED} | _ON_NODE | _ALWAYS),
    # A script that ended by itself before the signal came has its own outcome, and that is the truth.
    Status.CANCEL_REQUESTED: frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELED: frozenset(),
}

#: Who must act for the run to go on.
OWNER: Mapping[Status, str] = {
    Status.NOT_STARTED: "client",
    Status.QUEUED: "dispatch",
    Status.PROVISIONING: "target",
    Status.PREPARING: "node",
    Status.STARTING: "target",
    Status.RUNNING: "script",
    Status.FINALIZING: "node",
    Status.NOT_RESPONDING: "dispatch",
    Status.CANCEL_REQUESTED: "node",
    Status.COMPLETED: "nobody",
    Status.FAILED: "nobody",
    Status.CANCELED: "nobody",
}

#: After so long in a state, dispatch looks whether it still is true and acts. None: as long as it takes.
DEADLINE_SECONDS: Mapping[Status, float | None] = {
    Status.NOT_STARTED: None,
    Status.QUEUED: None,
    Status.PROVISIONING: 600.0,
    Status.PREPARING: 1800.0,
    Status.STARTING: 30.0,
    Status.RUNNING: None,
    Status.FINALIZING: 600.0,
    Status.NOT_RESPONDING: None,
    Status.CANCEL_REQUESTED: 30.0,
    Status.COMPLETED: None,
    Status.FAILED: None,
    Status.CANCELED: None,
}


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: a code for machines, a sentence for people, and what to do next."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One submission of a script, with all its attempts.

    `version` grows with every move; an apply that was decided on an older version is refused.
    """

    id: str
    workspace: str
    experiment: str
    name: str
    target: str
    status: Status
    snapshot_id: str
    script: str
    arguments: tuple[str, ...]
    config: Mapping[str, Any]
    submitted_at: float
    since: float
    node_count: int = 1
    slots: int = 1
    attempt: int = 0
    max_attempts: int = 1
    parent_id: str | None = None
    number: int = 0
    priority: int = 0
    exit_code: int | None = None
    reason: str = ""
    error: RunError | None = None
    started_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    cancel_requested: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    @property
    def alias(self) -> str:
        """The first SDK's form of a run id: a second unique name for the run."""
        return alias_of(self.experiment, self.submitted_at, self.id)

    def evolve(self, **changes: Any) -> Run:
        return replace(self, **changes)


class LaunchState(StrEnum):
    """Where one launcher stands: what we asked for, then what its node said."""

    INTENDED = "Intended"
    STARTED = "Started"
    ENDED = "Ended"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a script ended, as written on its node before anybody was told."""

    kind: str  # completed, failed, canceled
    exit_code: int | None = None
    signal: int | None = None
    code: str = ""
    message: str = ""
    hint: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> Outcome:
        known = {f: data[f] for f in cls.__dataclass_fields__ if f in data}
        return cls(**known)

    def to_wire(self) -> dict[str, Any]:
        return {f: getattr(self, f) for f in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Launch:
    """One launcher on one node: a member of an attempt's gang. A run on one node has gangs of one."""

    run_id: str
    attempt: int
    node_index: int
    state: LaunchState
    intended_at: float
    node: str = ""
    handle: Mapping[str, Any] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    evidence: str = ""

    @property
    def id(self) -> str:
        return launch_id(self.run_id, self.attempt, self.node_index)

    @property
    def is_over(self) -> bool:
        return self.state in (LaunchState.ENDED, LaunchState.GONE)

    def evolve(self, **changes: Any) -> Launch:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run, kept for good."""

    run_id: str
    at: float
    kind: str
    status: Status
    reason: str
    data: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0


def launch_id(run_id: str, attempt: int, node_index: int) -> str:
    return f"{run_id}.{attempt}.{node_index}"


def parse_launch_id(text: str) -> tuple[str, int, int]:
    run_id, attempt, node_index = text.split(".")
    return run_id, int(attempt), int(node_index)


def alias_of(experiment: str, submitted_at: float, run_id: str) -> str:
    safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in experiment)
    return f"{safe}_{int(submitted_at)}_{run_id[:8]}"


def may_move(old: Status, new: Status) -> bool:
    return new in MOVES[old]
