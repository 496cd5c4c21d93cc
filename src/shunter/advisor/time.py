"""Run time of a workload over nodes, data size, parameters and machine type, from a few measured points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import linalg, stats

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.features import Columns, columns_of
from shunter.advisor.physics import TimePrior, run_time_physics
from shunter.advisor.posynomial import Posynomial, fit_mode
from shunter.advisor.residual import Residual, ResidualPrior
from shunter.advisor.values import Array, Estimate, Point, Probe, estimate_from_log

# Of fewer points none can be called odd.
ENOUGH_FOR_AN_ODD_ONE = 6
# With this many points, the odd ones may be a regime of their own (memory ran short) and not accidents.
ENOUGH_FOR_A_REGIME = 12
# With many points the free model is believed even when it seems this much worse: the others look good on the points
# that they call odd.
PREFER_FREE = 1.3
# Beyond this many, one choice of the coordinators is made on a part of the points, and physics may be overruled.
MANY = 40
FREE = ResidualPrior(amplitude=0.5, amplitude_sd=1.5, noise=0.02, noise_sd=0.8, length=1.0, length_sd=1.0)


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
    for _ in range(2):
        beyond = [probe.point for probe in cut]
        mean, variance = _predict(done, [*points, *beyond], prior)
        late = [probe for probe, m in zip(cut, mean[len(points) :], strict=True) if m < np.log(probe.seconds)]
        if not late:
            break
        done, cut = _in_order([*done, *late]), [probe for probe in cut if probe not in late]
    quantile = float(stats.t.ppf(0.95, 3 + len(done) / 8))
    notes = _notes(done, points)
    return tuple(
        estimate_from_log(float(m), float(np.sqrt(v)), quantile, n)
        for m, v, n in zip(mean[: len(points)], variance[: len(points)], notes, strict=True)
    )


def _in_order(probes: Sequence[Probe]) -> list[Probe]:
    def key(probe: Probe) -> tuple[object, ...]:
        point = probe.point
        machine = point.machine.name if point.machine else ""
        return (point.nodes, point.data_size or 0.0, tuple(sorted(point.parameters.items())), machine, probe.seconds)

    return sorted(probes, key=key)


def _predict(done: Sequence[Probe], points: Sequence[Point], prior: TimePrior) -> tuple[Array, Array]:
    known, asked = columns_of(done, points)
    log_seconds = np.log([probe.seconds for probe in done])
    fewest = min(float(known.values[:, 0].min()), float(asked.values[:, 0].min()))
    shifts = [shift for shift in prior.coordinators if fewest - shift >= 0.5] or [0.0]
    if len(done) > MANY and len(shifts) > 1:
        shifts = [_best_shift(done, points[:1], shifts, prior)]
    answers = [_one_model(known, asked, log_seconds, shift, True, prior) for shift in shifts]
    if len(done) >= ENOUGH_FOR_A_REGIME:
        likely = shifts[int(np.argmax([answer[2] for answer in answers]))]
        answers.append(_one_model(known, asked, log_seconds, likely, False, prior))
        if len(done) > MANY:
            answers.append(_one_model(known, asked, log_seconds, likely, False, replace(prior, residual=FREE, spill=-30.0)))
    judged = np.array([answer[3 if len(done) >= ENOUGH_FOR_A_REGIME else 2] for answer in answers])
    if len(done) > MANY:
        judged[-1] += 0.5 * len(done) * np.log(PREFER_FREE)
    weights = np.exp(judged - judged.max())
    weights /= weights.sum()
    mean = sum((w * answer[0] for w, answer in zip(weights, answers, strict=True)), np.zeros(len(points)))
    second = sum((w * (a[1] + a[0] ** 2) for w, a in zip(weights, answers, strict=True)), np.zeros(len(points)))
    return mean, np.maximum(second - mean**2, 1e-12)


def _best_shift(done: Sequence[Probe], points: Sequence[Point], shifts: Sequence[float], prior: TimePrior) -> float:
    """The number of coordinators that a part of the points speaks for; many points agree on it."""
    some = done[:: len(done) // MANY + 1]
    known, asked = columns_of(some, points)
    log_seconds = np.log([probe.seconds for probe in some])
    evidence = [_one_model(known, asked, log_seconds, shift, True, prior)[2] for shift in shifts]
    return shifts[int(np.argmax(evidence))]


def _one_model(
    known: Columns, asked: Columns, log_seconds: Array, shift: float, robust: bool, prior: TimePrior
) -> tuple[Array, Array, float, float]:
    """Mean and variance at the asked points, the evidence, and how well each point is told by the others."""
    z, z_asked = known.logs(shift, known.values), asked.logs(shift, known.values)
    z[:, 0] += np.log(known.cores)
    z_asked[:, 0] += np.log(asked.cores)
    centre = z.mean(axis=0)
    z, z_asked = z - centre, z_asked - centre
    model = run_time_physics(known, np.concatenate([z, z_asked]), float(np.median(log_seconds)), prior)
    residual = Residual(prior.residual, known.scaled(known.values), 0)
    machines = prior.machine_sd**2 * _same(known.machines, known.machines)
    offsets = prior.level_sd**2 + machines
    mode, weights = _robust_mode(model, z, log_seconds, prior)
    if not robust:
        weights = np.minimum(weights, float(np.median(weights)))
    logs = residual.start
    evidence = 0.0
    floor = np.where(weights > 1, weights, 0.6)
    for last in (False, True):
        base, slope = model.linearised(mode, z)
        covariance = (slope * model.sd**2) @ slope.T + offsets
        steps = 25 if len(log_seconds) <= MANY else 80
        logs, evidence = residual.best(covariance, log_seconds - base, weights, logs, steps)
        noise = residual.covariance(logs, weights)
        if last:
            break
        mode = fit_mode(model, z, log_seconds, noise + machines, mode)
        base, slope = model.linearised(mode, z)
        total = (slope * model.sd**2) @ slope.T + offsets + noise
        surprise = np.exp(2 * logs[2]) * weights * np.linalg.solve(total, log_seconds - base)
        freedom = prior.outlier_freedom
        grown = (freedom + surprise**2 / np.exp(2 * logs[2])) / (freedom + 1)
        weights = np.maximum(floor, np.clip(grown, 0.6, 200))
    base, slope = model.linearised(mode, z)
    base_asked, slope_asked = model.linearised(mode, z_asked)
    cross = (slope_asked * model.sd**2) @ slope.T + residual.cross(logs, asked.scaled(known.values))
    cross += prior.level_sd**2 + prior.machine_sd**2 * _same(asked.machines, known.machines)
    factor = linalg.cho_factor((slope * model.sd**2) @ slope.T + offsets + noise, lower=True, check_finite=False)
    inverse = linalg.cho_solve(factor, np.eye(len(log_seconds)), check_finite=False)
    solved = inverse @ (log_seconds - base)
    # Half of the points' worth: models that tell each other's points alike are averaged, not chosen from.
    told = -0.5 * len(solved) * float(np.log(np.abs(solved / np.diag(inverse)).mean() + 1e-4))
    mean = base_asked + cross @ solved
    if known.has_data:
        mean = np.minimum(mean, _worst(model, mode, z, z_asked, log_seconds))
    spread = ((slope_asked * model.sd) ** 2).sum(axis=1) + residual.variance(logs)
    spread += prior.level_sd**2 + prior.machine_sd**2 + (max(float(np.median(weights)), 1.0) - 1) * np.exp(2 * logs[2])
    variance = spread - ((cross @ inverse) * cross).sum(axis=1)
    return mean, np.maximum(variance, np.exp(2 * logs[2])), evidence, told


def _worst(model: Posynomial, mode: Array, z: Array, z_asked: Array, log_seconds: Array) -> Array:
    """Log seconds that are not exceeded: no slowdown by short memory is foretold that is far beyond any seen."""
    seen = float((log_seconds - model.log_time_without_last(mode, z)).max())
    return np.asarray(model.log_time_without_last(mode, z_asked) + max(seen + np.log(1.5), np.log(3.0)))


def _robust_mode(model: Posynomial, z: Array, log_seconds: Array, prior: TimePrior) -> tuple[Array, Array]:
    """Parameters that a few points from another regime cannot pull away, and how much noisier those points are.

    When most points are off, that is noise and not another regime: all of them then count as noisier.
    """
    residual = prior.residual
    usual = residual.noise**2 + residual.amplitude**2
    variance, weights = usual, np.ones(len(log_seconds))
    mode = fit_mode(model, z, log_seconds, np.diag(variance * weights))
    for _ in range(4 if len(log_seconds) >= ENOUGH_FOR_AN_ODD_ONE else 0):
        gap = log_seconds - model.log_time(mode, z)[0]
        if float(np.abs(gap).max()) < 3 * usual**0.5:
            break
        variance = max(usual, (1.4826 * float(np.median(np.abs(gap)))) ** 2)
        freedom = prior.outlier_freedom
        weights = np.clip((freedom + gap**2 / variance) / (freedom + 1), 0.8, 1e5)
        mode = fit_mode(model, z, log_seconds, np.diag(variance * weights), mode)
    everywhere = variance / residual.noise**2 if variance > 2 * usual else 1.0
    return mode, np.where(weights > 3, weights * variance / residual.noise**2, everywhere)


def _same(left: tuple[str, ...], right: tuple[str, ...]) -> Array:
    return np.asarray(np.array(left)[:, None] == np.array(right)[None, :], dtype=float)


def _notes(done: Sequence[Probe], points: Sequence[Point]) -> list[tuple[str, ...]]:
    few = ("from one probe only",) if len(done) == 1 else ()
    nodes = [probe.point.nodes for probe in done]
    sizes = [probe.point.data_size or 0.0 for probe in done]
    machines = {probe.point.machine.name if probe.point.machine else "" for probe in done}
    out = []
    for point in points:
        notes = list(few)
        if not min(nodes) / 2 <= point.nodes <= max(nodes) * 2:
            notes.append("node count is outside anything measured")
        if point.data_size is not None and not min(sizes) / 2 <= point.data_size <= max(sizes) * 2:
            notes.append("data size is outside anything measured")
        if (point.machine.name if point.machine else "") not in machines:
            notes.append("no probe on this machine type")
        out.append(tuple(notes))
    return out
