"""A compute target: where runs run. Created or attached, then used by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Compute:
    """A target as it is stored. `config` never holds a secret in clear."""

    name: str
    workspace: str
    kind: str
    config: Mapping[str, Any]
    created_at: float
    state: str = "Succeeded"
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    version: int = 0

    def evolve(self, **changes: Any) -> Compute:
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a probe found."""

    hostname: str
    system: str
    cpus: int
    memory_bytes: int
    gpus: tuple[Mapping[str, Any], ...] = ()
    disk_free_bytes: int | None = None
    python: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        return {f: getattr(self, f) for f in self.__dataclass_fields__}
