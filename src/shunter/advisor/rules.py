"""The rules that give the words: what a monitored run shows, said in one sentence with its evidence.

Each rule is a row of a table; a rule whose figures were not measured is silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from shunter.advisor.values import Machine, Usage

Direction = Literal["up", "keep", "down", "another_family", "repeat", "fix"]


@dataclass(frozen=True)
class Reason:
    """One thing that the run showed: which rule, what it says, where it points, and the figures behind it."""

    rule: int
    says: str
    points_to: Direction
    evidence: Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    number: int
    says: str
    points_to: Direction
    holds: Callable[[Usage, Machine], bool]
    shows: tuple[str, ...]


def reasons_for(usage: Usage, machine: Machine) -> tuple[Reason, ...]:
    """All rules that hold, in the order of the table."""
    out = []
    for rule in RULES:
        try:
            holds = rule.holds(usage, machine)
        except TypeError:  # a figure that was not measured is None and compares with nothing
            continue
        if holds:
            out.append(Reason(rule.number, rule.says, rule.points_to, _evidence(rule.shows, usage, machine)))
    return tuple(out)


def memory_share(usage: Usage, machine: Machine) -> float:
    """Working set as a share of the machine's memory; TypeError when it was not measured."""
    return usage.memory_peak_gib / machine.memory_gib  # type: ignore[operator]


def _evidence(names: tuple[str, ...], usage: Usage, machine: Machine) -> dict[str, float]:
    values = {name: getattr(usage, name, None) for name in names}
    if "memory_share" in names and usage.memory_peak_gib is not None:
        values["memory_share"] = round(memory_share(usage, machine), 3)
    return {name: float(value) for name, value in values.items() if value is not None}


def _roomy(machine: Machine) -> bool:
    return machine.memory_gib / machine.vcpu >= 7


def _gpu(machine: Machine) -> bool:
    return machine.gpu_count > 0


def _parallel(usage: Usage) -> bool:
    return usage.busiest_thread is None or usage.busiest_thread < 0.9 or usage.cpu_mean > 0.5


# mypy knows that figures may be None; that is what reasons_for catches.
RULES: tuple[Rule, ...] = (
    Rule(1, "A GPU is held but the code does not use it; find out why.", "fix",
         lambda u, m: _gpu(m) and u.gpu_p95 < 0.05, ("gpu_p95",)),  # type: ignore[operator]
    Rule(2, "The GPU waits for input from the CPU: more vCPU per GPU, or more loader processes.", "another_family",
         lambda u, m: _gpu(m) and u.gpu_p95 >= 0.05 and u.gpu_mean < 0.5 and u.cpu_mean > 0.9,  # type: ignore[operator]
         ("gpu_mean", "cpu_mean")),
    Rule(3, "The GPU waits for storage.", "fix",
         lambda u, m: _gpu(m) and u.gpu_mean < 0.5 and u.iowait_mean > 0.2, ("gpu_mean", "iowait_mean")),  # type: ignore[operator]
    Rule(4, "GPU, CPU and GPU memory are half idle: a larger batch, else a smaller GPU.", "down",
         lambda u, m: _gpu(m) and u.gpu_p95 >= 0.05 and max(u.gpu_mean, u.cpu_mean) < 0.5 and u.gpu_memory_peak < 0.7,  # type: ignore
         ("gpu_mean", "cpu_mean", "gpu_memory_peak")),
    Rule(5, "GPU memory is nearly full: more GPU memory.", "up",
         lambda u, m: _gpu(m) and u.gpu_memory_peak > 0.9, ("gpu_memory_peak",)),  # type: ignore[operator]
    Rule(6, "The GPU is truly busy: a faster GPU, then two.", "up",
         lambda u, m: _gpu(m) and u.gpu_mean > 0.8, ("gpu_mean",)),  # type: ignore[operator]
    Rule(7, "Much of each step is spent on synchronisation: do not scale out.", "keep",
         lambda u, m: u.sync_share > 0.3, ("sync_share",)),  # type: ignore[operator]
    Rule(8, "One thread does the work: fewer, faster cores, or parallelise.", "another_family",
         lambda u, m: u.busiest_thread > 0.9 and u.cpu_mean < 1.5 / m.vcpu and m.vcpu >= 2,  # type: ignore[operator]
         ("busiest_thread", "cpu_mean")),
    Rule(9, "The CPU is busy and the work is parallel: scale up.", "up",
         lambda u, m: u.cpu_p95 > 0.8 and u.cpu_mean > 0.6 and _parallel(u), ("cpu_p95", "cpu_mean")),  # type: ignore[operator]
    Rule(10, "The working set fills the memory: a memory-optimised size.", "another_family",
         lambda u, m: memory_share(u, m) > 0.8 or (u.swap_peak or 0) > 0.01, ("memory_share", "swap_peak")),
    Rule(11, "A memory-optimised size whose memory is not used: leave it.", "another_family",
         lambda u, m: _roomy(m) and memory_share(u, m) < 0.4, ("memory_share",)),
    Rule(12, "CPU and memory are mostly idle: one size down.", "down",
         lambda u, m: u.cpu_p95 < 0.4 and memory_share(u, m) < 0.4, ("cpu_p95", "memory_share")),  # type: ignore[operator]
    Rule(13, "The host is noisy; repeat the run before concluding.", "repeat",
         lambda u, m: u.steal_mean > 0.05, ("steal_mean",)),  # type: ignore[operator]
    Rule(14, "The workers idle while the driver works: the code is not distributed.", "fix",
         lambda u, m: u.workers_cpu_mean < 0.1 and u.cpu_mean > 0.2, ("workers_cpu_mean", "cpu_mean")),  # type: ignore[operator]
    Rule(15, "Data was spilled: too little memory per task.", "another_family",
         lambda u, m: u.spilled_bytes > 0, ("spilled_bytes",)),  # type: ignore[operator]
    Rule(15, "A few tasks take much longer than the rest: skew; more nodes will not help.", "keep",
         lambda u, m: u.skew > 1.5, ("skew",)),  # type: ignore[operator]
    Rule(15, "Fewer tasks than cores: too many cores.", "down",
         lambda u, m: u.tasks_per_core < 1, ("tasks_per_core",)),  # type: ignore[operator]
    Rule(16, "Memory was still rising at the end: a leak, or not at its peak.", "repeat",
         lambda u, m: bool(u.memory_rising), ()),
    Rule(17, "The CPU waits for the disk: faster storage, or more memory for the page cache.", "another_family",
         lambda u, m: not _gpu(m) and u.iowait_mean > 0.2, ("iowait_mean", "disk_busy_mean")),  # type: ignore[operator]
)
