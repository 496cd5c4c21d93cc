"""Peak memory at full size from small samples of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# Of the growth along the straight line this part comes: most programs start to spill or to reuse before the end.
FOLLOWED = 0.8
# Log growth of the peak per log growth of the data, before anything is measured, and its spread.
USUAL_GROWTH, GROWTH_SPREAD = 0.1, 0.3
# Log spread of a measured peak over repetitions.
PEAK_NOISE = 0.03
# Where a peak already passed what others reached on such a machine, this part of the growth still comes.
BEYOND = 0.3
# What covered the worst known case is widened by this: the next one may be worse.
SAFETY = 1.1
# A reserve is at most this much above what others reached on such a machine.
ABOVE_REACHED = 1.15
# Without other workloads: log spread, and spreads from the middle to what to reserve.
PLAIN_SPREAD, PLAIN_WORST = 0.04, 3.0


@dataclass(frozen=True)
class MemorySample:
    """Peak working set at one data size."""

    data_size: float
    peak_gib: float

    def __post_init__(self) -> None:
        positive(self.data_size, "data_size")
        positive(self.peak_gib, "peak_gib")


@dataclass(frozen=True)
class MemoryExample:
    """One workload on one machine at three growing sizes: how peaks grew elsewhere."""

    fingerprint: str
    group: str
    sizes: tuple[float, float, float]
    peaks_gib: tuple[float, float, float]
    memory_gib: float
    vcpu: float | None = None


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

    With one sample the growth is unknown: between none and proportional, and the interval says so. With `vcpu`, what
    other workloads reached on the same shape of machine is where growth ends: heaps are set by the machine.
    """
    if not samples:
        raise TooFewProbes("no memory was measured", hint="Run on a small sample of the data first.")
    positive(data_size, "data_size")
    positive(memory_gib, "memory_gib")
    ordered = sorted(samples, key=lambda sample: (sample.data_size, sample.peak_gib))
    last = ordered[-1]
    smaller = [sample for sample in ordered if sample.data_size < last.data_size * 0.9995]
    ratio = math.log(data_size / last.data_size)
    if not smaller:
        middle = max(ratio, 0.0) * 0.3
        sd = 0.06 + 0.35 * abs(ratio)
        peak = estimate_from_log(math.log(last.peak_gib) + middle, sd, notes=("growth unknown: one size only",))
        return MemoryForecast(peak, min(peak.high, max(memory_gib, peak.median)))
    before = smaller[-1]
    known = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    row = np.array([[before.data_size, last.data_size, data_size, before.peak_gib, last.peak_gib]])
    reached = known.reached(memory_gib, vcpu)
    growth = float(_growth(row, np.array([reached]))[0])
    growth = min(growth, max(math.log(memory_gib / last.peak_gib), 0.0))
    sd = known.spread * float(_uncertainty(row)[0])
    notes = ("far beyond the samples",) if ratio > 2 * math.log(last.data_size / before.data_size) + 1 else ()
    peak = estimate_from_log(math.log(last.peak_gib) + growth, sd, notes=notes)
    # Hardly more than what others reached on such a machine, unless this one is already there.
    most = max(reached, last.peak_gib) * ABOVE_REACHED if reached != memory_gib else math.inf
    return MemoryForecast(peak, max(min(peak.median * math.exp(known.worst * sd), most), peak.median))


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


def _line(rows: Array) -> Array:
    """Log growth along the line through the two samples, as far as their difference is more than noise."""
    first, second, third, low, high = rows.T
    seen = np.log(second / first)
    trust = (seen * GROWTH_SPREAD) ** 2 / ((seen * GROWTH_SPREAD) ** 2 + 2 * PEAK_NOISE**2)
    grown = np.maximum(trust * np.log(high / low) + (1 - trust) * USUAL_GROWTH * seen, 0.0)
    return np.asarray(np.log1p(-np.expm1(-grown) / (second - first) * np.maximum(third - second, 0.0)))


def _growth(rows: Array, reached: Array) -> Array:
    """Log growth of the peak from the second sample to the asked size."""
    growth = FOLLOWED * _line(rows)
    room = np.log(reached / rows[:, 4])
    return np.asarray(np.where(room > 0, np.minimum(growth, room), BEYOND * growth))


def _uncertainty(rows: Array) -> Array:
    return np.asarray(1 + np.minimum(_line(rows), 0.4) + np.abs(np.log(rows[:, 2] / rows[:, 1])))


@lru_cache(maxsize=64)
def _learn(examples: tuple[MemoryExample, ...]) -> _Known:
    shapes = tuple((e.memory_gib, e.vcpu, max(e.peaks_gib), e.group) for e in examples)
    plain = _Known(shapes)
    if len(examples) < 5 or len({example.group for example in examples}) < 2:
        return plain
    rows = np.array([[*e.sizes, e.peaks_gib[0], e.peaks_gib[1]] for e in examples])
    reached = np.array([plain.reached(e.memory_gib, e.vcpu, e.group) for e in examples])
    truth = np.log([e.peaks_gib[2] / e.peaks_gib[1] for e in examples])
    gaps = (truth - _growth(rows, reached)) / _uncertainty(rows)
    spread = max(float(np.quantile(np.abs(gaps), 0.9)) / 1.645, 1e-3)
    return _Known(shapes, spread, max(SAFETY * float(gaps.max()) / spread, 2.0))
