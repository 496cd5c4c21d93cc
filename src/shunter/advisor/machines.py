"""Run time on machine types that were never tried, from one or two probes with their usage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.advisor.errors import MixedUnits, TooFewProbes
from shunter.advisor.similar import MachineExample, Measured, similar_to
from shunter.advisor.values import Array, Estimate, Machine, Probe, Usage, estimate_from_log

# Log spread of a measured time: the next run on the same machine.
PROBED_SPREAD = 0.08
# A pick that costs this much more (1 is twice as much) is wrong; how wrong is not asked, so few examples cannot tell.
WRONG = 1.0
# Log spread of one run among its repetitions, machines that disturb it included.
RUN_SPREAD = 0.2
SAMPLES = 400


@dataclass(frozen=True)
class Pick:
    """The machine to take, its estimated time, and what a wrong pick is expected to cost (0.1 is 10 % more)."""

    machine: Machine
    time: Estimate
    usd: Estimate | None
    expected_regret: float


class MachineTimes(dict[str, Estimate]):
    """Estimates by machine name, and what may happen on all machines together: log seconds by name, and weights."""

    def __init__(self, estimates: Mapping[str, Estimate], columns: Mapping[str, Array], weights: Array) -> None:
        super().__init__(estimates)
        self.columns = columns
        self.weights = weights


def predict_machines(
    probes: Sequence[Probe], machines: Sequence[Machine], examples: Sequence[MachineExample]
) -> MachineTimes:
    """Seconds on every machine that the examples know, by name; the probed ones included, as measured.

    Probes must have usage and a machine; several on one machine are repetitions: the median says how long it usually
    takes, the fastest how long it takes undisturbed.
    """
    runs = _by_machine(probes)
    names = tuple(sorted(runs))
    known = similar_to(names, tuple(machines), tuple(sorted(examples, key=lambda example: example.fingerprint)))
    if not known.is_enough:
        raise TooFewProbes(
            f"too few workloads were measured on {' and '.join(names)}", hint="Probe on a machine type of the catalog."
        )
    measured = _measured([runs[name] for name in names])
    wider = 1.0 if len(names) > 1 else 1.15
    out = {name: estimate_from_log(log, PROBED_SPREAD) for name, log in zip(names, measured.logs, strict=True)}
    for name, log, spread in zip(known.outputs, known.log_seconds(measured), known.spread, strict=True):
        out[name] = estimate_from_log(float(log), float(spread) * wider)
    draws, weights = known.draws(measured)
    columns = dict(zip(known.outputs, draws.T, strict=True))
    columns |= {name: np.full(len(draws), log) for name, log in zip(names, measured.logs, strict=True)}
    asked = {machine.name: out[machine.name] for machine in machines if machine.name in out}
    return MachineTimes(asked, columns, weights)


def pick_machine(times: Mapping[str, Estimate], machines: Sequence[Machine], by: str = "cost") -> Pick:
    """The machine with the smallest expected regret by cost (`by="cost"`) or by time (`by="time"`).

    What `predict_machines` gave knows what may happen on all machines together; other estimates are taken as
    independent.
    """
    known = [machine for machine in machines if machine.name in times]
    if by == "cost":
        known = [machine for machine in known if machine.usd_per_hour]
    if not known:
        raise TooFewProbes("no machine has both a prediction and a price", hint="Pick by time, or give prices.")
    rates = np.array([machine.usd_per_hour or 0.0 if by == "cost" else 1.0 for machine in known])
    draws, weights, noise = _draws(times, [machine.name for machine in known])
    scores = draws + np.log(rates)
    regrets = np.expm1(scores - scores.min(axis=1, keepdims=True))
    best = int(np.argmin(weights @ np.minimum(regrets, WRONG)))
    machine = known[best]
    time = times[machine.name]
    usd = time.scaled(machine.usd_per_hour / 3600) if machine.usd_per_hour else None
    return Pick(machine, time, usd, _expected_regret(scores, weights, noise, best))


def chance_faster(
    probe: Probe, larger: Machine, machines: Sequence[Machine], examples: Sequence[MachineExample], factor: float
) -> float | None:
    """Chance that a machine is at least `factor` times as fast as the probe was; None when too little is known."""
    try:
        times = predict_machines([probe], machines, examples)
    except TooFewProbes:
        return None
    if larger.name not in times.columns:
        return None
    faster = math.log(probe.seconds) - times.columns[larger.name]
    return float(times.weights @ (faster >= math.log(factor)))


def usage_vector(usage: Usage, machine: Machine, seconds: float) -> tuple[float, ...]:
    """What a usage says about the workload, on scales that machines share; what was not measured is neutral."""
    memory = usage.memory_peak_gib if usage.memory_peak_gib is not None else 0.3 * machine.memory_gib
    cached = usage.cached_peak_gib if usage.cached_peak_gib is not None else 0.3 * machine.memory_gib
    read = (usage.read_mb_per_second or 0.0) * seconds
    written = (usage.write_mb_per_second or 0.0) * seconds
    return (
        usage.cpu_mean,
        _or(usage.cpu_p95, usage.cpu_mean),
        _or(usage.iowait_mean, 0.0),
        _or(usage.busy_fraction, usage.cpu_mean),
        math.log1p(_or(usage.load_mean, usage.cpu_mean * machine.vcpu)),
        memory / machine.memory_gib,
        math.log(memory + 0.1),
        math.log(cached + 0.1),
        _or(usage.disk_busy_mean, 0.0),
        math.log1p(read / 1000),
        math.log1p(written / 1000),
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or math.isnan(value) else value


def _by_machine(probes: Sequence[Probe]) -> dict[str, list[Probe]]:
    runs: dict[str, list[Probe]] = {}
    for probe in probes:
        if probe.outcome != "completed":
            continue
        if probe.point.machine is None or probe.usage is None:
            raise MixedUnits("a probe has no machine or no usage", hint="Monitor the probes.")
        runs.setdefault(probe.point.machine.name, []).append(probe)
    if not runs:
        raise TooFewProbes("none of the probes ended", hint="Probe on a machine with more memory.")
    return runs


def _measured(runs: Sequence[Sequence[Probe]]) -> Measured:
    vectors = []
    for group in runs:
        rows = [usage_vector(p.usage, p.point.machine, p.seconds) for p in group if p.usage and p.point.machine]
        vectors.append(tuple(float(x) for x in np.median(np.array(rows), axis=0)))
    return Measured(
        tuple(math.log(float(np.median([probe.seconds for probe in group]))) for group in runs),
        tuple(math.log(min(probe.seconds for probe in group)) for group in runs),
        tuple(vectors),
    )


def _draws(times: Mapping[str, Estimate], names: Sequence[str]) -> tuple[Array, Array, float]:
    """Log seconds that may be, one row per possibility; their weights; and the noise that is not in them."""
    if isinstance(times, MachineTimes):
        return np.column_stack([times.columns[name] for name in names]), times.weights, RUN_SPREAD
    means = np.log([times[name].median for name in names])
    spreads = np.array([min(times[name].log_sd, 1.0) for name in names])
    normals = np.random.default_rng(0).standard_normal((SAMPLES, len(names)))
    return means + spreads * normals, np.full(SAMPLES, 1 / SAMPLES), 0.0


def _expected_regret(scores: Array, weights: Array, noise: float, best: int) -> float:
    rng = np.random.default_rng(0)
    tried = scores[rng.choice(len(scores), SAMPLES, p=weights)]
    tried = tried + noise * rng.standard_normal(tried.shape)
    return float(np.expm1(tried[:, best] - tried.min(axis=1)).mean())
