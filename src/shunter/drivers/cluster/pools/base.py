"""Where a cluster's nodes come from: a few verbs, called by Ray's autoscaler and by the keeper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from shunter.drivers.base import Driver, Home
    from shunter.drivers.cluster.folder import ClusterFolder, Spec
    from shunter.model.compute import Compute


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node that was asked for and has not been given back: it costs, whether or not it is of use yet."""

    name: str
    address: str
    tags: Mapping[str, str]
    asked_at: float
    is_up: bool = False
    why: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


class NodePool(Protocol):
    """Nodes on demand. One instance lives in the autoscaler's process and is called from several of its threads.

    - `create` returns once the node is written down and on its way, or raises; it does not wait for it.
    - `nodes` lists what is there. A node that died is left out, after it was listed at least once.
    - `terminate` may be repeated, and returns when nothing of the node is left.
    - All of it holds over a restart of the process: what is there is known from what was written down.
    """

    kind: ClassVar[str]
    #: Whether a node's root lies on this machine's disk.
    shares_disk: ClassVar[bool]

    def __init__(self, folder: ClusterFolder, spec: Spec) -> None: ...

    def create(self, tags: Mapping[str, str], resources: Mapping[str, float]) -> str: ...

    def nodes(self) -> Sequence[PoolNode]: ...

    def set_tags(self, name: str, tags: Mapping[str, str]) -> None: ...

    def terminate(self, name: str) -> None: ...

    @classmethod
    def refusal(cls, spec: Spec) -> str:
        """Why this pool can never have such nodes; empty when it can."""
        ...

    @classmethod
    def place_of(cls, folder: ClusterFolder, name: str) -> str:
        """What holds the node's root: nodes with the same place, one after the other, are reached by one driver."""
        ...

    @classmethod
    def reach(cls, folder: ClusterFolder, name: str, compute: Compute, home: Home) -> Driver:
        """The way to one node for the server: the five verbs on that node's own root."""
        ...

    @classmethod
    async def is_quiet(cls, way: Driver) -> bool:
        """Whether nothing on a node that was given back still brings something home over this way to it."""
        ...

    def sweep(self, name: str) -> str:
        """Called by the keeper, again and again, about a node whose process is gone: end what it left.

        Returns why it is dead once nothing of it can be running any more; empty until then.
        """
        ...

    def take_away(self) -> None:
        """The cluster is being deleted, its nodes are gone: leave nothing of it anywhere."""
        ...
