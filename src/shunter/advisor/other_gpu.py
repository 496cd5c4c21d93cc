"""Training throughput on another GPU type, from one run on one GPU.

    step = max(host, measured step / ratio ** gain),   host = launch + batch size * handling

The host prepares the next step while the GPU computes this one, so a step takes as long as the slower of the two: the
host, which no GPU shortens, or the GPU, whose time shrinks with the data-sheet ratio (the geometric mean of compute
and bandwidth) to a power. What launching a step and handling an item cost and how much the ratio gains are weighed by
what was measured of other models; every combination on a grid has a say.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.gpus import Gpu, GpuExample, GpuRun, find_gpu
from shunter.advisor.values import Array, Estimate, estimate_from_log

# What is believed before any example: seconds per step on the host, seconds per item of the batch (a loader in Python
# hands out some twenty thousand small items per second), and the power of the data-sheet ratio; each with its log spread.
LAUNCH, LAUNCH_SPREAD = 0.04, 0.8
GAIN, GAIN_SPREAD = 1.3, 0.35
HANDLING, HANDLING_SPREAD = 50e-6, 0.4
# The host takes at most this share of the measured step: a faster GPU is not slower.
MOST_HOST = 0.95
# How far off a good prediction is, on the log scale; much larger gaps hardly count more.
GAP = 0.12
# Upgrades with a smaller data-sheet log ratio teach little.
LEAST_RATIO = 0.2
PLAIN_SPREAD = 0.35

_GRID = np.array(
    list(
        itertools.product(
            np.log(LAUNCH) + LAUNCH_SPREAD * np.linspace(-2.4, 2.0, 23),
            np.linspace(0.5, 1.9, 15),
            np.log(HANDLING) + HANDLING_SPREAD * np.array([-1.5, 0.0, 1.5]),
        )
    )
)


def predict_other_gpu(run: GpuRun, gpu: str, examples: Sequence[GpuExample]) -> Estimate:
    """Steps per second on one GPU of another type, from one run on one GPU.

    Tell the batch size of the run if it is known: many small items keep the host busy, whatever the GPU.
    """
    source, target = find_gpu(run.gpu), find_gpu(gpu)
    rate = run.steps_per_second / run.gpus
    if source.model == target.model:
        return estimate_from_log(math.log(rate), 0.03)
    known = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    row = np.array([[1 / rate, run.batch_size or 0.0, _log_ratio(source, target)]])
    mean = float(known.weights @ _log_steps(row)[:, 0])
    notes = () if known.examples else ("data sheet only",)
    return estimate_from_log(-mean, known.spread * min(1.0, abs(float(row[0, 2])) / LEAST_RATIO), notes=notes)


def _log_ratio(source: Gpu, target: Gpu) -> float:
    compute = math.log(target.fp32_tflops / source.fp32_tflops)
    return 0.5 * (compute + math.log(target.bandwidth_gb_per_second / source.bandwidth_gb_per_second))


def _log_steps(rows: Array) -> Array:
    """Log seconds per step: a row for every combination of the grid, a column for every row."""
    step, batch, ratio = rows.T
    host = np.exp(_GRID[:, :1]) + np.exp(_GRID[:, 2:3]) * batch
    host = np.minimum(host, MOST_HOST * step)
    return np.asarray(np.log(np.maximum(host, step * np.exp(-_GRID[:, 1:2] * ratio))))


@dataclass(frozen=True)
class _Known:
    """How much each combination is believed, and the log spread of a prediction."""

    weights: Array
    spread: float
    examples: int


def _believed(log_weights: Array) -> Array:
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


@lru_cache(maxsize=64)
def _learn(examples: tuple[GpuExample, ...]) -> _Known:
    launch, gain, handling = _GRID.T
    before = -0.5 * ((launch - math.log(LAUNCH)) / LAUNCH_SPREAD) ** 2 - 0.5 * ((gain - GAIN) / GAIN_SPREAD) ** 2
    before = before - 0.5 * ((handling - math.log(HANDLING)) / HANDLING_SPREAD) ** 2
    rows, truth, groups = [], [], []
    for example in examples:
        single = {run.gpu: run for run in example.runs if run.gpus == 1}
        for source, target in itertools.permutations(sorted(single), 2):
            ratio = _log_ratio(find_gpu(source), find_gpu(target))
            if ratio > LEAST_RATIO:
                rows.append([1 / single[source].steps_per_second, single[source].batch_size or 0.0, ratio])
                truth.append(-math.log(single[target].steps_per_second))
                groups.append(example.group)
    if not rows:
        return _Known(_believed(before), PLAIN_SPREAD, 0)
    table, wanted, named = np.array(rows), np.array(truth), np.array(groups)
    told = _log_steps(table)
    losses = np.log1p(((told - wanted) / GAP) ** 2)
    total = before - losses.sum(axis=1)
    gaps = np.empty(len(wanted))
    for group in set(groups):
        own = named == group
        gaps[own] = _believed(total + losses[:, own].sum(axis=1)) @ told[:, own] - wanted[own]
    # What covered nine of ten of the wide upgrades when their model was left out.
    wide = table[:, 2] > 0.5 * table[:, 2].max()
    spread = float(np.quantile(np.abs(gaps[wide]), 0.9)) / 1.645 if len(set(groups)) > 1 else PLAIN_SPREAD
    return _Known(_believed(total), spread, len(rows))
