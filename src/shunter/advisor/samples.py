"""Time on the full data from runs on small samples of it, with cut-offs and burstable machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.process import Process, fit_process
from shunter.advisor.values import Array, Estimate, Machine, estimate_from_log, positive

# Seconds at full speed that a burstable machine in steady use has in hand, when nothing better is known.
CREDIT_SECONDS = 45.0
# The share of a processor that a job keeps busy at full speed; only that much of it can be throttled.
BUSY = 0.8
# Repetitions on a burstable machine that differ were throttled in part: the others took at least this share of the mean.
LEAST_SHARE = 0.3
# How far samples are from a line that is right, as a share.
SAMPLE_NOISE = 0.05
# What a line missed on fewer workloads than this may be their own: half of it is believed.
ENOUGH_OTHERS = 3
# Spread of log(full time / straight line) when no other workload taught it.
PLAIN_SPREAD = 0.3


@dataclass(frozen=True)
class TimeSample:
    """Seconds on a part of the data; `sd_seconds` over repetitions, when it was repeated."""

    data_size: float
    seconds: float
    sd_seconds: float = 0.0

    def __post_init__(self) -> None:
        positive(self.data_size, "data_size")
        positive(self.seconds, "seconds")


@dataclass(frozen=True)
class SampleExample:
    """A workload elsewhere: its samples, the full size and how long that took, on which machine."""

    fingerprint: str
    group: str
    samples: tuple[TimeSample, ...]
    full_size: float
    full_seconds: float
    machine: Machine | None
    limit_seconds: float | None


def predict_full_time(
    samples: Sequence[TimeSample],
    full_size: float,
    machine: Machine | None = None,
    limit_seconds: float | None = None,
    examples: Sequence[SampleExample] = (),
) -> Estimate:
    """Seconds at `full_size`; at most `limit_seconds` when the job is cut off there.

    A straight line (start-up plus time per item) through the samples, as far as they lie on one, slowed
    down where a burstable machine runs out of credits, corrected by what the same line missed on other workloads.
    """
    if not samples:
        raise TooFewProbes("no sample was run", hint="Run on a few percent of the data.")
    positive(full_size, "full_size")
    ordered = tuple(sorted(samples, key=lambda sample: (sample.data_size, sample.seconds)))
    limit = limit_seconds if limit_seconds is not None else math.inf
    cut = [sample.seconds for sample in ordered if sample.seconds >= limit * 0.995]
    if cut and full_size >= ordered[-1].data_size:
        stop = float(np.median(cut))
        return Estimate(stop, stop * 0.98, stop * 1.02, ("cut off at the limit",))
    line = _line(ordered, full_size, machine)
    known = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    mean, sd = math.log(line), PLAIN_SPREAD * (1.0 if len(ordered) > 2 else 1.1 if len(ordered) > 1 else 2.0)
    if known is not None and len(ordered) > 1:
        shift, width = known.predict(_features(ordered, full_size, machine, line))
        believed = 1.0 if len({example.group for example in examples}) >= ENOUGH_OTHERS else 0.5
        mean, sd = mean + believed * float(shift[0, 0]), float(width[0, 0])
    answer = estimate_from_log(mean, sd)
    if answer.median >= limit:
        return Estimate(limit * 1.005, min(answer.low, limit * 0.98), limit * 1.02, ("cut off at the limit",))
    return Estimate(answer.median, answer.low, min(answer.high, limit * 1.02), answer.notes)


def _line(samples: Sequence[TimeSample], full_size: float, machine: Machine | None) -> float:
    share = min(machine.baseline_vcpu / BUSY, 1.0) if machine and machine.baseline_vcpu else 1.0
    sizes = np.array([sample.data_size for sample in samples])
    seconds = np.array([_at_full_speed(_unhindered(sample, machine), share) for sample in samples])
    if len(set(sizes.tolist())) == 1:
        return _throttled(float(np.median(seconds)) * full_size / sizes[0], share)
    design = np.stack([np.ones(len(sizes)), sizes], axis=1) / seconds[:, None]
    start, each = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    if each <= 0 or start < 0:
        start, each = 0.0, float(np.exp(np.mean(np.log(seconds / sizes))))
    # One sample that was held up bends the whole line: unless the samples lie on it, the cheapest item has half a say.
    missed = float(np.mean((design @ [start, each] - 1) ** 2)) if len(sizes) > 2 else math.inf
    doubt = 0.5 / (1 + SAMPLE_NOISE**2 / missed) if missed else 0.0
    cheapest = math.log(float((seconds / sizes).min()) * full_size)
    return _throttled(math.exp((1 - doubt) * math.log(float(start + each * full_size)) + doubt * cheapest), share)


def _unhindered(sample: TimeSample, machine: Machine | None) -> float:
    """Seconds of the repetitions that were not throttled.

    When one or two of three were, the others are 0.7 or 1.4 standard deviations below the mean: one is taken.
    """
    if machine is None or not machine.baseline_vcpu:
        return sample.seconds
    return max(sample.seconds - sample.sd_seconds, LEAST_SHARE * sample.seconds)


def _at_full_speed(seconds: float, share: float) -> float:
    return seconds if seconds <= CREDIT_SECONDS else CREDIT_SECONDS + (seconds - CREDIT_SECONDS) * share


def _throttled(seconds: float, share: float) -> float:
    return seconds if seconds <= CREDIT_SECONDS else CREDIT_SECONDS + (seconds - CREDIT_SECONDS) / share


def _features(samples: Sequence[TimeSample], full_size: float, machine: Machine | None, line: float) -> Array:
    first, before, last = samples[0], samples[-2], samples[-1]
    grown = math.log(last.seconds / before.seconds) / math.log(max(last.data_size / before.data_size, 1.001))
    overall = math.log(last.seconds / first.seconds) / math.log(max(last.data_size / first.data_size, 1.001))
    share = machine.baseline_vcpu if machine and machine.baseline_vcpu else 4.0
    ahead = math.log(line / last.seconds) - math.log(full_size / last.data_size)
    wobble = math.log1p(last.sd_seconds / last.seconds)
    return np.array([[math.log(last.seconds), math.log(share), grown, overall, ahead, wobble]])


@lru_cache(maxsize=64)
def _learn(examples: tuple[SampleExample, ...]) -> Process | None:
    rows, targets, groups = [], [], []
    for example in examples:
        limit = example.limit_seconds if example.limit_seconds is not None else math.inf
        ordered = tuple(sorted(example.samples, key=lambda sample: (sample.data_size, sample.seconds)))
        if len(ordered) < 2 or ordered[-1].seconds >= limit * 0.995 or example.full_seconds >= limit * 0.995:
            continue
        line = _line(ordered, example.full_size, example.machine)
        rows.append(_features(ordered, example.full_size, example.machine, line)[0])
        targets.append([math.log(example.full_seconds / line)])
        groups.append(example.group)
    if len(rows) < 10:
        return None
    if len(set(groups)) < ENOUGH_OTHERS:
        groups = [f"{group}{index % 10}" for index, group in enumerate(groups)]
    return fit_process(np.array(rows), np.array(targets), groups)
