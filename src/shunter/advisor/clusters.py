"""How long a workload takes on a cluster: work, waiting, talking, and memory that does not suffice.

    seconds = work / (cores * speed) * (1 + penalty * short(memory)) + start + talk * nodes

A workload is eight numbers (logs mostly); many such vectors, drawn from what other workloads looked like, are the
belief that a search updates with every probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from shunter.advisor.values import Array, Machine

WORK, START, TALK, SPEED, NEED, PENALTY, SHARPNESS, PARALLEL = range(8)
JITTER = np.array([1.5, 0.5, 0.5, 0.05, 0.3, 0.3, 0.3, 0.05])
_FIT_SD = np.array([1.5, 1.5, 1.5, 0.15, 1.0, 1.0, 0.7, 0.1])


@dataclass(frozen=True)
class Candidate:
    """A machine type and a number of nodes."""

    machine: Machine
    nodes: int

    @property
    def usd_per_second(self) -> float:
        """Price of the whole cluster; 1 when the catalog has no price, so that only time counts."""
        if self.machine.usd_per_hour is None:
            return 1.0
        return self.machine.usd_per_hour * self.nodes / 3600

    @property
    def memory_gib(self) -> float:
        """Memory of all nodes."""
        return self.machine.memory_gib * self.nodes


@dataclass(frozen=True)
class ClusterExample:
    """The eight numbers of one workload elsewhere."""

    fingerprint: str
    group: str
    numbers: tuple[float, ...]


def cluster_table(candidates: Sequence[Candidate]) -> Array:
    """Cores, memory per core against 4 GiB, total memory and nodes, one row per candidate."""
    return np.array(
        [
            [c.machine.vcpu * c.nodes, c.machine.memory_gib / c.machine.vcpu / 4, c.memory_gib, float(c.nodes)]
            for c in candidates
        ]
    )


def log_seconds(numbers: Array, table: Array) -> Array:
    """Log seconds of each workload (rows of numbers) on each candidate (rows of the table)."""
    per_work, rest = parts(numbers, table)
    return np.asarray(np.log(np.exp(numbers[:, WORK, None]) * per_work + rest))


def parts(numbers: Array, table: Array) -> tuple[Array, Array]:
    """Seconds per unit of work, and the seconds that come on top of the work; shaped as `log_seconds`."""
    cores, lean, _, nodes = table.T
    n = numbers[:, :, None]
    per_work = (1 + slowdown(numbers, table)) / (cores ** np.exp(n[:, PARALLEL]) * lean ** (-n[:, SPEED]))
    return np.asarray(per_work), np.asarray(np.exp(n[:, START]) + np.exp(n[:, TALK]) * nodes)


def log_busy(numbers: Array, table: Array) -> tuple[Array, Array]:
    """Log of the least and of the most CPU share that is to be seen.

    Work is computing, start and talk are waiting; what short memory adds may be either (work done again, or disk).
    """
    cores, lean, _, _ = table.T
    n = numbers[:, :, None]
    work = n[:, WORK] - np.exp(n[:, PARALLEL]) * np.log(cores) + n[:, SPEED] * np.log(lean)
    least = work - log_seconds(numbers, table)
    return np.asarray(least), np.asarray(least + np.log1p(slowdown(numbers, table)))


def slowdown(numbers: Array, table: Array) -> Array:
    """What the work takes more, as a share, because memory is short; 0 where it suffices."""
    memory = np.log(table[:, 2])
    n = numbers[:, :, None]
    excess = np.clip(np.exp(n[:, SHARPNESS]) * (memory - n[:, NEED]), -50, 50)
    return np.asarray(np.exp(n[:, PENALTY]) / (1 + np.exp(excess)))


def learn_cluster(
    fingerprint: str, group: str, candidates: Sequence[Candidate], seconds: Sequence[float], ended: Sequence[bool]
) -> ClusterExample:
    """The eight numbers that explain a workload measured on many clusters; those that did not end took longer."""
    table = cluster_table(candidates)
    truth = np.log(seconds)
    done = np.array(ended, dtype=bool)
    level = float(truth.mean())
    best: tuple[float, Array] | None = None
    for need in np.log([8.0, 60.0, 150.0, 320.0]):
        start = np.array([level + 3, level - 1, level - 4, 0.15, need, 0.5, 1.5, 0.0])

        def gaps(numbers: Array, start: Array = start) -> Array:
            off = log_seconds(numbers[None, :], table)[0] - truth
            return np.concatenate([np.where(done, off / 0.1, np.minimum(off, 0) / 0.3), (numbers - start) / _FIT_SD])

        found = optimize.least_squares(gaps, start, loss="soft_l1")
        if best is None or float(found.cost) < best[0]:
            best = (float(found.cost), np.asarray(found.x, dtype=float))
    assert best is not None
    return ClusterExample(fingerprint, group, tuple(float(x) for x in best[1]))


def draw_workloads(
    examples: Sequence[ClusterExample], count: int, rng: np.random.Generator, strangers: float, needless: float
) -> Array:
    """Workloads as they might be: some like one of the examples, a share of strangers unlike any of them."""
    known = np.array([example.numbers for example in sorted(examples, key=lambda e: e.fingerprint)] or [_TYPICAL])
    relative = known.copy()
    relative[:, [START, TALK]] -= known[:, [WORK]]
    drawn = relative[rng.integers(len(known), size=count)] + rng.standard_normal((count, 8)) * JITTER
    spread = relative.std(axis=0) + np.array([0, 0.3, 0.3, 0.03, 0, 0.3, 0.3, 0.03])
    strange = relative.mean(axis=0) + rng.standard_normal((count, 8)) * spread
    strange[:, NEED] = rng.uniform(np.log(10.0), np.log(1500.0), count)
    strange[rng.random(count) < needless, NEED] = -3.0
    strange[:, PENALTY] = rng.normal(1.3, 0.7, count)
    strange[:, SHARPNESS] = rng.normal(2.2, 0.7, count)
    chosen = np.where((rng.random(count) < strangers)[:, None], strange, drawn)
    chosen[:, WORK] = rng.normal(9.5, 2.0, count)
    chosen[:, [START, TALK]] += chosen[:, [WORK]]
    return np.asarray(chosen)


_TYPICAL = (9.5, 5.5, 1.2, 0.12, 3.0, 0.5, 1.6, 0.03)
