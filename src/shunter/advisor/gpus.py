"""GPUs of the data sheet, and training throughput on more of them from the few that were tried."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from shunter.advisor.errors import TooFewProbes, UnknownFact
from shunter.advisor.process import Process, fit_process
from shunter.advisor.values import Array, Estimate, estimate_from_log, positive

# What a doubling of GPUs loses, and how much of the loss seen so far each further doubling repeats.
LOSS_PER_DOUBLING, LOSS_GOES_ON = 0.1, 0.2


@dataclass(frozen=True)
class Gpu:
    """Data-sheet figures of one GPU; peak rates, of which training reaches a part."""

    model: str
    memory_gib: float
    bandwidth_gb_per_second: float
    fp32_tflops: float
    fp16_tflops: float


@dataclass(frozen=True)
class GpuRun:
    """Measured training: steps per second on so many GPUs, all steps of all GPUs counted.

    `batch_size` is the number of items per step and GPU, None when it is not known.
    """

    gpu: str
    steps_per_second: float
    gpus: int = 1
    one_server: bool = True
    batch_size: float | None = None

    def __post_init__(self) -> None:
        positive(self.steps_per_second, "steps_per_second")
        positive(self.gpus, "gpus")
        if self.batch_size is not None:
            positive(self.batch_size, "batch_size")


@dataclass(frozen=True)
class GpuExample:
    """One model with one batch size elsewhere: everything that was measured of it."""

    fingerprint: str
    group: str
    runs: tuple[GpuRun, ...]


@lru_cache(maxsize=1)
def gpu_facts() -> dict[str, Gpu]:
    """The packaged data sheet, by model name."""
    text = resources.files("shunter.advisor").joinpath("priors/gpus.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {
        row["model"]: Gpu(
            row["model"],
            float(row["memory_gib"]),
            float(row["bandwidth_gb_per_second"]),
            float(row["fp32_tflops"]),
            float(row["fp16_tflops"]),
        )
        for row in rows
    }


def find_gpu(name: str) -> Gpu:
    """The GPU of that name; a short name such as "v100" gives the first model that starts with it."""
    facts = gpu_facts()
    wanted = name.lower()
    for model, gpu in facts.items():
        if model.lower() == wanted:
            return gpu
    for model, gpu in facts.items():
        if model.lower().startswith(wanted):
            return gpu
    raise UnknownFact(f"GPU {name} is not on the data sheet", hint=f"Known are {', '.join(sorted(facts))}.")


def predict_more_gpus(runs: Sequence[GpuRun], gpus: int, examples: Sequence[GpuExample]) -> Estimate:
    """Steps per second on `gpus` GPUs of the same type and placement, from runs on fewer."""
    tried = sorted({run.gpus: run for run in runs if run.gpus < gpus or run.gpus == 1}.values(), key=lambda r: r.gpus)
    if not tried:
        raise TooFewProbes("no run on fewer GPUs", hint="Start with one GPU on one node.")
    row, ideal = _count_features(tried, gpus)
    known = _learn_counts(tuple(sorted(examples, key=lambda example: example.fingerprint)), len(tried) > 1)
    if known is None:
        lost = float(row[0, 3]) if len(tried) > 1 else 0.2
        loss = float(row[0, 0]) * (LOSS_PER_DOUBLING + LOSS_GOES_ON * max(lost, 0.0))
        return estimate_from_log(ideal - loss, 0.11 + 0.035 * float(row[0, 0]), notes=("few other models to learn from",))
    mean, sd = known.predict(row)
    return estimate_from_log(ideal - float(mean[0, 0]), float(sd[0, 0]))


def where_scaling_stops(estimates: Sequence[tuple[int, Estimate]], worth: float = 0.5) -> int:
    """The largest count that still pays: each doubling must bring at least `worth` of the added GPUs."""
    ordered = sorted(estimates, key=lambda pair: pair[0])
    best = ordered[0][0]
    for (few, before), (many, after) in itertools.pairwise(ordered):
        gained = after.median / before.median - 1
        if gained < worth * (many / few - 1):
            break
        best = many
    return best


def _count_features(tried: Sequence[GpuRun], gpus: int) -> tuple[Array, float]:
    """Features of the loss against perfect scaling from the largest run, and the log of perfect scaling."""
    last = tried[-1]
    ideal = math.log(last.steps_per_second * gpus / last.gpus)
    doublings = math.log2(gpus / last.gpus)
    step = math.log(last.gpus / last.steps_per_second)
    apart = 0.0 if last.one_server else 1.0
    if len(tried) == 1:
        return np.array([[doublings, apart, step]]), ideal
    first = tried[0]
    lost = math.log(first.steps_per_second / first.gpus) - math.log(last.steps_per_second / last.gpus)
    return np.array([[doublings, apart, step, lost, lost * doublings]]), ideal


@lru_cache(maxsize=64)
def _learn_counts(examples: tuple[GpuExample, ...], two: bool) -> Process | None:
    rows, targets, groups = [], [], []
    for example in examples:
        series: dict[tuple[str, bool], dict[int, GpuRun]] = {}
        for run in example.runs:
            series.setdefault((run.gpu, run.one_server), {})[run.gpus] = run
        for runs in series.values():
            counts = sorted(runs)
            for i, count in enumerate(counts[1:] if two else counts, start=1 if two else 0):
                for more in counts[i + 1 :]:
                    tried = [runs[counts[i - 1]], runs[count]] if two else [runs[count]]
                    row, ideal = _count_features(tried, more)
                    rows.append(row[0])
                    targets.append([ideal - math.log(runs[more].steps_per_second)])
                    groups.append(example.group)
    if len(rows) < 6 or len(set(groups)) < 3:
        return None
    return fit_process(np.array(rows), np.array(targets), groups)
