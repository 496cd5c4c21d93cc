"""Peak memory at full size from small samples of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# Of the growth along the straight line this part comes: most programs start to spill or to reuse before the end.
FOLLOWED = 0.9
# Samples whose sizes differ by less are repetitions of one size.
SAME_SIZE = 0.0005
# Log growth of the peak per log growth of the data, before anything is measured, and its spread.
USUAL_GROWTH, GROWTH_SPREAD = 0.1, 0.3
# Log spread of a measured peak over repetitions.
PEAK_NOISE = 0.03
# Where a peak already passed what others reached on such a machine, this part of the growth is still expected.
BEYOND = 0.3
# What covered the worst known case is widened by this: the next one may be worse.
SAFETY = 1.1
# How much more a reserve leaves where repetitions differ, per log of largest over smallest peak.
RESTLESS = 3.0
# A reserve is at most this much above what others reached on such a machine.
ABOVE_REACHED = 1.15
# Without other workloads: log spread of the peak, and log distance from the largest growth to what to reserve.
PLAIN_SPREAD, PLAIN_WORST = 0.04, 0.12
# Other workloads that grew less than the line do not make a reserve tighter than this.
LEAST_WORST = 0.04


@dataclass(frozen=True)
class MemorySample:
    """Peak working set at one data size, and the most that programs had asked for (`Committed_AS`), if it is known."""

    data_size: float
    peak_gib: float
    committed_gib: float | None = None

    def __post_init__(self) -> None:
        positive(self.data_size, "data_size")
        positive(self.peak_gib, "peak_gib")
        if self.committed_gib is not None:
            positive(self.committed_gib, "committed_gib")


@dataclass(frozen=True)
class MemoryExample:
    """One workload on one machine at three growing sizes: how peaks grew elsewhere.

    `committed_gib` are for the two smaller sizes, `seen_gib` the smallest and the largest peak at the second.
    """

    fingerprint: str
    group: str
    sizes: tuple[float, float, float]
    peaks_gib: tuple[float, float, float]
    memory_gib: float
    vcpu: float | None = None
    committed_gib: tuple[float, float] | None = None
    seen_gib: tuple[float, float] | None = None


@dataclass(frozen=True)
class MemoryForecast:
    """The peak, and what to reserve so that the run does not run out of memory; 90 % interval around the peak."""

    peak_gib: Estimate
    reserve_gib: float


def predict_peak_memory(
    samples: Sequence[MemorySample],
    data_size: float,
    memory_gib: float,
    examples: Sequence[MemoryExample] = (),
    vcpu: float | None = None,
) -> MemoryForecast:
    """Peak at `data_size` on a machine with `memory_gib`, from samples at smaller sizes on the same machine.

    With one size the growth is unknown: between none and proportional, and the interval says so. Repetitions of a size
    are averaged. Which pages a heap has touched is partly chance, what it has asked for is less so: tell it too. With
    `vcpu`, what other workloads reached on the same shape of machine is where growth ends: heaps are set by the machine.
    """
    if not samples:
        raise TooFewProbes("no memory was measured", hint="Run on a small sample of the data first.")
    positive(data_size, "data_size")
    positive(memory_gib, "memory_gib")
    repeated, rest = _largest(samples)
    last = _mean(repeated)
    ratio = math.log(data_size / last.data_size)
    if not rest:
        middle = max(ratio, 0.0) * 0.3
        sd = 0.06 + 0.35 * abs(ratio)
        peak = estimate_from_log(math.log(last.peak_gib) + middle, sd, notes=("growth unknown: one size only",))
        return MemoryForecast(peak, min(peak.high, max(memory_gib, peak.median)))
    before = _mean(_largest(rest)[0])
    seen = [sample.peak_gib for sample in repeated]
    known = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    rows = _Rows(
        np.array([[before.data_size, last.data_size, data_size]]),
        np.array([[before.peak_gib, last.peak_gib]]),
        np.array([[before.committed_gib or math.nan, last.committed_gib or math.nan]]),
        np.array([[min(seen), max(seen)]]),
    )
    reached = known.reached(memory_gib, vcpu)
    growth, most = (float(each[0]) for each in _growth(rows, np.array([reached])))
    growth = min(growth, max(math.log(memory_gib / last.peak_gib), 0.0))
    sd = known.spread * float(_uncertainty(rows)[0])
    notes = ("far beyond the samples",) if ratio > 2 * math.log(last.data_size / before.data_size) + 1 else ()
    peak = estimate_from_log(math.log(last.peak_gib) + growth, sd, notes=notes)
    reserve = max(max(seen) * math.exp(most + known.worst * float(_restless(rows)[0])), peak.high)
    # Hardly more than what others reached on such a machine, unless this one is already there.
    limit = max(reached, *seen) * ABOVE_REACHED if reached != memory_gib else math.inf
    return MemoryForecast(peak, max(min(reserve, limit), peak.median))


def _largest(samples: Sequence[MemorySample]) -> tuple[list[MemorySample], list[MemorySample]]:
    """The repetitions of the largest size, and the samples of smaller sizes."""
    size = max(sample.data_size for sample in samples) * (1 - SAME_SIZE)
    return [s for s in samples if s.data_size >= size], [s for s in samples if s.data_size < size]


def _mean(samples: Sequence[MemorySample]) -> MemorySample:
    asked = [sample.committed_gib for sample in samples if sample.committed_gib is not None]
    committed = typical(asked) if len(asked) == len(samples) else None
    size, peak = max(s.data_size for s in samples), typical([s.peak_gib for s in samples])
    return MemorySample(size, peak, committed)


def typical(values: Sequence[float]) -> float:
    """Their geometric mean, in whatever order they come."""
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


class _Rows(NamedTuple):
    """Workloads, one per row: three sizes; mean peaks and committed memory at two; least and largest peak at the second."""

    sizes: Array
    peaks: Array
    committed: Array
    seen: Array


@dataclass(frozen=True)
class _Known:
    """The shape of machine and the peak of every example; how far off the growth was elsewhere."""

    shapes: tuple[tuple[float, float | None, float, str], ...] = ()
    spread: float = PLAIN_SPREAD
    worst: float = PLAIN_WORST

    def reached(self, memory_gib: float, vcpu: float | None, leave_out: str | None = None) -> float:
        """The largest peak of other workloads on this shape of machine; its memory when none is known."""
        peaks = [
            peak
            for memory, cores, peak, group in self.shapes
            if abs(math.log(memory / memory_gib)) < 0.1 and vcpu is not None and cores == vcpu and group != leave_out
        ]
        return max(peaks, default=memory_gib)


def _lines(rows: _Rows) -> tuple[Array, Array]:
    """Log growth along the line through the two samples: where peak and committed memory both grow, and the larger."""
    peak = np.expm1(_grown(rows.sizes, rows.peaks))
    committed = np.expm1(_grown(rows.sizes, rows.committed)) * rows.committed[:, 1] / rows.peaks[:, 1]
    committed = np.where(np.isnan(committed), peak, committed)
    return np.log1p(np.sqrt(peak * committed)), np.log1p(np.maximum(peak, committed))


def _grown(sizes: Array, measured: Array) -> Array:
    """Log growth along one line, as far as the difference between the samples is more than noise."""
    first, second, third = sizes.T
    seen = np.log(second / first)
    trust = (seen * GROWTH_SPREAD) ** 2 / ((seen * GROWTH_SPREAD) ** 2 + 2 * PEAK_NOISE**2)
    grown = trust * np.log(measured[:, 1] / measured[:, 0]) + (1 - trust) * USUAL_GROWTH * seen
    return np.asarray(np.log1p(-np.expm1(-np.maximum(grown, 0.0)) / (second - first) * np.maximum(third - second, 0.0)))


def _growth(rows: _Rows, reached: Array) -> tuple[Array, Array]:
    """Log growth to the asked size: of the mean peak at the second sample as expected, of its largest at most."""

    def ended(growth: Array, start: Array, beyond: float) -> Array:
        room = np.log(reached / start)
        return np.asarray(np.where(room > 0, np.minimum(growth, room), beyond * growth))

    expected, most = _lines(rows)
    return ended(FOLLOWED * expected, rows.peaks[:, 1], BEYOND), ended(FOLLOWED * most, rows.seen[:, 1], 1.0)


def _uncertainty(rows: _Rows) -> Array:
    ahead = np.abs(np.log(rows.sizes[:, 2] / rows.sizes[:, 1]))
    return np.asarray(1 + np.minimum(_lines(rows)[0], 0.4) + ahead)


def _restless(rows: _Rows) -> Array:
    return np.asarray(1 + RESTLESS * np.log(rows.seen[:, 1] / rows.seen[:, 0]))


@lru_cache(maxsize=64)
def _learn(examples: tuple[MemoryExample, ...]) -> _Known:
    shapes = tuple((e.memory_gib, e.vcpu, max(e.peaks_gib), e.group) for e in examples)
    plain = _Known(shapes)
    if len(examples) < 5 or len({example.group for example in examples}) < 2:
        return plain
    peaks = np.array([e.peaks_gib for e in examples])
    rows = _Rows(
        np.array([e.sizes for e in examples]),
        peaks[:, :2],
        np.array([e.committed_gib or (math.nan, math.nan) for e in examples]),
        np.array([e.seen_gib or (e.peaks_gib[1], e.peaks_gib[1]) for e in examples]),
    )
    reached = np.array([plain.reached(e.memory_gib, e.vcpu, e.group) for e in examples])
    expected, most = _growth(rows, reached)
    gaps = (np.log(peaks[:, 2] / peaks[:, 1]) - expected) / _uncertainty(rows)
    short = (np.log(peaks[:, 2] / rows.seen[:, 1]) - most) / _restless(rows)
    spread = max(float(np.quantile(np.abs(gaps), 0.9)) / 1.645, 1e-3)
    return _Known(shapes, spread, SAFETY * max(float(short.max()), LEAST_WORST))
