"""All that a compute target owes us: five verbs, and the promises that go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel

from shunter.model.compute import Compute, Facts
from shunter.model.run import Outcome

__all__ = [
    "Absent", "Capabilities", "Capacity", "Driver", "Ended", "Facts", "Gone", "Handle", "Home", "Launch", "NodeState",
    "Provisioning", "Running", "Scaling", "Sign", "Unknown", "sign_from_wire",
]  # fmt: skip

#: How a driver finds a launcher again: a small JSON object that the driver makes and only the driver reads.
Handle = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a kind of target can do. The support table in the docs is made from it."""

    gpu: bool = False
    sweeps: bool = False
    automl: bool = False
    pipelines: bool = False
    multi_node: bool = False
    containers: bool = False
    attach: bool = True  # attached (it is there already) rather than created


@dataclass(frozen=True, slots=True)
class Home:
    """Where a node finds the server, and the files that only the server can read for it."""

    url: str
    endpoint_file: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One launcher to be started. `job` is the node's contract (`shunter/node/contract.py`), ready to be written.

    `layout` says where the snapshot's bytes lie on the server: (path, kind, mode, pack file, offset, size or link target).
    """

    id: str
    node: str
    job: Mapping[str, Any]
    snapshot_id: str
    layout: Sequence[tuple[str, str, int, str, int, int]] = ()
    #: The digest of each file of `layout`, in the same order; empty for links. For nodes that keep what they were sent.
    digests: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """The launcher or its script is alive. `started`: the script was started."""

    started: bool = True
    pushing: bool = True  # a launcher is there that will bring the outcome home itself


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome is on the node. `pushing` as above: when False, `fetch` must bring the rest."""

    outcome: Outcome
    pushing: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing of it is alive and there is no outcome; `evidence` says how we know. Never said without evidence."""

    evidence: str
    started: bool = True  # False: the script certainly never ran


@dataclass(frozen=True, slots=True)
class Absent:
    """The node answers and has never seen this launcher: launching it again is safe."""


@dataclass(frozen=True, slots=True)
class Provisioning:
    """Its nodes are on their way; `why` says what is being waited for."""

    why: str
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Unknown:
    """The node does not answer, or not clearly."""

    why: str


Sign = Running | Ended | Gone | Absent | Provisioning | Unknown


def sign_from_wire(found: Mapping[str, Any]) -> Sign:
    """A sign as the node wrote it (`shunter/node/signs.py`)."""
    match found.get("sign"):
        case "running":
            return Running(started=bool(found["started"]), pushing=bool(found["pushing"]))
        case "ended":
            return Ended(Outcome.from_wire(found["outcome"]), pushing=bool(found["pushing"]))
        case "gone":
            return Gone(str(found["evidence"]), started=bool(found["started"]))
        case "absent":
            return Absent()
        case _:
            return Unknown(str(found.get("why") or "The node gave no clear answer."))


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much can run at once: slots on each node, and how many nodes there are or could be."""

    slots: int
    nodes: int = 1
    gpus: int = 0
    memory_bytes: int = 0
    why: str = ""
    whole_nodes: bool = False  # a run that does not say how much it needs takes whole nodes
    price_per_hour: float | None = None  # of one node; None: nobody said


class Driver(Protocol):
    """One compute target in use.

    - `launch` with the same id twice starts once, also when the first call's answer was lost.
    - `poll` never raises for one bad handle: it answers Unknown for it.
    - `cancel` may be repeated, is legal before the launcher came up (it then never starts), and returns before the end.
    - All verbs may be called again after any error.
    """

    kind: ClassVar[str]
    Config: ClassVar[type[BaseModel]]
    can: ClassVar[Capabilities]

    def __init__(self, compute: Compute, home: Home) -> None: ...

    def capacity(self) -> Capacity:
        """How much can run at once, from the configuration and what the last probe found. No I/O."""
        ...

    async def probe(self) -> Facts: ...

    async def launch(self, job: Launch) -> Handle: ...

    async def poll(self, handles: Sequence[Handle]) -> Sequence[Sign]:
        """A sign for each handle, in the same order."""
        ...

    async def fetch(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read the spool when nobody pushes it home. Empty at the end of the stream."""
        ...

    async def cancel(self, handle: Handle) -> None: ...

    async def clean(self, handle: Handle) -> None:
        """Everything is home: the node may forget it. May be repeated."""
        ...

    async def close(self) -> None:
        """Let go of connections. Runs go on."""
        ...


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node of a target whose nodes come and go, in the words of the documents."""

    name: str
    state: str  # idle, running, preparing, leaving, preempted, unusable
    asked_at: float
    ended_at: float | None = None
    why: str = ""
    runs: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        return {f: getattr(self, f) for f in self.__dataclass_fields__}


@runtime_checkable
class Scaling(Protocol):
    """What a driver offers whose target has nodes that come and go. Found by asking the driver: `isinstance(driver, Scaling)`."""

    def facts(self) -> Facts:
        """What a node of it has. Raises when such nodes cannot be had. No I/O."""
        ...

    async def start(self) -> None:
        """Bring up what must always be there; returns when it is. May be repeated."""
        ...

    async def nodes(self) -> Sequence[NodeState]: ...

    async def apply(self) -> None:
        """The options changed."""
        ...

    async def remove(self) -> None:
        """Give everything back; returns when nothing is left. May be repeated, also after a crash on the way."""
        ...

    def shared_folder(self, launch: str, node: str) -> Path | None:
        """Where a launch's folder lies, when its node shares the server's disk."""
        ...
