"""Time to train on many accelerators from fewer: power law and Amdahl's law, weighed as other jobs taught."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# Seconds fall with count ** PLAIN_SLOPE when only one count was tried: the middle of public results.
PLAIN_SLOPE = -0.8
PLAIN_WEIGHTS = (0.05, 0.5, 0.5)


@dataclass(frozen=True)
class CountRun:
    """Seconds to train on so many accelerators."""

    count: float
    seconds: float

    def __post_init__(self) -> None:
        positive(self.count, "count")
        positive(self.seconds, "seconds")


@dataclass(frozen=True)
class CountExample:
    """One job elsewhere over its counts."""

    fingerprint: str
    group: str
    runs: tuple[CountRun, ...]


def predict_at_count(runs: Sequence[CountRun], count: float, examples: Sequence[CountExample] = ()) -> Estimate:
    """Seconds at a larger count, from the best run at each smaller one."""
    positive(count, "count")
    best = _best(runs)
    if not best:
        raise TooFewProbes("no count was tried", hint="Start with one accelerator.")
    last = best[-1]
    away = math.log(count / last.count)
    if len(best) == 1:
        mean = math.log(last.seconds) + PLAIN_SLOPE * away
        return estimate_from_log(mean, 0.05 + 0.25 * abs(away), notes=("from one count only",))
    weights, spread = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    row = _row(best[-2:], count)
    mean = math.log(last.seconds) + float(row @ weights)
    sd = spread * _reach(best[-2:], count)
    notes = ("far beyond the counts tried",) if away > math.log(16) else ()
    return estimate_from_log(mean, sd, notes=notes)


def _best(runs: Sequence[CountRun]) -> list[CountRun]:
    fastest: dict[float, float] = {}
    for run in runs:
        fastest[run.count] = min(run.seconds, fastest.get(run.count, math.inf))
    return [CountRun(count, fastest[count]) for count in sorted(fastest)]


def _row(pair: Sequence[CountRun], count: float) -> Array:
    """Log change of the seconds under: a unit slope, the slope just seen, and Amdahl's law."""
    few, many = pair
    away = math.log(count / many.count)
    slope = math.log(many.seconds / few.seconds) / math.log(many.count / few.count)
    slope = min(max(slope, -1.1), 0.3)
    shared = (few.seconds - many.seconds) / (1 / few.count - 1 / many.count)
    amdahl = slope * away
    if shared > 0:
        serial = max(many.seconds - shared / many.count, 0.0)
        amdahl = math.log((shared / count + serial) / many.seconds)
    return np.array([away, slope * away, amdahl])


def _reach(pair: Sequence[CountRun], count: float) -> float:
    few, many = pair
    away, seen = math.log(count / many.count), math.log(many.count / few.count)
    return 0.05 + 0.15 * away + 0.1 * max(away - seen, 0.0)


@lru_cache(maxsize=64)
def _learn(examples: tuple[CountExample, ...]) -> tuple[Array, float]:
    rows, truth, weight, reach = [], [], [], []
    for example in examples:
        triples = list(itertools.combinations(_best(example.runs), 3))
        for few, many, target in triples:
            rows.append(_row((few, many), target.count))
            truth.append(math.log(target.seconds / many.seconds))
            weight.append(1 / len(triples))
            reach.append(_reach((few, many), target.count))
    if len(rows) < 8:
        return np.array(PLAIN_WEIGHTS), 1.0
    design, wanted, share = np.array(rows), np.array(truth), np.array(weight)
    found = np.array(PLAIN_WEIGHTS)
    for _ in range(30):
        off = np.abs(wanted - design @ found)
        robust = share / np.maximum(off, 0.05)
        ridge = 0.5 * np.eye(3)
        found = np.linalg.solve(
            design.T @ (design * robust[:, None]) + ridge,
            design.T @ (robust * wanted) + ridge @ np.array(PLAIN_WEIGHTS),
        )
    scaled = np.abs(wanted - design @ found) / np.array(reach)
    order = np.argsort(scaled)
    passed = np.cumsum(share[order]) / share.sum()
    return found, float(scaled[order][int(np.searchsorted(passed, 0.9))]) / 1.645
