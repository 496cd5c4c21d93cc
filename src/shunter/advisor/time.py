"""Run time of a workload over nodes, data size, parameters and machine type, from a few measured points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.features import Columns, columns_of, within_reach
from shunter.advisor.physics import TimePrior
from shunter.advisor.timemodel import ENOUGH_FOR_AN_ODD_ONE, MANY, Model, fit_model
from shunter.advisor.values import Array, Estimate, Point, Probe, estimate_from_log

# With this many points, the odd ones may be a regime of their own (memory ran short) and not accidents.
ENOUGH_FOR_A_REGIME = 12
# The power of data per node with which such a regime slows down.
REGIME_POWER = 6.0
# With this many points, parameters may be found to have no effect at all, and only what a model foretells counts.
ENOUGH_TO_IGNORE = 10
# Models that are this much less likely than the best have no say.
HARDLY_LIKELY = 0.003
# Log spread of a time that is known to be at least so long.
BOUND_SPREAD = 0.1
# Spread of the power with which time grows beyond what was measured, from one point; more points narrow it.
GROWTH_SPREAD = 0.44
# Log share of a part that is not there.
NEVER = -30.0


def predict_run_time(
    probes: Sequence[Probe], points: Sequence[Point], prior: TimePrior | None = None
) -> tuple[Estimate, ...]:
    """Seconds at each point, with 90 % intervals; in the order of the points.

    Probes that failed are left out, one that was cut off counts as "at least this long". One probe is enough for
    an answer; the interval then says how little it is worth. The order of the probes does not matter.
    """
    prior = prior or TimePrior()
    done = _in_order([probe for probe in probes if probe.outcome == "completed"])
    cut = _in_order([probe for probe in probes if probe.outcome == "timed_out"])
    if not done:
        raise TooFewProbes("none of the probes ended", hint="Run the workload on a small part of its data first.")
    if not points:
        return ()
    tried = {probe.point.machine.name for probe in [*done, *cut] if probe.point.machine}
    distinct, where = _distinct(points, tried)
    asked = [*distinct, *(probe.point for probe in cut)]
    bounds = np.log([probe.seconds for probe in cut])
    late: list[Probe] = []
    for _ in range(2):
        mean, variance = _predict(_in_order([*done, *late]), asked, prior, bounds if late else None)
        fresh = [p for p, m, b in zip(cut, mean[len(distinct) :], bounds, strict=True) if m < b and p not in late]
        if not fresh:
            break
        late += fresh
    freedom = 3 + len(done) / 8 if len(done) >= ENOUGH_FOR_AN_ODD_ONE else 3.0
    quantile = float(stats.t.ppf(0.95, freedom))
    notes = _notes([*done, *late], distinct)
    spread = np.sqrt(variance)
    found = [estimate_from_log(float(m), float(s), quantile, n) for m, s, n in zip(mean, spread, notes, strict=False)]
    return tuple(found[i] for i in where)


def _distinct(points: Sequence[Point], tried: set[str]) -> tuple[list[Point], list[int]]:
    """The points without those that must get the same answer, and which of them each point is.

    Machines that no probe ran on are told apart by their cores alone: a catalog has many sizes and few core counts.
    """
    seen: dict[tuple[object, ...], int] = {}
    kept: list[Point] = []
    where = []
    for point in points:
        machine, parameters = point.machine, tuple(sorted(point.parameters.items()))
        kind = (machine.name if machine.name in tried else True, machine.vcpu) if machine else (False, 1.0)
        index = seen.setdefault((point.nodes, point.data_size, point.data_unit, parameters, kind), len(kept))
        if index == len(kept):
            kept.append(point)
        where.append(index)
    return kept, where


def _in_order(probes: Sequence[Probe]) -> list[Probe]:
    def key(probe: Probe) -> tuple[object, ...]:
        point = probe.point
        machine = point.machine.name if point.machine else ""
        return (point.nodes, point.data_size or 0.0, tuple(sorted(point.parameters.items())), machine, probe.seconds)

    return sorted(probes, key=key)


def _predict(
    done: Sequence[Probe], points: Sequence[Point], prior: TimePrior, bounds: Array | None
) -> tuple[Array, Array]:
    """Mean and variance of the log seconds: several models, weighed by how well each point is told by the others.

    With `bounds`, the last points are known to take at least so long; models that do not see it have little say.
    """
    known, asked = columns_of(done, points)
    log_seconds = np.log([probe.seconds for probe in done])
    known, asked = within_reach(known, asked, log_seconds)
    fewest = min(float(known.values[:, 0].min()), float(asked.values[:, 0].min()))
    shifts = [shift for shift in prior.coordinators if fewest - shift >= 0.5] or [0.0]
    # Few points cannot tell whether memory runs short somewhere: it stays possible.
    few = len(done) < ENOUGH_FOR_AN_ODD_ONE
    even = prior if few else replace(prior, spill=NEVER)
    if len(done) > MANY and len(shifts) > 1:
        shifts = [_best_shift(done, points[:1], shifts, even)]
    models = [fit_model(known, asked, log_seconds, shift, True, even) for shift in shifts]
    if few:
        # Nor whether anything but the shared part takes time: a few small clusters do not show where scaling stops.
        lean = replace(even, serial=NEVER, talk=NEVER)
        models.append(fit_model(known, asked, log_seconds, shifts[0], True, lean))
    likely = shifts[int(np.argmax([_judged(model, len(done)) for model in models[: len(shifts)]]))]
    if known.has_data and not few:
        models.append(fit_model(known, asked, log_seconds, likely, True, prior))
    if bounds is not None or (len(done) >= ENOUGH_FOR_A_REGIME and any(model.odd for model in models)):
        # How steeply short memory slows down, only many points tell.
        regime = replace(prior, spill_power=REGIME_POWER) if len(done) > MANY else even
        models.append(fit_model(known, asked, log_seconds, likely, False, regime))
    if len(done) >= ENOUGH_TO_IGNORE and len(known.names) > known.first_parameter:
        fewer, fewer_asked = known.without_parameters(), asked.without_parameters()
        models.append(fit_model(fewer, fewer_asked, log_seconds, likely, True, even))
        if models[-1].odd and len(done) >= ENOUGH_FOR_A_REGIME:
            models.append(fit_model(fewer, fewer_asked, log_seconds, likely, False, even))
    judged = np.array([_judged(model, len(done)) for model in models])
    if bounds is not None:
        short = [np.maximum(bounds - model.predict()[0][-len(bounds) :], 0.0) for model in models]
        judged -= 0.5 * (np.array(short) ** 2).sum(axis=1) / BOUND_SPREAD**2
    weights = np.exp(judged - judged.max())
    weights[weights < HARDLY_LIKELY] = 0.0
    weights /= weights.sum()
    mean, second = np.zeros(len(points)), np.zeros(len(points))
    for weight, model in zip(weights, models, strict=True):
        if weight > 0:
            middle, variance = model.predict()
            mean += weight * middle
            second += weight * (variance + middle**2)
    return mean, np.maximum(second - mean**2, 1e-12) + _beyond(known, asked)


def _beyond(known: Columns, asked: Columns) -> Array:
    """Variance for nodes and data outside what was measured: growth may go on there in another way."""
    kept = known.first_parameter
    measured, wanted = np.log(known.values[:, :kept]), np.log(asked.values[:, :kept])
    far = np.maximum(np.maximum(wanted - measured.max(axis=0), measured.min(axis=0) - wanted), 0.0)
    return np.asarray(GROWTH_SPREAD**2 / len(measured) * (far**2).sum(axis=1))


def _judged(model: Model, count: int) -> float:
    """The log weight of a model: how it tells each point from the others; its evidence as long as points are few."""
    told = model.told if count >= ENOUGH_FOR_AN_ODD_ONE else 0.0
    return told + (model.evidence if count < ENOUGH_TO_IGNORE else 0.0)


def _best_shift(done: Sequence[Probe], points: Sequence[Point], shifts: Sequence[float], prior: TimePrior) -> float:
    """The number of coordinators that a part of the points speaks for; many points agree on it."""
    some = done[:: len(done) // MANY + 1]
    known, asked = columns_of(some, points)
    log_seconds = np.log([probe.seconds for probe in some])
    evidence = [fit_model(known, asked, log_seconds, shift, True, prior).evidence for shift in shifts]
    return shifts[int(np.argmax(evidence))]


def _notes(done: Sequence[Probe], points: Sequence[Point]) -> list[tuple[str, ...]]:
    few = ("from one probe only",) if len(done) == 1 else ()
    nodes = [probe.point.nodes for probe in done]
    sizes = [probe.point.data_size or 0.0 for probe in done]
    few_nodes, many_nodes, small, large = min(nodes), max(nodes), min(sizes), max(sizes)
    machines = {probe.point.machine.name if probe.point.machine else "" for probe in done}
    out = []
    for point in points:
        notes = list(few)
        if not few_nodes / 2 <= point.nodes <= many_nodes * 2:
            notes.append("node count is outside anything measured")
        if point.data_size is not None and not small / 2 <= point.data_size <= large * 2:
            notes.append("data size is outside anything measured")
        if (point.machine.name if point.machine else "") not in machines:
            notes.append("no probe on this machine type")
        out.append(tuple(notes))
    return out
