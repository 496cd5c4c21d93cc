"""What other workloads taught, packaged: examples per question, read on first use.

The files in `priors/` are made by `python -m shunter.advisor.learn DATA_DIR`; each notes its source and licence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import resources
from typing import Any, Protocol, TypeVar

from shunter.advisor.clusters import ClusterExample
from shunter.advisor.counts import CountExample, CountRun
from shunter.advisor.gpus import GpuExample, GpuRun
from shunter.advisor.memory import MemoryExample
from shunter.advisor.placement import PlacementExample
from shunter.advisor.samples import SampleExample, TimeSample
from shunter.advisor.similar import MachineExample
from shunter.advisor.values import Machine
from shunter.advisor.verdict import VerdictExample


class Example(Protocol):
    """What every example has."""

    @property
    def fingerprint(self) -> str:
        """Hash of the rows that it was made from."""

    @property
    def group(self) -> str:
        """What must be left out together."""


E = TypeVar("E", bound=Example)


@dataclass(frozen=True)
class Examples:
    """Examples of every kind; a field's name is also the name of its file."""

    machines: tuple[MachineExample, ...] = ()
    clusters: tuple[ClusterExample, ...] = ()
    memory: tuple[MemoryExample, ...] = ()
    verdicts: tuple[VerdictExample, ...] = ()
    samples: tuple[SampleExample, ...] = ()
    gpus: tuple[GpuExample, ...] = ()
    placements: tuple[PlacementExample, ...] = ()
    counts: tuple[CountExample, ...] = ()

    def joined(self, other: Examples) -> Examples:
        """These and those of the other that are not here; a fingerprint counts once."""
        merged = {}
        for each in fields(self):
            mine = getattr(self, each.name)
            have = {example.fingerprint for example in mine}
            merged[each.name] = mine + tuple(e for e in getattr(other, each.name) if e.fingerprint not in have)
        return Examples(**merged)


@lru_cache(maxsize=1)
def packaged_examples() -> Examples:
    """The examples that come with the package."""
    folder = resources.files("shunter.advisor").joinpath("priors")
    found = {}
    for each in fields(Examples):
        file = folder.joinpath(f"{each.name}.json")
        if file.is_file():
            found[each.name] = examples_from(each.name, json.loads(file.read_text())["examples"])
    return Examples(**found)


def others(examples: Sequence[E], group: str) -> list[E]:
    """The examples that have nothing to do with a workload: another group."""
    return [example for example in examples if example.group != group]


def examples_from(kind: str, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Examples of one kind from their JSON rows."""
    return tuple(_READERS[kind](row) for row in rows)


def _machine_example(row: Mapping[str, Any]) -> MachineExample:
    usage = {name: tuple(vector) for name, vector in row["usage"].items()}
    seconds, fastest = dict(row["seconds"]), dict(row.get("fastest", {}))
    return MachineExample(row["fingerprint"], row["group"], seconds, usage, tuple(row["numbers"]), fastest)


def _sample_example(row: Mapping[str, Any]) -> SampleExample:
    samples = tuple(TimeSample(**sample) for sample in row["samples"])
    machine = Machine(**row["machine"]) if row["machine"] else None
    return SampleExample(
        row["fingerprint"], row["group"], samples, row["full_size"], row["full_seconds"], machine, row["limit_seconds"]
    )


def _memory_example(row: Mapping[str, Any]) -> MemoryExample:
    pairs = (tuple(row[name]) if row.get(name) else None for name in ("committed_gib", "seen_gib"))
    sizes, peaks = tuple(row["sizes"]), tuple(row["peaks_gib"])
    return MemoryExample(row["fingerprint"], row["group"], sizes, peaks, row["memory_gib"], row["vcpu"], *pairs)


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "machines": _machine_example,
    "clusters": lambda r: ClusterExample(r["fingerprint"], r["group"], tuple(r["numbers"])),
    "memory": _memory_example,
    "verdicts": lambda r: VerdictExample(
        r["fingerprint"], r["group"], tuple(r["vector"]), r["faster_up"], r["slower_down"], r.get("steady_down")
    ),
    "samples": _sample_example,
    "gpus": lambda r: GpuExample(r["fingerprint"], r["group"], tuple(GpuRun(**run) for run in r["runs"])),
    "placements": lambda r: PlacementExample(r["fingerprint"], r["group"], tuple(r["growth"]), r["left_out_error"]),
    "counts": lambda r: CountExample(r["fingerprint"], r["group"], tuple(CountRun(**run) for run in r["runs"])),
}
