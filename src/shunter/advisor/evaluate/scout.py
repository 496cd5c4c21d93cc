"""The Scout tables as values: machines, monitored runs, clusters, and the examples that they teach."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

from shunter.advisor.clusters import Candidate, ClusterExample, learn_cluster
from shunter.advisor.evaluate.tables import Row, fingerprint, group_rows, middle, number, read_table
from shunter.advisor.machines import usage_vector
from shunter.advisor.memory import MemoryExample, MemorySample, typical
from shunter.advisor.similar import MachineExample
from shunter.advisor.values import Machine, Usage
from shunter.advisor.verdict import VerdictExample, verdict_vector

SMALL, MIDDLE, LARGE = "large", "xlarge", "2xlarge"
BLOCK_MB = 512 / 1e6
# Runs of the cluster table were cut off after two hours.
CUT_OFF_SECONDS = 7200.0


@dataclass(frozen=True)
class Run:
    """One monitored run."""

    seconds: float
    usage: Usage
    input_bytes: float
    peak_gib: float


@dataclass(frozen=True)
class Workload:
    """One program, framework and input on several machines, completed runs only."""

    name: tuple[str, str, str]
    fingerprint: str
    runs: dict[str, list[Run]]

    @property
    def group(self) -> str:
        """The program: its other inputs and frameworks are left out with it."""
        return self.name[0]

    def seconds(self, machine: str) -> float:
        """Median over repetitions."""
        return middle(run.seconds for run in self.runs[machine])


@dataclass(frozen=True)
class ClusterRuns:
    """One workload on every cluster: seconds, whether it ended, and its usage."""

    name: tuple[str, str, str]
    fingerprint: str
    runs: dict[tuple[str, int], tuple[float, bool, Usage]]


def read_machines(folder: Path) -> dict[str, Machine]:
    """The machine types of the price table."""
    out = {}
    for path in sorted(folder.glob("*prices*.csv")):
        for row in read_table(path):
            name = row["vm"]
            out[name] = Machine(
                name, number(row, "vcpu"), number(row, "mem_gib"), number(row, "usd_per_hour"), name.split(".")[0]
            )
    return out


def read_workloads(folder: Path, machines: dict[str, Machine]) -> list[Workload]:
    """Workloads of the single-machine table."""
    out = []
    rows_of = group_rows(read_table(folder / "single_node.csv"), "app", "fw", "size")
    for name, rows in sorted(rows_of.items()):
        runs: dict[str, list[Run]] = {}
        for row in rows:
            if row["completed"] == "True" and row["vm"] in machines and number(row, "elapsed_time") > 0:
                usage = usage_of(row)
                peak = number(row, "memory.MB_anonpg_max") / 1024
                runs.setdefault(row["vm"], []).append(
                    Run(number(row, "elapsed_time"), usage, number(row, "input_size"), peak)
                )
        if runs:
            out.append(Workload((name[0], name[1], name[2]), fingerprint(rows), runs))
    return out


def read_clusters(folder: Path) -> list[ClusterRuns]:
    """Workloads of the cluster table."""
    out = []
    for name, rows in sorted(group_rows(read_table(folder / "multi_node.csv"), "app", "fw", "size").items()):
        runs = {
            (row["vm"], int(row["nodes"])): (number(row, "elapsed_time"), row["completed"] == "True", usage_of(row))
            for row in rows
            if number(row, "elapsed_time") > 0
        }
        out.append(ClusterRuns((name[0], name[1], name[2]), fingerprint(rows), runs))
    return out


def usage_of(row: Row) -> Usage:
    """A sar summary as a usage."""

    def share(name: str) -> float | None:
        value = number(row, name) / 100
        return None if math.isnan(value) else min(max(value, 0.0), 1.0)

    def plain(name: str, scale: float = 1.0) -> float | None:
        value = number(row, name) * scale
        return None if math.isnan(value) else value

    user, system = share("cpu.%usr_mean") or 0.0, share("cpu.%sys_mean") or 0.0
    return Usage(
        cpu_mean=min(user + system, 1.0),
        cpu_p95=share("cpu.%usr_p95"),
        iowait_mean=share("cpu.%iowait_mean"),
        iowait_p95=share("cpu.%iowait_p95"),
        steal_mean=share("cpu.%steal_mean"),
        busy_fraction=plain("busy_frac"),
        load_mean=plain("load.ldavg-1_mean"),
        runnable_mean=plain("load.runq-sz_mean"),
        memory_peak_gib=plain("memory.MB_anonpg_max", 1 / 1024),
        memory_committed=plain("memory.%commit_max", 0.01),
        cached_peak_gib=plain("memory.MB_cached_max", 1 / 1024),
        major_faults_per_second=plain("paging.majflt/s_mean"),
        swap_peak=share("swap.%swpused_max"),
        disk_busy_mean=share("disk.%util_mean"),
        read_mb_per_second=plain("io.bread/s_mean", BLOCK_MB),
        write_mb_per_second=plain("io.bwrtn/s_mean", BLOCK_MB),
        network_mb_per_second=plain("network.rxkB/s_mean", 1e-3),
        samples=int(number(row, "sar_rows")) if number(row, "sar_rows") > 0 else 1,
    )


def machine_examples(workloads: list[Workload], machines: dict[str, Machine]) -> list[MachineExample]:
    """What each workload teaches about machine types."""
    out = []
    for workload in workloads:
        usage = {}
        for name, runs in workload.runs.items():
            vectors = [usage_vector(run.usage, machines[name], run.seconds) for run in runs]
            usage[name] = tuple(round(middle(column), 4) for column in zip(*vectors, strict=True))
        seconds = {name: round(workload.seconds(name), 2) for name in workload.runs}
        fastest = {name: round(min(run.seconds for run in runs), 2) for name, runs in workload.runs.items()}
        numbers: tuple[float, ...] = ()
        if len(seconds) >= 8:
            candidates = [Candidate(machines[name], 1) for name in fastest]
            learned = learn_cluster("", "", candidates, list(fastest.values()), [True] * len(fastest))
            numbers = learned.numbers
        out.append(MachineExample(workload.fingerprint, workload.group, seconds, usage, numbers, fastest))
    return out


@dataclass(frozen=True)
class MemoryRuns:
    """Runs of one program on one machine over three known and growing input sizes."""

    mark: str
    group: str
    machine: Machine
    sizes: tuple[float, float, float]
    runs: tuple[list[Run], list[Run], list[Run]]

    def samples(self, which: int) -> list[MemorySample]:
        """Every repetition at one of the sizes."""
        size = self.sizes[which]
        return [
            MemorySample(size, run.peak_gib, (run.usage.memory_committed or 0.0) * self.machine.memory_gib or None)
            for run in self.runs[which]
            if run.peak_gib > 0
        ]


def memory_runs(workloads: list[Workload], machines: dict[str, Machine]) -> list[MemoryRuns]:
    """Programs with three known and growing input sizes on one machine."""
    out = []
    programs: dict[tuple[str, str], list[Workload]] = {}
    for workload in workloads:
        programs.setdefault(workload.name[:2], []).append(workload)
    for program, family in sorted(programs.items()):
        for name, machine in sorted(machines.items()):
            sized = []
            for workload in family:
                runs = workload.runs.get(name, [])
                size, peak = middle(run.input_bytes for run in runs), middle(run.peak_gib for run in runs)
                if size > 0 and peak > 0:
                    sized.append((size, peak, runs))
            sized.sort(key=lambda each: each[:2])
            if len(sized) == 3 and grows(*(size for size, _, _ in sized)):
                sizes, _, runs_of = zip(*sized, strict=True)
                mark = f"{min(workload.fingerprint for workload in family)}-{name}"
                out.append(MemoryRuns(mark, program[0], machine, sizes, runs_of))
    return out


def memory_examples(found: list[MemoryRuns]) -> list[MemoryExample]:
    """What the peaks of each program on each machine teach."""
    out = []
    for each in found:
        samples = [each.samples(which) for which in range(3)]
        peaks = [[sample.peak_gib for sample in own] for own in samples]
        asked = [[s.committed_gib for s in own if s.committed_gib is not None] for own in samples[:2]]
        known = all(len(some) == len(own) for some, own in zip(asked, peaks, strict=False))
        # Samples are averaged; the largest size is what is foretold, a run in the middle.
        mean = [round(value, 4) for value in (typical(peaks[0]), typical(peaks[1]), middle(peaks[2]))]
        out.append(
            MemoryExample(
                each.mark,
                each.group,
                each.sizes,
                (mean[0], mean[1], mean[2]),
                each.machine.memory_gib,
                each.machine.vcpu,
                (round(typical(asked[0]), 4), round(typical(asked[1]), 4)) if known else None,
                (round(min(peaks[1]), 4), round(max(peaks[1]), 4)),
            )
        )
    return out


def grows(*sizes: float) -> bool:
    """Whether each size is truly larger than the one before; inputs made anew differ by a few bytes."""
    return all(more > 1.001 * less for less, more in itertools.pairwise(sizes))


def verdict_examples(workloads: list[Workload], machines: dict[str, Machine]) -> list[VerdictExample]:
    """One monitored run per middle size with measured neighbours."""
    out = []
    for workload in workloads:
        for family in sorted({machine.family for machine in machines.values()}):
            names = [f"{family}.{size}" for size in (SMALL, MIDDLE, LARGE)]
            if not all(name in workload.runs for name in names):
                continue
            small, mid, large = (workload.seconds(name) for name in names)
            vectors = [verdict_vector(run.usage, machines[names[1]], run.seconds) for run in workload.runs[names[1]]]
            vector = tuple(round(middle(column), 4) for column in zip(*vectors, strict=True))
            mark = f"{workload.fingerprint}-{family}"
            quickest = [min(run.seconds for run in workload.runs[name]) for name in names[:2]]
            ratios = (round(mid / large, 4), round(small / mid, 4), round(quickest[0] / quickest[1], 4))
            out.append(VerdictExample(mark, workload.group, vector, *ratios))
    return out


def cluster_examples(clusters: list[ClusterRuns], machines: dict[str, Machine]) -> list[ClusterExample]:
    """The eight numbers of each workload on clusters."""
    out = []
    for workload in clusters:
        keys = sorted(key for key in workload.runs if key[0] in machines)
        candidates = [Candidate(machines[name], nodes) for name, nodes in keys]
        seconds = [workload.runs[key][0] for key in keys]
        ended = [workload.runs[key][1] for key in keys]
        out.append(learn_cluster(workload.fingerprint, workload.name[0], candidates, seconds, ended))
    return out
