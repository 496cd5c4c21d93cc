"""Workloads like this one: how they behaved on machine types that this one has not seen.

Other users of a machine and a disk that has used up its credits only ever add time, so workloads are compared by
their fastest repetitions. What a workload did is taken from its eight numbers (see `clusters`) times how fast each
machine type is by and large: that leaves out the accidents of single runs.

Two views are averaged. Neighbours: the weighted median of what the workloads with the most similar probes did.
Physics: many variations of each workload's eight numbers, with as much work as the probes took, weighed by how well
they explain the probes. Start-up takes its seconds whatever the work, so how long the probes took says most about how
much a larger machine helps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from shunter.advisor.clusters import Candidate, cluster_table, parts
from shunter.advisor.clusters import log_seconds as cluster_log_seconds
from shunter.advisor.values import Array, Machine

# Places in a usage vector: the mean CPU share, and what likeness looks at (the others say the same again).
CPU = 0
LOOKED_AT = (0, 1, 2, 4, 5, 6, 7, 9, 10)
NEIGHBOUR_WIDTH, LIKENESS_WIDTH = 0.35, 0.25
# What differences between machines, and how long the probes took, weigh against the other features.
DIFFERENCE_WEIGHT, LEVEL_WEIGHT = 3.0, 10.0
# Log spread of the probes around what the physics says: of their difference, and of their level.
PROBE_NOISE, LEVEL_NOISE = 0.1, 0.15
VARIATIONS = 48
# What is this much less likely than the likeliest does not count (log).
TOO_FAR = 5.0
NEWTON_STEPS = 4
_STIR = np.array([0.0, 0.4, 0.4, 0.08, 0.3, 0.3, 0.3, 0.05])


@dataclass(frozen=True)
class MachineExample:
    """One workload that was measured on many machine types: seconds and the usage vector per machine name.

    `group` names what belongs together (the same program on other inputs), `fingerprint` its rows, `numbers` the
    workload in the physics of `clusters`. `seconds` are medians of repetitions, `fastest` the fastest of them (the
    same when they are not known).
    """

    fingerprint: str
    group: str
    seconds: Mapping[str, float]
    usage: Mapping[str, tuple[float, ...]]
    numbers: tuple[float, ...] = ()
    fastest: Mapping[str, float] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def log_fastest(self, name: str) -> float:
        """Log of the fastest repetition; NaN where the workload was not measured."""
        return math.log(self.fastest.get(name, self.seconds.get(name, math.nan)))


@dataclass(frozen=True)
class Measured:
    """The probes of a workload, in the order of the machine names: log seconds (median and fastest) and usages."""

    logs: tuple[float, ...]
    fastest: tuple[float, ...]
    vectors: tuple[tuple[float, ...], ...]

    @property
    def level(self) -> float:
        """Mean log of the fastest repetitions."""
        return sum(self.fastest) / len(self.fastest)

    def differences(self) -> list[float]:
        """Between machines: of the fastest times, and of the processor time, which a slow disk does not change."""
        busy = [log + math.log(max(v[CPU], 0.01)) for log, v in zip(self.logs, self.vectors, strict=True)]
        return [of[0] - other for of in (self.fastest, busy) for other in of[1:]]

    def row(self) -> list[float]:
        """The differences, then the level and the usages."""
        return [*self.differences(), self.level, *(vector[place] for vector in self.vectors for place in LOOKED_AT)]


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
        self._measured = [_measured(example, names) for example in self.examples]
        rows = np.array([measured.row() for measured in self._measured])
        self._centre, self._scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        self._weights = np.ones(rows.shape[1])
        differences = 2 * (len(names) - 1)
        self._weights[:differences] = DIFFERENCE_WEIGHT
        self._weights[differences] = LEVEL_WEIGHT
        self._rows = (rows - self._centre) / self._scale
        self._learn([by_name[name] for name in (*names, *self.outputs)])
        self.spread = self._left_out_spread()

    def log_seconds(self, measured: Measured, leave_out: str | None = None) -> Array:
        """Log seconds on each of the outputs; examples of the group `leave_out` are not looked at."""
        distance, allowed = self._distance(measured), self._allowed(leave_out)
        weights = np.exp(-(distance - distance[allowed].min()) / (2 * NEIGHBOUR_WIDTH**2)) * allowed
        found = self._near.median(weights)
        if len(self._owner):
            varied, belief = self._variations(measured, distance, allowed)
            found = 0.5 * (found + _Columns(varied).median(belief))
        return np.asarray(found + measured.level + self._usual)

    def draws(self, measured: Measured) -> tuple[Array, Array]:
        """What may happen on all outputs together: log seconds, one row per possibility, and their weights."""
        distance, allowed = self._distance(measured), self._allowed(None)
        if not len(self._owner):
            weights = np.exp(-(distance - distance.min()) / (2 * NEIGHBOUR_WIDTH**2))
            return self._near.values + measured.level + self._usual, weights / weights.sum()
        varied, weights = self._variations(measured, distance, allowed)
        return varied + measured.level + self._usual, weights / weights.sum()

    def _learn(self, machines: Sequence[Machine]) -> None:
        """What examples did on each machine, level taken out, and variations of those whose numbers are known."""
        probed = len(self.names)
        table = cluster_table([Candidate(machine, 1) for machine in machines])
        logs = np.array([[e.log_fastest(machine.name) for machine in machines] for e in self.examples])
        medians = np.array([[math.log(e.seconds.get(m.name, math.nan)) for m in machines] for e in self.examples])
        self._usual = float(np.nanmedian((medians - logs)[:, probed:]))
        with_numbers = [index for index, example in enumerate(self.examples) if len(example.numbers) == 8]
        self._owner = np.repeat(np.array(with_numbers, dtype=int), VARIATIONS)
        levels = np.array([measured.level for measured in self._measured])
        self._targets = medians[:, probed:] - levels[:, None]
        if with_numbers:
            numbers = np.array([self.examples[index].numbers for index in with_numbers])
            fitted = cluster_log_seconds(numbers, table)
            speed = _speeds(logs[with_numbers] - fitted)
            logs[with_numbers] = fitted + speed
            per_work, rest = parts(_vary(np.repeat(numbers, VARIATIONS, axis=0)), table)
            # One row per machine: there are few of them and many variations.
            self._per_work, self._rest = (np.ascontiguousarray((part * np.exp(speed)).T) for part in (per_work, rest))
        shapes = _without_level(logs, probed)[:, probed:]
        self._near = _Columns(np.where(np.isnan(shapes), np.nanmedian(shapes, axis=0), shapes))

    def _distance(self, measured: Measured) -> Array:
        off = (self._rows - (np.array(measured.row()) - self._centre) / self._scale) * self._weights
        return np.asarray((off**2).sum(axis=1) / (self._weights**2).sum())

    def _allowed(self, leave_out: str | None) -> Array:
        return np.array([example.group != leave_out for example in self.examples])

    def _variations(self, measured: Measured, distance: Array, allowed: Array) -> tuple[Array, Array]:
        """Variations of the likely examples with the work that the probes show: log seconds on the outputs, level
        taken out, and weights: likeness of their owners, and how well each tells the probes."""
        likeness = np.where(allowed, -distance / (2 * LIKENESS_WIDTH**2), -np.inf)[self._owner]
        likely = np.flatnonzero(likeness > likeness.max() - TOO_FAR)
        probed = len(self.names)
        probe_work, probe_rest = self._per_work[:probed, likely], self._rest[:probed, likely]
        work = _work(probe_work, probe_rest, measured.level)
        logs = np.log(work * probe_work + probe_rest)
        level = logs.mean(axis=0)
        off = ((logs - level - np.array(measured.fastest)[:, None] + measured.level) ** 2).sum(axis=0)
        belief = likeness[likely] - 2.5 * np.log1p(off / (2 * PROBE_NOISE**2))
        belief -= 2.5 * np.log1p((level - measured.level) ** 2 / (2 * LEVEL_NOISE**2))
        belief -= belief.max()
        kept = np.flatnonzero(belief > -TOO_FAR)
        taken = likely[kept]
        found = np.log(work[kept] * self._per_work[probed:, taken] + self._rest[probed:, taken]) - level[kept]
        return np.asarray(found.T), np.asarray(np.exp(belief[kept]))

    def _left_out_spread(self) -> Array:
        """Spread of each output that would have covered nine of ten examples when their group is left out."""
        if len({example.group for example in self.examples}) < 3:
            return np.full(len(self.outputs), 0.4)
        gaps = np.abs(
            [
                self.log_seconds(measured, example.group) - measured.level - target
                for example, measured, target in zip(self.examples, self._measured, self._targets, strict=True)
            ]
        )
        each = np.nanquantile(gaps, min(0.9 * (1 + 1 / len(gaps)), 1.0), axis=0)
        return np.asarray((0.5 * each + 0.5 * float(np.nanquantile(gaps, 0.9))) / 1.645)


@lru_cache(maxsize=64)
def similar_to(
    names: tuple[str, ...], machines: tuple[Machine, ...], examples: tuple[MachineExample, ...]
) -> Similar:
    """The same, kept for the next question about the same machines."""
    return Similar(names, machines, examples)


class _Columns:
    """Values whose columns are sorted once, for many weighted medians."""

    def __init__(self, values: Array) -> None:
        self.values = values
        self._order = np.argsort(values.T, axis=1)
        self._sorted = np.take_along_axis(values.T, self._order, axis=1)

    def median(self, weights: Array) -> Array:
        """Median of each column with weights for the rows."""
        passed = np.cumsum(weights[self._order], axis=1)
        where = np.minimum((passed < 0.5 * weights.sum()).sum(axis=1), len(self.values) - 1)
        return np.asarray(self._sorted[np.arange(len(self._sorted)), where])


def _measured(example: MachineExample, names: tuple[str, ...]) -> Measured:
    return Measured(
        tuple(math.log(example.seconds[name]) for name in names),
        tuple(example.log_fastest(name) for name in names),
        tuple(example.usage[name] for name in names),
    )


def _speeds(off: Array) -> Array:
    """Median of each column (machine); a machine that none of the workloads saw is as fast as the others are."""
    medians = np.array([np.median(known) if len(known) else math.nan for known in (x[~np.isnan(x)] for x in off.T)])
    return np.asarray(np.where(np.isnan(medians), np.nanmedian(medians), medians))


def _without_level(logs: Array, probed: int) -> Array:
    return np.asarray(logs - logs[:, :probed].mean(axis=1, keepdims=True))


def _work(per_work: Array, rest: Array, level: float) -> Array:
    """The work that brings the mean log seconds on the probed machines to the level.

    Newton's method from above; where the rest alone takes longer than the probes did, no work is little enough, and
    little is taken.
    """
    most = level - np.log(per_work).mean(axis=0)
    work = most
    for _ in range(NEWTON_STEPS):
        busy = np.exp(work) * per_work
        total = busy + rest
        slope = np.maximum((busy / total).mean(axis=0), 0.02)
        work = np.maximum(work - (np.log(total).mean(axis=0) - level) / slope, most - 6)
    return np.asarray(np.exp(work))


def _vary(numbers: Array) -> Array:
    """The numbers, each stirred a little; the work is not, for it only sets the level."""
    return np.asarray(numbers + np.random.default_rng(0).standard_normal(numbers.shape) * _STIR)
