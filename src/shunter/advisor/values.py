"""The values that go in and come out: machines, probes, points and estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shunter.advisor.errors import BadMeasurement, MixedUnits

Array = NDArray[np.float64]
Outcome = Literal["completed", "failed", "out_of_memory", "timed_out"]


@dataclass(frozen=True)
class Machine:
    """One size of the catalog; what is not known is None.

    `baseline_vcpu` is for burstable sizes: the vCPUs that they may use for good once their credits are gone.
    """

    name: str
    vcpu: float
    memory_gib: float
    usd_per_hour: float | None = None
    family: str = ""
    gpu_model: str = ""
    gpu_count: float = 0.0
    gpu_memory_gib: float = 0.0
    baseline_vcpu: float | None = None

    def __post_init__(self) -> None:
        positive(self.vcpu, f"{self.name}: vcpu")
        positive(self.memory_gib, f"{self.name}: memory_gib")
        if self.usd_per_hour is not None:
            not_negative(self.usd_per_hour, f"{self.name}: usd_per_hour")


@dataclass(frozen=True)
class Usage:
    """What a monitored run did with its machine; shares are 0 to 1, warm-up left out, None is not measured.

    `memory_peak_gib` is the working set (anonymous pages), not "memory used": the page cache fills any memory.
    """

    cpu_mean: float
    cpu_p95: float | None = None
    iowait_mean: float | None = None
    iowait_p95: float | None = None
    steal_mean: float | None = None
    busy_fraction: float | None = None
    load_mean: float | None = None
    runnable_mean: float | None = None
    memory_peak_gib: float | None = None
    memory_committed: float | None = None
    cached_peak_gib: float | None = None
    major_faults_per_second: float | None = None
    swap_peak: float | None = None
    disk_busy_mean: float | None = None
    read_mb_per_second: float | None = None
    write_mb_per_second: float | None = None
    network_mb_per_second: float | None = None
    gpu_mean: float | None = None
    gpu_p95: float | None = None
    gpu_memory_peak: float | None = None
    sync_share: float | None = None
    busiest_thread: float | None = None
    workers_cpu_mean: float | None = None
    spilled_bytes: float | None = None
    skew: float | None = None
    tasks_per_core: float | None = None
    memory_rising: bool | None = None
    samples: int = 30

    def __post_init__(self) -> None:
        for name in ("cpu_mean", "cpu_p95", "iowait_mean", "iowait_p95", "gpu_mean", "gpu_p95", "disk_busy_mean"):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1.5:
                raise MixedUnits(f"{name} is {share}; shares go from 0 to 1", hint="Divide a percentage by 100.")


@dataclass(frozen=True)
class Point:
    """A run that might be made: what is to be predicted.

    `parameters` are what else changes the work (iterations, features, clusters); the same names everywhere.
    """

    nodes: float = 1.0
    data_size: float | None = None
    data_unit: str = "bytes"
    parameters: Mapping[str, float] = field(default_factory=dict)
    machine: Machine | None = None

    def __post_init__(self) -> None:
        positive(self.nodes, "nodes")
        if self.data_size is not None:
            positive(self.data_size, "data_size")
        for name, value in self.parameters.items():
            not_negative(value, f"parameter {name}")


@dataclass(frozen=True)
class Probe:
    """A run that was made: a point, how long it took and how it ended.

    Runs that failed, ran out of memory or were cut off are probes too: they say where not to go.
    """

    point: Point
    seconds: float
    outcome: Outcome = "completed"
    usage: Usage | None = None

    def __post_init__(self) -> None:
        positive(self.seconds, "seconds")


@dataclass(frozen=True)
class Estimate:
    """A prediction: the median and the 90 % interval, with what must be said about it."""

    median: float
    low: float
    high: float
    notes: tuple[str, ...] = ()

    @property
    def log_sd(self) -> float:
        """The spread on the log scale, as if the interval were a normal one."""
        return math.log(self.high / self.low) / (2 * 1.645)

    def covers(self, value: float) -> bool:
        """True when the value is inside the interval."""
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in another unit, or times a price."""
        return Estimate(self.median * factor, self.low * factor, self.high * factor, self.notes)


def estimate_from_log(mean: float, sd: float, quantile: float = 1.645, notes: tuple[str, ...] = ()) -> Estimate:
    """An estimate whose logarithm has this mean and spread."""
    reach = min(quantile * sd, 40.0)
    mean = min(max(mean, -600.0), 600.0)
    return Estimate(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), notes)


def positive(value: float, name: str) -> float:
    """The value, or BadMeasurement when it is not a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise BadMeasurement(f"{name} is {value}; it must be above zero", hint="Leave out what was not measured.")
    return float(value)


def not_negative(value: float, name: str) -> float:
    """The value, or BadMeasurement when it is negative or not finite."""
    if not (math.isfinite(value) and value >= 0):
        raise BadMeasurement(f"{name} is {value}; it must not be negative", hint="Leave out what was not measured.")
    return float(value)


def one_unit(points: Iterable[Point]) -> str:
    """The data unit of all points; MixedUnits when they differ or only some have a data size."""
    listed = list(points)
    units = {point.data_unit for point in listed if point.data_size is not None}
    if len(units) > 1:
        raise MixedUnits(f"data sizes in {', '.join(sorted(units))}", hint="Give every data size in one unit.")
    if units and any(point.data_size is None for point in listed):
        raise MixedUnits("some points have a data size and some have none", hint="Give it for all or for none.")
    return units.pop() if units else ""
