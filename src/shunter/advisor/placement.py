"""Step time of data-parallel training over placements: GPUs on nodes, from runs on a few GPUs.

A step computes, then waits for the part of the gradient exchange that did not overlap with computing. How the
exchange grows with nodes and GPUs is a property of network and library more than of the model, so it is learned
from other models; how much there is to exchange and how much of it hides is the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# Prior of the growth law when no other model taught it, and how far one model may leave what others taught.
PLAIN_GROWTH = (0.4, -0.05, 0.4, -0.05, -0.1, 0.05, 0.22, -2.2, 0.85)
PLAIN_SPREAD = (0.2, 0.1, 0.2, 0.1, 0.1, 0.3, 0.2, 0.8, 0.5)
OWN_SPREAD = 0.1
FIT_NOISE = 0.06


@dataclass(frozen=True)
class Placement:
    """GPUs spread over nodes; `batch` is the batch size of one GPU."""

    nodes: int
    gpus: int
    batch: float

    def __post_init__(self) -> None:
        positive(self.nodes, "nodes")
        positive(self.gpus, "gpus")
        positive(self.batch, "batch")


@dataclass(frozen=True)
class StepTime:
    """A measured step."""

    placement: Placement
    seconds: float

    def __post_init__(self) -> None:
        positive(self.seconds, "seconds")


@dataclass(frozen=True)
class PlacementExample:
    """The growth law of one other model, and how well it was predicted (log bias and spread) when left out."""

    fingerprint: str
    group: str
    growth: tuple[float, ...]
    left_out_error: float = 0.12


def predict_step_time(
    steps: Sequence[StepTime], placements: Sequence[Placement], examples: Sequence[PlacementExample] = ()
) -> tuple[Estimate, ...]:
    """Seconds of a step at each placement; one of the measured steps must be on one GPU."""
    compute = _compute(steps)
    growth, spread = _prior(examples)
    fitted = _fit(steps, compute, growth, spread)
    rows = _rows(placements)
    mean = _log_step(rows, compute, fitted[0], fitted[1], fitted[2:])
    largest = max(step.placement.gpus for step in steps)
    errors = [example.left_out_error for example in examples] or [0.2]
    base = float(np.sqrt(np.mean(np.square(errors))))
    out = []
    for value, placement in zip(mean, placements, strict=True):
        beyond = max(math.log2(placement.gpus / largest), 0.0)
        notes = ("many more GPUs than tried",) if beyond > 3 else ()
        out.append(estimate_from_log(float(value), base * (1.3 + 0.2 * beyond), notes=notes))
    return tuple(out)


def learn_placement(fingerprint: str, group: str, steps: Sequence[StepTime]) -> PlacementExample:
    """What one fully measured model teaches: its growth law, and how far the law from few GPUs would be off."""
    compute = _compute(steps)
    fitted = _fit(steps, compute, np.array(PLAIN_GROWTH), np.array(PLAIN_SPREAD))
    few = [step for step in steps if step.placement.gpus <= 4]
    many = [step for step in steps if step.placement.gpus >= 8]
    error = 0.12
    if many and len(few) >= 4:
        small = _fit(few, _compute(few), fitted[2:], np.full(len(PLAIN_GROWTH), OWN_SPREAD))
        rows = _rows([step.placement for step in many])
        gap = _log_step(rows, compute, small[0], small[1], small[2:]) - np.log([step.seconds for step in many])
        error = max(float(np.quantile(np.abs(gap), 0.9)) / 1.645, 0.03)
    return PlacementExample(fingerprint, group, tuple(float(x) for x in fitted[2:]), error)


def _rows(placements: Sequence[Placement]) -> Array:
    return np.array([[p.nodes, p.gpus, p.batch] for p in placements], dtype=float)


def _compute(steps: Sequence[StepTime]) -> Array:
    """Log batch and log seconds on one GPU, sorted; the largest-first fallback is the fewest GPUs tried."""
    single = [step for step in steps if step.placement.gpus == 1]
    if not single:
        raise TooFewProbes("no step was measured on one GPU", hint="Start with one GPU on one node.")
    table: dict[float, list[float]] = {}
    for step in single:
        table.setdefault(step.placement.batch, []).append(step.seconds)
    return np.array([[math.log(batch), math.log(float(np.median(table[batch])))] for batch in sorted(table)])


def _law(rows: Array) -> Array:
    """Terms of the log growth of the exchange against four nodes with one GPU each."""
    nodes, gpus = rows[:, 0], rows[:, 1]
    apart, each = np.log(nodes / 4), np.log(gpus / nodes)
    one, two = (nodes == 1).astype(float), (nodes == 2).astype(float)
    many = 1 - one - two
    return np.stack(
        [
            apart * many,
            apart**2 * many,
            each * (1 - one),
            each**2 * (1 - one),
            apart * each * many,
            two,
            two * each,
            one,
            one * each,
        ],
        axis=1,
    )


def _log_step(rows: Array, compute: Array, volume: float, overlap: float, growth: Array) -> Array:
    slope = 1.0
    if len(compute) > 1:
        slope = float((compute[-1, 1] - compute[-2, 1]) / (compute[-1, 0] - compute[-2, 0]))
    batch = np.log(rows[:, 2])
    work = np.interp(batch, compute[:, 0], compute[:, 1]) + slope * np.maximum(batch - compute[-1, 0], 0.0)
    seconds = np.exp(work)
    exchange = np.exp(volume + _law(rows) @ growth)
    soft = 0.02 + 0.1 * exchange
    waiting = soft * np.logaddexp(0.0, (exchange - seconds / (1 + math.exp(-overlap))) / soft)
    return np.asarray(np.log(seconds + np.where(rows[:, 1] == 1, 0.0, waiting)))


def _fit(steps: Sequence[StepTime], compute: Array, growth: Array, spread: Array) -> Array:
    rows = _rows([step.placement for step in steps])
    truth = np.log([step.seconds for step in steps])
    weight = 1 / FIT_NOISE * min(1.0, math.sqrt(200 / len(rows)))

    def gaps(p: Array) -> Array:
        misfit = (_log_step(rows, compute, p[0], p[1], p[2:]) - truth) * weight
        return np.concatenate([misfit, [p[1] / 1.5], (p[2:] - growth) / spread])

    level = float(np.median(truth))
    found = [
        optimize.least_squares(gaps, np.concatenate([[level + shift, 0.0], growth]), loss="soft_l1", max_nfev=60)
        for shift in (-2.0, 0.0)
    ]
    return np.asarray(min(found, key=lambda result: float(result.cost)).x, dtype=float)


def _prior(examples: Sequence[PlacementExample]) -> tuple[Array, Array]:
    if not examples:
        return np.array(PLAIN_GROWTH), np.array(PLAIN_SPREAD)
    laws = np.array([example.growth for example in examples])
    own = np.full(laws.shape[1], OWN_SPREAD)
    return np.median(laws, axis=0), own
