"""The tables about training as values: TrimTuner, Gavel, Pollux, MLPerf."""

from __future__ import annotations

import math
from pathlib import Path

from shunter.advisor.counts import CountExample, CountRun
from shunter.advisor.evaluate.tables import fingerprint, group_rows, number, read_table
from shunter.advisor.gpus import GpuExample, GpuRun
from shunter.advisor.placement import Placement, StepTime
from shunter.advisor.samples import SampleExample, TimeSample
from shunter.advisor.values import Machine

# Amazon's documentation of the t2 family: vCPUs, memory, and the vCPUs that may be used for good.
T2 = {
    "t2.small": (1.0, 2.0, 0.2),
    "t2.medium": (2.0, 4.0, 0.4),
    "t2.xlarge": (4.0, 16.0, 0.9),
    "t2.2xlarge": (8.0, 32.0, 1.35),
}
CUT_OFF_SECONDS = 600.0
LARGEST_SHARE = 0.25


def read_samples(folder: Path) -> list[SampleExample]:
    """Configurations of every network: samples of at most a quarter, and the full time."""
    out = []
    for path in sorted(folder.glob("*.csv")):
        keys = ("vm_flavor", "n_workers", "batch_size", "learning_rate", "synchronism")
        for key, rows in sorted(group_rows(read_table(path), *keys).items()):
            timed = sorted(
                (number(r, "training_set_size"), number(r, "training_time"), _sd(r))
                for r in rows
                if number(r, "training_set_size") > 0 and number(r, "training_time") > 0
            )
            if not timed:
                continue
            full_size, full_seconds, _ = timed[-1]
            samples = tuple(TimeSample(size, time, sd) for size, time, sd in timed if size <= LARGEST_SHARE * full_size)
            facts = T2.get(key[0])
            machine = Machine(key[0], facts[0], facts[1], baseline_vcpu=facts[2]) if facts else None
            if samples:
                out.append(
                    SampleExample(
                        fingerprint(rows), path.stem, samples, full_size, full_seconds, machine, CUT_OFF_SECONDS
                    )
                )
    return out


def _sd(row: dict[str, str]) -> float:
    value = number(row, "standard deviation time")
    return 0.0 if math.isnan(value) else value


def read_gpus(folder: Path) -> list[GpuExample]:
    """Models and batch sizes with everything measured of them; what did not run is left out."""
    out = []
    for path in sorted(folder.glob("*.csv")):
        for key, rows in sorted(group_rows(read_table(path), "model", "batch_size").items()):
            runs = tuple(
                GpuRun(
                    r["gpu"],
                    number(r, "steps_per_s"),
                    int(number(r, "n_gpus")),
                    r["consolidated"] == "1",
                    number(r, "batch_size") if number(r, "batch_size") > 0 else None,
                )
                for r in rows
                if number(r, "steps_per_s") > 0
            )
            if runs:
                out.append(GpuExample(fingerprint(rows), key[0], runs))
    return out


def read_placements(folder: Path) -> dict[str, tuple[str, list[StepTime]]]:
    """Steps of each job, by its file's stem, with a fingerprint."""
    out = {}
    for path in sorted(folder.glob("*-placements.csv")):
        job = path.name.removesuffix("-placements.csv")
        rows = read_table(path)
        more = read_table(folder / f"{job}-scalability.csv")
        steps = [
            StepTime(
                Placement(len(r["placement"]), sum(int(digit) for digit in r["placement"]), number(r, "local_bsz")),
                number(r, "step_time"),
            )
            for r in rows
            if number(r, "step_time") > 0
        ]
        steps += [
            StepTime(
                Placement(int(number(r, "num_nodes")), int(number(r, "num_replicas")), number(r, "local_bsz")),
                number(r, "step_time"),
            )
            for r in more
            if number(r, "step_time") > 0
        ]
        out[job] = (fingerprint(rows + more), steps)
    return out


def read_counts(folder: Path) -> list[CountExample]:
    """Submissions of one submitter, round, accelerator and benchmark over at least three counts."""
    out = []
    for path in sorted(folder.glob("*.csv")):
        groups = group_rows(read_table(path), "submitter", "round", "accelerator", "benchmark")
        for key, rows in sorted(groups.items()):
            runs = tuple(
                CountRun(number(r, "n_accel"), number(r, "ttt_median_s"))
                for r in rows
                if number(r, "n_accel") > 0 and number(r, "ttt_median_s") > 0
            )
            if len({run.count for run in runs}) >= 3:
                out.append(CountExample(fingerprint(rows), key[3], runs))
    return out
