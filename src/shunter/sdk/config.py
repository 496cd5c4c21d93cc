"""How a script is run: which target, which environment, how many nodes.

>>> config = RunConfiguration(target="cpu", node_count=2)
>>> config.nodes = 3
Traceback (most recent call last):
AttributeError: RunConfiguration has no attribute 'nodes'. Did you mean 'node_count'?
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shunter.errors import UsageError, nearest
from shunter.sdk.environment import Environment, environment_wire

#: Distributed frameworks and how their processes talk to each other, as the first SDK spells them.
COMMUNICATORS = ("ParameterServer", "Gloo", "Nccl", "Mpi", "OpenMpi", "IntelMpi")


@dataclass
class RunConfiguration:
    """Which target, which environment, how many nodes; saved to and loaded from `.runconfig` files.

    `environment` is an `Environment`, the name of a registered or curated one (`name` or `name:version`), or None for
    the default: on the local target the interpreter that submits, elsewhere what the folder asks for.
    """

    script: str | None = None
    arguments: Sequence[Any] | None = None
    framework: str = "python"
    communicator: str | None = None
    target: Any = "local"
    node_count: int = 1
    environment: Environment | str | None = None
    environment_variables: Mapping[str, str] | None = None
    max_run_duration_seconds: float | None = None
    auto_prepare_environment: bool = True
    vm_size: str | None = None
    tags: Mapping[str, str] | None = None
    cpus: float | None = None
    gpus: int | None = None
    memory_bytes: int | None = None
    grace_seconds: float | None = None
    max_attempts: int | None = None
    processes_per_node: int | None = None
    #: When no rank of a distributed run said anything for so long, the one that the others wait for is named, and the run ends.
    max_silence_seconds: float | None = None
    priority: int | None = None
    vm_priority: str | None = None
    #: Data for the script: name → a path or URL here, or an `Input` that says more.
    inputs: Mapping[str, Any] | None = None
    #: A percentage: every input is tried on a small part of it first.
    sample: str | float | None = None
    #: Names of secrets for the script; `VARIABLE=NAME` gives one under another name.
    secrets: Sequence[str] | None = None
    #: URLs or commands that are told when the run is over.
    notify: Sequence[str] | None = None
    #: How many checkpoints are kept, and the run whose checkpoints this one goes on from.
    keep_checkpoints: int | None = None
    from_checkpoint: str | None = None
    #: Parts of a loaded `.runconfig` that other releases know and we do not use: kept for saving.
    sections: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __setattr__(self, name: str, value: Any) -> None:
        known = {f.name for f in fields(self)}
        if name not in known:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}. {nearest(name, known)}".rstrip())
        if name == "target" and value is not None and not isinstance(value, str):
            value = value.name  # a compute target itself
        super().__setattr__(name, value)

    def save(
        self, path: str | Path | None = None, name: str | None = None, separate_environment_yaml: bool = False
    ) -> Path:
        """Write `NAME.runconfig` into `.azureml/` (or an existing `aml_config/`) of the folder `path`."""
        from shunter.sdk.runconfig_file import save

        return save(self, Path(path or "."), name, separate_environment_yaml)

    @classmethod
    def load(cls, path: str | Path = ".", name: str | None = None) -> RunConfiguration:
        """Read a `.runconfig`: the file itself, or the one called `name` of the folder `path`."""
        from shunter.sdk.runconfig_file import load

        return load(Path(path), name)

    @staticmethod
    def delete(path: str | Path, name: str) -> None:
        from shunter.sdk.runconfig_file import find

        find(Path(path), name).unlink()

    def to_wire(self) -> dict[str, Any]:
        """What a submit sends: only what was said."""
        found: dict[str, Any] = {
            "environment": self._environment_wire(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "env": {str(k): str(v) for k, v in (self.environment_variables or {}).items()} or None,
            "max_duration_seconds": positive("max_run_duration_seconds", self.max_run_duration_seconds),
            "node_count": positive("node_count", self.node_count),
            "cpus": positive("cpus", self.cpus),
            "gpus": positive("gpus", self.gpus, zero=True),
            "memory_bytes": positive("memory_bytes", self.memory_bytes),
            "grace_seconds": positive("grace_seconds", self.grace_seconds, zero=True),
            "max_attempts": positive("max_attempts", self.max_attempts),
            "communicator": self.communicator.lower() if self.communicator else None,
            "processes_per_node": positive("processes_per_node", self.processes_per_node),
            "max_silence_seconds": positive("max_silence_seconds", self.max_silence_seconds),
            "vm_size": self.vm_size,
            "vm_priority": self.vm_priority,
            "priority": self.priority,
            "framework": (self.framework or "python").lower(),
            "secrets": list(self.secrets) if self.secrets else None,
            "notify": list(self.notify) if self.notify else None,
            "keep_checkpoints": positive("keep_checkpoints", self.keep_checkpoints),
            "from_checkpoint": self.from_checkpoint,
        }
        return {k: v for k, v in found.items() if v is not None}

    def _environment_wire(self) -> dict[str, Any] | None:
        wire = environment_wire(self.environment)
        if not self.auto_prepare_environment:
            wire = {**(wire or {}), "prepare": False} if wire else wire
        return wire


@dataclass
class ScriptRunConfig:
    """A script with its folder, its arguments and its run configuration.

    With `run_config` given, target, environment and the rest come from there; `arguments` said here win.
    """

    source_directory: str | Path = "."
    script: str | None = None
    arguments: Sequence[Any] | None = None
    run_config: RunConfiguration | None = None
    target: Any = None
    compute_target: Any = None
    environment: Environment | str | None = None
    node_count: int | None = None
    communicator: str | None = None
    processes_per_node: int | None = None
    max_run_duration_seconds: float | None = None
    environment_variables: Mapping[str, str] | None = None
    tags: Mapping[str, str] | None = None
    cpus: float | None = None
    gpus: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.target is None:
            self.target = self.compute_target
        elif self.compute_target is not None and self.compute_target != self.target:
            raise UsageError(
                "target and compute_target name two different targets.", hint="They mean the same: give one."
            )
        given = self.run_config or RunConfiguration()
        values = {f.name: getattr(given, f.name) for f in fields(given)}
        values["sections"] = dict(given.sections)
        for name in ("script", "arguments", *(() if self.run_config else _SHARED)):
            said = getattr(self, name)
            if said is not None:
                values[name] = said
        if not self.run_config and self.target is not None:
            values["target"] = self.target
        self.run_config = RunConfiguration(**values)
        self.script = self.run_config.script
        self.arguments = self.run_config.arguments
        self.target = self.compute_target = self.run_config.target

    def __setattr__(self, name: str, value: Any) -> None:
        known = {f.name for f in fields(self)}
        if name not in known:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}. {nearest(name, known)}".rstrip())
        super().__setattr__(name, value)

    def to_wire(self) -> dict[str, Any]:
        assert self.run_config is not None
        return self.run_config.to_wire()


_SHARED = (
    "environment", "node_count", "communicator", "processes_per_node", "max_run_duration_seconds",
    "environment_variables", "tags", "cpus", "gpus", "memory_bytes",
)  # fmt: skip


def positive(name: str, value: float | None, zero: bool = False) -> float | None:
    """The number, if it is one that makes sense."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or (value == 0 and not zero):
        raise UsageError(f"{name} cannot be {value!r}.", hint="Give a number above zero.")
    return value
