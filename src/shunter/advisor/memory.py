"""Peak memory at full size from small samples of the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive


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


@dataclass(frozen=True)
class _Growth:
    """Growth law: straight line or power law, small slopes taken as noise, bent at a share of the machine."""

    keep: float = 0.8
    bend: float = 0.75
    drift: float = 0.02
    noise: float = 0.05
    power: float = 0.5
    spread: float = 0.05
    worst: float = 3.0


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
    smaller = [sample for sample in ordered if sample.data_size < last.data_size * 0.999]
    ratio = math.log(data_size / last.data_size)
    if not smaller:
        middle = max(ratio, 0.0) * 0.3
        sd = 0.06 + 0.35 * abs(ratio)
        peak = estimate_from_log(math.log(last.peak_gib) + middle, sd, notes=("growth unknown: one size only",))
        return MemoryForecast(peak, min(peak.high, max(memory_gib, peak.median)))
    law = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    before = smaller[-1]
    row = np.array([[before.data_size, last.data_size, data_size, before.peak_gib, last.peak_gib, memory_gib]])
    growth = float(_grow(row, law.keep, law.bend, law.drift, law.noise, law.power)[0])
    sd = law.spread * float(_uncertainty(row)[0])
    notes = ("far beyond the samples",) if ratio > 2 * math.log(last.data_size / before.data_size) else ()
    peak = estimate_from_log(math.log(last.peak_gib) + growth, sd, notes=notes)
    reserve = peak.median * math.exp(law.worst * sd)
    return MemoryForecast(peak, reserve)


def _grow(rows: Array, keep: float, bend: float, drift: float, noise: float, power: float) -> Array:
    first, second, third, low, high, memory = rows.T
    slope = (high - low) / (second - first)
    straight = np.log(np.maximum(high + slope * (third - second), high * 0.5) / high)
    bent = np.log(high / low) / np.log(second / first) * np.log(third / second)
    seen = np.clip(power * np.minimum(bent, 1.0) + (1 - power) * np.minimum(straight, 1.0), 0.0, 1.0)
    wanted = keep * seen**2 / (seen + noise + 1e-9)
    room = 0.05 * np.logaddexp(0.0, np.log(bend * memory / high) / 0.05)
    soft = 0.03
    return np.asarray(drift - soft * np.logaddexp(-wanted / soft, -room / soft))


def _uncertainty(rows: Array) -> Array:
    first, second, third, low, high, _ = rows.T
    seen = np.abs(np.log(high / low)) * np.log(third / second) / np.maximum(np.log(second / first), 0.02)
    return np.asarray(0.5 + 4 * np.minimum(seen, 0.5) + 0.5 * np.log(third / second))


@lru_cache(maxsize=64)
def _learn(examples: tuple[MemoryExample, ...]) -> _Growth:
    if len(examples) < 5:
        return _Growth()
    rows = np.array([[*e.sizes, e.peaks_gib[0], e.peaks_gib[1], e.memory_gib] for e in examples])
    truth = np.log([e.peaks_gib[2] / e.peaks_gib[1] for e in examples])
    groups = [e.group for e in examples]
    weight = np.array([1 / groups.count(group) for group in groups])
    best = (math.inf, _Growth())
    for keep, bend, drift, noise, power in itertools.product(
        (0.7, 0.8, 0.9, 1.0), (0.6, 0.7, 0.8, 0.9), (0.0, 0.01, 0.02), (0.02, 0.05, 0.1), (0.0, 0.5, 1.0)
    ):
        off = np.abs(np.expm1(_grow(rows, keep, bend, drift, noise, power) - truth))
        loss = float((weight * off).sum() / weight.sum())
        if loss < best[0]:
            best = (loss, _Growth(keep, bend, drift, noise, power))
    law = best[1]
    gaps = (truth - _grow(rows, law.keep, law.bend, law.drift, law.noise, law.power)) / _uncertainty(rows)
    spread = float(np.quantile(np.abs(gaps), 0.92)) / 1.645
    worst = max(float(gaps.max()) / spread * 1.05, 2.0)
    return _Growth(law.keep, law.bend, law.drift, law.noise, law.power, spread, worst)
