"""A size's forecast: catalog times prediction, and which sizes are the fastest, the cheapest, the best value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Estimate, Machine, Point, Probe

# Of a machine's memory, this share can be a working set; the rest is the system's.
USABLE_MEMORY = 0.9


@dataclass(frozen=True)
class SizeForecast:
    """One size: how long, how dear, and the chance that the working set fits; None is not known."""

    machine: Machine
    nodes: int
    time: Estimate
    usd: Estimate | None
    fits: float


@dataclass(frozen=True)
class Forecast:
    """All sizes, and the ones worth naming; `front` holds those that no other beats in time and cost at once."""

    sizes: tuple[SizeForecast, ...]
    fastest: SizeForecast
    cheapest: SizeForecast | None
    best_value: SizeForecast
    front: tuple[SizeForecast, ...]


def forecast_sizes(
    times: Mapping[str, Estimate],
    machines: Sequence[Machine],
    peak_memory_gib: Estimate | None = None,
    nodes: int = 1,
    surely: float = 0.9,
) -> Forecast:
    """The forecast of every machine that has a predicted time.

    Named sizes fit with a chance of at least `surely`, if any does. Sizes without a price are never the cheapest.
    """
    sizes = [
        _size(machine, nodes, times[machine.name], peak_memory_gib) for machine in machines if machine.name in times
    ]
    if not sizes:
        raise TooFewProbes("no machine of the catalog has a predicted time", hint="Predict for its machines first.")
    likely = [size for size in sizes if size.fits >= surely] or [max(sizes, key=lambda size: size.fits)]
    priced = [size for size in likely if size.usd is not None]
    fastest = min(likely, key=lambda size: (size.time.median, size.machine.name))
    cheapest = min(priced, key=_usd, default=None)
    value = min(priced, key=lambda size: math.log(_usd(size)[0]) + math.log(size.time.median), default=fastest)
    return Forecast(tuple(sizes), fastest, cheapest, value, pareto(likely))


def pareto(sizes: Sequence[SizeForecast]) -> tuple[SizeForecast, ...]:
    """Sizes that no other beats in both time and cost, fastest first; sizes without a price count by time only."""
    out: list[SizeForecast] = []
    cheapest = math.inf
    for size in sorted(sizes, key=lambda size: (size.time.median, _usd(size)[0])):
        usd = _usd(size)[0]
        if not out or usd < cheapest:
            out.append(size)
            cheapest = min(cheapest, usd)
    return tuple(out)


def points_on(point: Point, machines: Sequence[Machine]) -> list[Point]:
    """The same run on every machine of a catalog."""
    return [Point(point.nodes, point.data_size, point.data_unit, point.parameters, machine) for machine in machines]


def memory_failures(probes: Sequence[Probe]) -> float:
    """The largest memory per node, in GiB, at which a probe ran out of memory; 0 when none did."""
    failed = [p.point.machine.memory_gib for p in probes if p.outcome == "out_of_memory" and p.point.machine]
    return max(failed, default=0.0)


def _size(machine: Machine, nodes: int, time: Estimate, peak: Estimate | None) -> SizeForecast:
    usd = time.scaled(machine.usd_per_hour * nodes / 3600) if machine.usd_per_hour is not None else None
    return SizeForecast(machine, nodes, time, usd, _chance_to_fit(machine, peak))


def _chance_to_fit(machine: Machine, peak: Estimate | None) -> float:
    if peak is None:
        return 1.0
    distance = math.log(USABLE_MEMORY * machine.memory_gib / peak.median) / max(peak.log_sd, 1e-6)
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))


def _usd(size: SizeForecast) -> tuple[float, float]:
    return (size.usd.median if size.usd else math.inf, size.time.median)
