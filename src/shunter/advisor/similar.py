"""Workloads like this one: how they behaved on machine types that this one has not seen.

Two views are averaged. Neighbours: the weighted median of what the workloads with the most similar probes did.
Physics: many variations of each workload's eight numbers (see `clusters`), weighed by how well they explain the
probes; they know what happens where memory runs short, which neighbours show only if one of them had it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.clusters import NEED, PENALTY, SHARPNESS, START, TALK, WORK, Candidate, cluster_table, slowdown
from shunter.advisor.clusters import log_seconds as cluster_log_seconds
from shunter.advisor.values import Array, Machine

# Place of the memory share in a usage vector.
MEMORY_SHARE = 5
# A working set of this share of the memory fills it; of full machines this part is slowed by it.
FULL, SLOWED = 0.75, 0.9
NEIGHBOUR_WIDTH, LIKENESS_WIDTH = 0.35, 0.5
RATIO_WEIGHT = 2.0
PROBE_NOISE = 0.17
VARIATIONS = 48
STRANGERS = 0.2
_STIR = np.array([0.3, 0.4, 0.4, 0.08, 0.3, 0.3, 0.3, 0.05])


@dataclass(frozen=True)
class MachineExample:
    """One workload that was measured on many machine types: seconds and the usage vector per machine name.

    `group` names what belongs together (the same program on other inputs), `fingerprint` its rows, `numbers` the
    workload in the physics of `clusters`.
    """

    fingerprint: str
    group: str
    seconds: Mapping[str, float]
    usage: Mapping[str, tuple[float, ...]]
    numbers: tuple[float, ...] = ()

    def __hash__(self) -> int:
        return hash(self.fingerprint)


@dataclass(frozen=True)
class Measured:
    """The probes of a workload, in the order of the machine names: log seconds and usage vectors."""

    logs: tuple[float, ...]
    vectors: tuple[tuple[float, ...], ...]

    @property
    def level(self) -> float:
        """Mean log seconds."""
        return sum(self.logs) / len(self.logs)

    def row(self) -> list[float]:
        """Level, differences between machines, then the usages."""
        differences = [log - self.level for log in self.logs[1:]]
        return [self.level, *differences, *(value for vector in self.vectors for value in vector)]


class Similar:
    """Everything that examples say to workloads probed on the machines `names`."""

    def __init__(self, names: tuple[str, ...], machines: Sequence[Machine], examples: Sequence[MachineExample]) -> None:
        self.names = names
        self.examples = [e for e in examples if all(name in e.seconds and name in e.usage for name in names)]
        enough = max(3, len(self.examples) // 2)
        known = [m for m in machines if sum(m.name in e.seconds for e in self.examples) >= enough]
        self.outputs = tuple(machine.name for machine in known if machine.name not in names)
        by_name = {machine.name: machine for machine in known}
        self.is_enough = len(self.examples) >= 3 and bool(self.outputs) and all(name in by_name for name in names)
        if not self.is_enough:
            return
        self._measured = [
            Measured(tuple(math.log(e.seconds[n]) for n in names), tuple(e.usage[n] for n in names))
            for e in self.examples
        ]
        rows = np.array([measured.row() for measured in self._measured])
        self._centre, self._scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        self._scale[1 : len(names)] /= RATIO_WEIGHT
        self._rows = (rows - self._centre) / self._scale
        self._targets = np.array(
            [
                [math.log(e.seconds[n]) - m.level if n in e.seconds else math.nan for n in self.outputs]
                for e, m in zip(self.examples, self._measured, strict=True)
            ]
        )
        self._targets = np.where(np.isnan(self._targets), np.nanmedian(self._targets, axis=0), self._targets)
        self._vary([by_name[name] for name in (*names, *self.outputs)])
        self.spread = self._left_out_spread()

    def log_seconds(self, measured: Measured, leave_out: str | None = None) -> Array:
        """Log seconds on each of the outputs; examples of the group `leave_out` are not looked at."""
        row = (np.array(measured.row()) - self._centre) / self._scale
        distance = ((self._rows - row) ** 2).mean(axis=1)
        allowed = np.array([example.group != leave_out for example in self.examples])
        weights = np.exp(-(distance - distance[allowed].min()) / (2 * NEIGHBOUR_WIDTH**2)) * allowed
        near = weighted_median(self._targets, weights)
        if not len(self._owner):
            return near + measured.level
        physics = weighted_median(self._shapes, self._belief(measured, distance, allowed))
        return np.asarray(0.5 * (near + physics) + measured.level)

    def _vary(self, machines: Sequence[Machine]) -> None:
        """Variations of each example's numbers, and what they would take on each machine, level taken out."""
        with_numbers = [index for index, example in enumerate(self.examples) if len(example.numbers) == 8]
        self._owner = np.repeat(np.array(with_numbers, dtype=int), VARIATIONS)
        if not with_numbers:
            return
        rng = np.random.default_rng(0)
        numbers = np.array([self.examples[index].numbers for index in self._owner])
        numbers[:, [START, TALK]] -= numbers[:, [WORK]]
        count = len(numbers)
        numbers += rng.standard_normal((count, 8)) * _STIR
        strange = rng.random(count) < STRANGERS
        numbers[strange, NEED] = rng.uniform(math.log(2.0), math.log(60.0), int(strange.sum()))
        numbers[strange, PENALTY] = rng.normal(1.3, 0.7, int(strange.sum()))
        numbers[strange, SHARPNESS] = rng.normal(2.2, 0.7, int(strange.sum()))
        numbers[:, WORK] = np.array([self._measured[index].level + 1.2 for index in self._owner])
        numbers[:, [START, TALK]] += numbers[:, [WORK]]
        table = cluster_table([Candidate(machine, 1) for machine in machines])
        logs = cluster_log_seconds(numbers, table)
        probed = len(self.names)
        level = logs[:, :probed].mean(axis=1, keepdims=True)
        self._probe_shapes = logs[:, :probed] - level
        self._shapes = logs[:, probed:] - level
        self._short = slowdown(numbers, table[:probed]) > 0.3

    def _belief(self, measured: Measured, distance: Array, allowed: Array) -> Array:
        logs = -distance[self._owner] / (2 * LIKENESS_WIDTH**2)
        shape = np.array(measured.logs) - measured.level
        if len(shape) > 1:
            off = ((self._probe_shapes - shape) ** 2).sum(axis=1) * 2 / PROBE_NOISE**2
            logs -= 2.5 * np.log1p(off / 4)
        for column, vector in enumerate(measured.vectors):
            full = vector[MEMORY_SHARE] > FULL
            chance = SLOWED if full else 0.05
            logs += np.log(np.where(self._short[:, column], chance, 1 - chance))
        logs = np.where(allowed[self._owner], logs, -np.inf)
        return np.asarray(np.exp(logs - logs.max()))

    def _left_out_spread(self) -> Array:
        """Spread of each output that would have covered nine of ten examples when their group is left out."""
        if len({example.group for example in self.examples}) < 3:
            return np.full(len(self.outputs), 0.4)
        gaps = np.array(
            [
                self.log_seconds(measured, example.group) - measured.level - target
                for example, measured, target in zip(self.examples, self._measured, self._targets, strict=True)
            ]
        )
        each = np.quantile(np.abs(gaps), min(0.9 * (1 + 1 / len(gaps)), 1.0), axis=0)
        return np.asarray((0.5 * each + 0.5 * float(np.quantile(np.abs(gaps), 0.9))) / 1.645)


@lru_cache(maxsize=64)
def similar_to(
    names: tuple[str, ...], machines: tuple[Machine, ...], examples: tuple[MachineExample, ...]
) -> Similar:
    """The same, kept for the next question about the same machines."""
    return Similar(names, machines, examples)


def weighted_median(values: Array, weights: Array) -> Array:
    """Median of each column with weights for the rows."""
    order = np.argsort(values, axis=0)
    passed = np.cumsum(weights[order], axis=0)
    where = (passed < 0.5 * weights.sum()).sum(axis=0)
    where = np.minimum(where, len(values) - 1)
    return np.asarray(np.take_along_axis(values, order, axis=0)[where, np.arange(values.shape[1])])
