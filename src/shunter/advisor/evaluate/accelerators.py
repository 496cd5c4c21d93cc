"""Protocols on training: TrimTuner, Gavel, Pollux and MLPerf."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from shunter.advisor.counts import predict_at_count
from shunter.advisor.evaluate import training
from shunter.advisor.evaluate.results import Case, Result, checked, summed_up
from shunter.advisor.gpus import find_gpu, predict_more_gpus
from shunter.advisor.other_gpu import predict_other_gpu
from shunter.advisor.placement import predict_step_time
from shunter.advisor.priors import Examples, others
from shunter.advisor.samples import predict_full_time
from shunter.advisor.values import Estimate


def samples(folder: Path, pool: Examples) -> list[Result | None]:
    """Full-data time of each configuration from its samples of at most a quarter."""
    cases: list[Case] = []
    plain: list[float] = []
    for example in training.read_samples(folder):
        known = others(pool.samples, example.group)
        found = predict_full_time(example.samples, example.full_size, example.machine, example.limit_seconds, known)
        cases.append(checked(example.fingerprint, found, example.full_seconds))
        last = example.samples[-1]
        guess = min(last.seconds * example.full_size / last.data_size, example.limit_seconds or math.inf)
        plain.append(abs(guess / example.full_seconds - 1))
    base = {"proportional": float(np.mean(plain))} if plain else {}
    protocol = "samples of at most 25 % of the same configuration; other networks known, if any"
    return [
        summed_up("TrimTuner full-data time", protocol, cases, published="linear 17", bar=0.10, baselines=base)
    ]


def gpu_types(folder: Path, pool: Examples) -> list[Result | None]:
    """V100 from one K80 run, and eight GPUs from one and two; other models known."""
    types: list[Case] = []
    rates: list[float] = []
    sheet: list[float] = []
    counts: list[Case] = []
    ideal: list[float] = []
    for example in training.read_gpus(folder):
        known = others(pool.gpus, example.group)
        single = {run.gpu: run for run in example.runs if run.gpus == 1}
        if "k80" in single and "v100" in single:
            truth = single["v100"].steps_per_second
            found = predict_other_gpu(single["k80"], "v100", known)
            # Time per step, as Habitat and the data-sheet baselines are counted; throughput is given beside it.
            step = Estimate(1 / found.median, 1 / found.high, 1 / found.low)
            types.append(checked(example.fingerprint, step, 1 / truth))
            rates.append(abs(found.median / truth - 1))
            ratio = find_gpu("v100").bandwidth_gb_per_second / find_gpu("k80").bandwidth_gb_per_second
            sheet.append(abs(truth / (single["k80"].steps_per_second * ratio) - 1))
        for gpu in sorted({run.gpu for run in example.runs}):
            for together in (True, False):
                runs = {r.gpus: r for r in example.runs if r.gpu == gpu and r.one_server == together}
                if all(count in runs for count in (1, 2, 8)):
                    truth = runs[8].steps_per_second
                    counts.append(checked(example.fingerprint, predict_more_gpus([runs[1], runs[2]], 8, known), truth))
                    ideal.append(abs(4 * runs[2].steps_per_second / truth - 1))
    return [
        summed_up(
            "Gavel V100 from one K80 run", "time per step; every batch size is a case; other models known", types,
            published="bandwidth ratio 39", bar=0.20,
            baselines={"bandwidth ratio": float(np.mean(sheet or [0])), "ours in steps/s": float(np.mean(rates or [0]))},
        ),
        summed_up(
            "Gavel 8 GPUs from 1 and 2", "same GPU and placement; other models known", counts,
            published="37", baselines={"perfect from 2": float(np.mean(ideal or [0]))},
        ),
    ]  # fmt: skip


def placements(folder: Path, pool: Examples) -> list[Result | None]:
    """Step time on at least eight GPUs from at most four; other jobs known."""
    cases: list[Case] = []
    plain: list[float] = []
    for job, (_, steps) in training.read_placements(folder).items():
        few = [step for step in steps if step.placement.gpus <= 4]
        many = [step for step in steps if step.placement.gpus >= 8]
        if not many or not any(step.placement.gpus == 1 for step in few):
            continue
        found = predict_step_time(few, [step.placement for step in many], others(pool.placements, job))
        cases += [checked(job, e, step.seconds) for e, step in zip(found, many, strict=True)]
        slowest = {step.placement.batch: step.seconds for step in sorted(few, key=lambda s: s.seconds)}
        off = [abs(slowest[s.placement.batch] / s.seconds - 1) for s in many if s.placement.batch in slowest]
        plain.append(float(np.mean(off)))
    base = {"slowest of 4": float(np.mean(plain))} if plain else {}
    protocol = "all placements; other jobs known"
    published = "least squares 26-38"
    return [summed_up("Pollux >= 8 GPUs from <= 4", protocol, cases, published=published, bar=0.15, baselines=base)]


def counts(folder: Path, pool: Examples) -> list[Result | None]:
    """Time to train at the largest count from the smaller ones; other benchmarks known."""
    cases: list[Case] = []
    power: list[float] = []
    for example in training.read_counts(folder):
        largest = max(run.count for run in example.runs)
        smaller = [run for run in example.runs if run.count < largest]
        truth = min(run.seconds for run in example.runs if run.count == largest)
        found = predict_at_count(smaller, largest, others(pool.counts, example.group))
        cases.append(checked(example.fingerprint, found, truth))
        slope, level = np.polyfit(np.log([r.count for r in smaller]), np.log([r.seconds for r in smaller]), 1)
        power.append(abs(math.exp(level + slope * math.log(largest)) / truth - 1))
    base = {"power law": float(np.median(power))} if power else {}
    protocol = "same submitter, round, accelerator and benchmark, three counts or more; median"
    return [
        summed_up(
            "MLPerf largest count", protocol, cases, published="power law 18-23", bar=0.12, baselines=base, median=True
        )
    ]
