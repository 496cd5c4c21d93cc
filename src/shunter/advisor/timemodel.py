"""One model of run time: the physics of a cluster, a flexible part on top, and points that may be odd.

`time` fits several of them (with coordinators or without, with a memory cliff, without parameters) and averages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from shunter.advisor.features import Columns
from shunter.advisor.physics import TimePrior, run_time_physics
from shunter.advisor.posynomial import Posynomial, fit_mode
from shunter.advisor.residual import Residual
from shunter.advisor.values import Array

# Of fewer points none can be called odd.
ENOUGH_FOR_AN_ODD_ONE = 6
# Steps after each change of the weights: the next change moves the goal anyway.
REWEIGHED_STEPS = 12
# Beyond this many points more steps are needed to find the flexible part.
MANY = 40


@dataclass(frozen=True)
class Model:
    """A fitted model: its evidence, how well each point is told by the others, whether some points were called odd;
    `predict` gives log seconds at the asked points."""

    evidence: float
    told: float
    odd: bool
    _physics: Posynomial
    _mode: Array
    _z: Array
    _z_asked: Array
    _asked: Columns
    _known: Columns
    _log_seconds: Array
    _residual: Residual
    _logs: Array
    _inverse: Array
    _extra: float
    _prior: TimePrior

    def predict(self) -> tuple[Array, Array]:
        """Mean and variance of the log seconds at the asked points."""
        model, prior = self._physics, self._prior
        base, slope = model.linearised(self._mode, self._z)
        base_asked, slope_asked = model.linearised(self._mode, self._z_asked)
        cross = (slope_asked * model.sd**2) @ slope.T
        cross += self._residual.cross(self._logs, self._asked.scaled(self._known.values))
        cross += prior.level_sd**2 + prior.machine_sd**2 * _same(self._asked.machines, self._known.machines)
        mean = base_asked + cross @ (self._inverse @ (self._log_seconds - base))
        if self._known.has_data:
            mean = np.minimum(mean, _worst(model, self._mode, self._z, self._z_asked, self._log_seconds))
        noise = float(np.exp(2 * self._logs[2]))
        spread = ((slope_asked * model.sd) ** 2).sum(axis=1) + self._residual.variance(self._logs)
        spread += prior.level_sd**2 + prior.machine_sd**2 + self._extra * noise
        variance = spread - ((cross @ self._inverse) * cross).sum(axis=1)
        return mean, np.maximum(variance, noise)


def fit_model(
    known: Columns, asked: Columns, log_seconds: Array, shift: float, robust: bool, prior: TimePrior
) -> Model:
    """Physics with `shift` coordinators and the flexible part; not `robust` takes every point at its word."""
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
    odd = float(weights.max()) > float(np.median(weights))
    if not robust:
        weights = np.minimum(weights, float(np.median(weights)))
    logs = residual.start
    evidence = 0.0
    floor = np.where(weights > 1, weights, 0.6)
    for last in (False, True):
        base, slope = model.linearised(mode, z)
        covariance = (slope * model.sd**2) @ slope.T + offsets
        steps = (25 if last else 10) if len(log_seconds) <= MANY else 80
        logs, evidence = residual.best(covariance, log_seconds - base, weights, logs, steps)
        noise = residual.covariance(logs, weights)
        if last:
            break
        mode = fit_mode(model, z, log_seconds, noise + machines, mode)
        base, slope = model.linearised(mode, z)
        total = (slope * model.sd**2) @ slope.T + offsets + noise
        surprise = np.exp(2 * logs[2]) * weights * np.linalg.solve(total, log_seconds - base)
        # Of many points a slow one is odd; of a few, one that is fast tells as much of the noise.
        late = np.maximum(surprise, 0.0) if len(surprise) >= ENOUGH_FOR_AN_ODD_ONE else surprise
        freedom = prior.outlier_freedom
        grown = (freedom + late**2 / np.exp(2 * logs[2])) / (freedom + 1)
        weights = np.maximum(floor, np.clip(grown, 0.6, 200))
    base, slope = model.linearised(mode, z)
    factor = linalg.cho_factor((slope * model.sd**2) @ slope.T + offsets + noise, lower=True, check_finite=False)
    inverse = linalg.cho_solve(factor, np.eye(len(log_seconds)), check_finite=False)
    solved = inverse @ (log_seconds - base)
    # Half of the points' worth: models that tell each other's points alike are averaged, not chosen from.
    told = -0.5 * len(solved) * float(np.log(np.abs(solved / np.diag(inverse)).mean() + 1e-4))
    extra = max(float(np.median(weights)), 1.0) - 1
    return Model(
        evidence, told, odd, model, mode, z, z_asked, asked, known, log_seconds, residual, logs, inverse, extra, prior
    )


def _worst(model: Posynomial, mode: Array, z: Array, z_asked: Array, log_seconds: Array) -> Array:
    """Log seconds that are not exceeded: no slowdown by short memory is foretold that is far beyond any seen."""
    seen = float((log_seconds - model.log_time_without_last(mode, z)).max())
    return np.asarray(model.log_time_without_last(mode, z_asked) + max(seen + np.log(1.5), np.log(3.0)))


def _robust_mode(model: Posynomial, z: Array, log_seconds: Array, prior: TimePrior) -> tuple[Array, Array]:
    """Parameters that a few points from another regime cannot pull away, and how much noisier those points are.

    Only slow points can be odd: short memory, a busy host or a failed task add time, nothing takes it away. When most
    points are off, that is noise and not another regime: all of them then count as noisier.
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
        weights = np.clip((freedom + np.maximum(gap, 0.0) ** 2 / variance) / (freedom + 1), 0.8, 1e5)
        mode = fit_mode(model, z, log_seconds, np.diag(variance * weights), mode, REWEIGHED_STEPS)
    everywhere = variance / residual.noise**2 if variance > 2 * usual else 1.0
    return mode, np.where(weights > 3, weights * variance / residual.noise**2, everywhere)


def _same(left: tuple[str, ...], right: tuple[str, ...]) -> Array:
    return np.asarray(np.array(left)[:, None] == np.array(right)[None, :], dtype=float)


