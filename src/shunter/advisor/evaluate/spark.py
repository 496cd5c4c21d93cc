"""Protocols on run times over nodes and data: C3O and Bell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import optimize

from shunter.advisor.evaluate.results import Case, Result, checked, summed_up
from shunter.advisor.evaluate.tables import fingerprint, group_rows, middle, number, read_table
from shunter.advisor.time import predict_run_time
from shunter.advisor.values import Array, Point, Probe

NODES, MACHINE, DATA, SECONDS = "instance_count", "machine_type", "data_size_MB", "gross_runtime"
# Columns that the node count and the machine type determine.
DERIVED = ("slots", "memory")
# A 90/10 split and ten training points need more configurations than this.
FEWEST_CONFIGURATIONS = 20


@dataclass(frozen=True)
class Table:
    """One job on one machine type: points and median seconds."""

    name: str
    fingerprint: str
    points: tuple[Point, ...]
    seconds: tuple[float, ...]


def read_jobs(folder: Path) -> list[Table]:
    """Every job and machine type with enough configurations."""
    out = []
    for path in sorted(folder.glob("*.tsv")):
        rows = read_table(path)
        rows = [row for row in rows if min(number(row, NODES), number(row, DATA), number(row, SECONDS)) > 0]
        fixed = (NODES, MACHINE, DATA, SECONDS, *DERIVED)
        names = [n for n in rows[0] if n not in fixed and all(number(r, n) >= 0 for r in rows)] if rows else []
        for (machine,), own in sorted(group_rows(rows, MACHINE).items()):
            points, seconds = [], []
            for _, same in sorted(group_rows(own, NODES, DATA, *names).items()):
                first = same[0]
                parameters = {name: number(first, name) for name in names}
                points.append(Point(number(first, NODES), number(first, DATA), "MB", parameters))
                seconds.append(middle(number(row, SECONDS) for row in same))
            if len(points) >= FEWEST_CONFIGURATIONS:
                out.append(Table(f"{path.stem} {machine}", fingerprint(own), tuple(points), tuple(seconds)))
    return out


def c3o(folder: Path, seeds: int, splits: int) -> list[Result | None]:
    """Per job and machine type: 90/10 splits, and few random training points."""
    jobs = read_jobs(folder)
    rows = [
        ("C3O run time, 90/10", 0.9, 0.017, "C3O 2.5, GP here 1.8", splits),
        ("C3O run time from 6 points", 6, 0.09, "27 (GP here 18.2)", splits),
        ("C3O run time from 10 points", 10, 0.06, "17 from 15 (GP here 9.8)", splits),
        ("C3O run time from 3 points", 3, None, "GP here 37.5", splits),
        ("C3O run time from 20 points", 20, None, "GP here 6.1", splits),
    ]
    return [_c3o_row(jobs, name, size, bar, known, seeds, count) for name, size, bar, known, count in rows]


def _c3o_row(
    jobs: Sequence[Table], name: str, size: float, bar: float | None, published: str, seeds: int, splits: int
) -> Result | None:
    cases: list[Case] = []
    plain: list[float] = []
    for job in jobs:
        own: list[float] = []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            for _ in range(max(splits // seeds, 1)):
                order = rng.permutation(len(job.points))
                many = round(size * len(order)) if size < 1 else int(size)
                train, test = order[:many], order[many:]
                probes = [Probe(job.points[i], job.seconds[i]) for i in train]
                estimates = predict_run_time(probes, [job.points[i] for i in test])
                cases += [checked(job.name, e, job.seconds[i]) for e, i in zip(estimates, test, strict=True)]
                guess = ernest(probes, [job.points[i] for i in test])
                own.append(float(np.mean(np.abs(guess / np.array([job.seconds[i] for i in test]) - 1))))
        plain.append(float(np.mean(own)))
    protocol = f"{splits} random splits per job and machine type, medians of repetitions"
    baselines = {"Ernest": float(np.mean(plain))} if plain else {}
    return summed_up(name, protocol, cases, published=published, bar=bar, baselines=baselines)


def bell(folder: Path) -> list[Result | None]:
    """Scale-out of each job from four spread node counts, and from the four smallest."""
    jobs = []
    for path in sorted(folder.glob("*.csv")):
        rows = [row for row in read_table(path) if number(row, "Runtime") > 0]
        grouped = sorted((float(key[0]), own) for key, own in group_rows(rows, "Nodes").items())
        points = tuple(Point(nodes) for nodes, _ in grouped)
        seconds = tuple(middle(number(row, "Runtime") for row in own) / 1000 for _, own in grouped)
        if len(points) >= 6:
            jobs.append(Table(path.stem, fingerprint(rows), points, seconds))
    out = []
    for name, bar, published, spread in (
        ("Bell scale-out, 4 spread", 0.07, "Ernest 9-19", True),
        ("Bell scale-out, 4 smallest", None, "Ernest 37-49", False),
    ):
        cases: list[Case] = []
        plain: list[float] = []
        for job in jobs:
            last = len(job.points) - 1
            train = sorted({round(k * last / 3) for k in range(4)}) if spread else [0, 1, 2, 3]
            test = [i for i in range(last + 1) if i not in train]
            probes = [Probe(job.points[i], job.seconds[i]) for i in train]
            asked = [job.points[i] for i in test]
            truth = np.array([job.seconds[i] for i in test])
            estimates = predict_run_time(probes, asked)
            cases += [checked(job.name, e, float(t)) for e, t in zip(estimates, truth, strict=True)]
            plain.append(float(np.mean(np.abs(ernest(probes, asked) / truth - 1))))
        baselines = {"Ernest": float(np.mean(plain))} if plain else {}
        protocol = "medians of repetitions; the other node counts are predicted"
        out.append(summed_up(name, protocol, cases, published=published, bar=bar, baselines=baselines))
    return out


def ernest(probes: Sequence[Probe], points: Sequence[Point]) -> Array:
    """Ernest's non-negative least squares on 1, data/nodes, log nodes, nodes."""

    def design(listed: Sequence[Point]) -> Array:
        nodes = np.array([point.nodes for point in listed])
        data = np.array([point.data_size or 1.0 for point in listed])
        return np.stack([np.ones(len(nodes)), data / nodes, np.log(nodes), nodes], axis=1)

    seconds = np.array([probe.seconds for probe in probes])
    found, _ = optimize.nnls(design([probe.point for probe in probes]), seconds)
    return np.asarray(design(points) @ found)
