"""Peak memory at full size from small samples of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.similar import weighted_median
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# Of the growth along a straight line this part is taken as given; what is added is learned.
FOLLOWED = 0.5
LIKENESS_WIDTH = 0.8


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
) -> MemoryForecast:
    """Peak at `data_size` on a machine with `memory_gib`, from samples at smaller sizes on the same machine.

    With one sample the growth is unknown: between none and proportional, and the interval says so.
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
    row = np.array([[before.data_size, last.data_size, data_size, before.peak_gib, last.peak_gib, memory_gib]])
    known = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    growth = float(_followed(row)[0]) + known.correction(row)
    room = math.log(memory_gib / last.peak_gib)
    growth = min(growth, max(room, 0.0))
    sd = known.spread * float(_uncertainty(row)[0])
    notes = ("far beyond the samples",) if ratio > 2 * math.log(last.data_size / before.data_size) + 1 else ()
    peak = estimate_from_log(math.log(last.peak_gib) + growth, sd, notes=notes)
    return MemoryForecast(peak, peak.median * math.exp(known.worst * sd))


@dataclass(frozen=True)
class _Known:
    """How much further than half the straight line memory grew elsewhere, by likeness; and how far off that was."""

    rows: Array
    rest: Array
    groups: tuple[str, ...]
    spread: float = 0.06
    worst: float = 3.0

    def correction(self, row: Array, leave_out: str | None = None) -> float:
        """Weighted median of the rest; without other workloads, the straight line is trusted a little more."""
        if not len(self.rows):
            return 0.3 * float(_straight(row)[0])
        distance = ((_features(self.rows) - _features(row)) ** 2).sum(axis=1) / 3
        weights = np.exp(-distance / (2 * LIKENESS_WIDTH**2)) + 1e-9
        weights *= np.array([group != leave_out for group in self.groups], dtype=float)
        return float(weighted_median(self.rest[:, None], weights)[0])


def _straight(rows: Array) -> Array:
    """Log growth of the peak along the line through the two samples; shrinking is taken as noise."""
    first, second, third, low, high, _ = rows.T
    reached = high + (high - low) / (second - first) * (third - second)
    return np.asarray(np.clip(np.log(np.maximum(reached, high) / high), 0.0, 0.6))


def _followed(rows: Array) -> Array:
    return FOLLOWED * _straight(rows)


def _features(rows: Array) -> Array:
    first, second, third, low, high, memory = rows.T
    bent = np.log(high / low) / np.log(second / first) * np.log(third / second)
    further = np.log(third / second)
    return np.stack(
        [
            _straight(rows) / 0.1,
            np.clip(bent, -0.3, 0.8) / 0.1,
            high / memory / 0.2,
            further / 0.5,
        ],
        axis=1,
    )


def _uncertainty(rows: Array) -> Array:
    first, second, third, low, high, _ = rows.T
    seen = np.abs(np.log(high / low)) * np.log(third / second) / np.maximum(np.log(second / first), 0.02)
    return np.asarray(0.6 + 3 * np.minimum(seen, 0.4) + 0.4 * np.log(third / second))


@lru_cache(maxsize=64)
def _learn(examples: tuple[MemoryExample, ...]) -> _Known:
    groups = tuple(example.group for example in examples)
    if len(examples) < 5 or len(set(groups)) < 2:
        return _Known(np.empty((0, 6)), np.empty(0), ())
    rows = np.array([[*e.sizes, e.peaks_gib[0], e.peaks_gib[1], e.memory_gib] for e in examples])
    rest = np.log([e.peaks_gib[2] / e.peaks_gib[1] for e in examples]) - _followed(rows)
    plain = _Known(rows, rest, groups)
    guesses = np.array([plain.correction(rows[i : i + 1], groups[i]) for i in range(len(rows))])
    gaps = (rest - guesses) / _uncertainty(rows)
    spread = float(np.quantile(np.abs(gaps), 0.9)) / 1.645
    return _Known(rows, rest, groups, spread, max(float(gaps.max()) / spread, 2.0))
