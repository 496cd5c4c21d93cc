"""Sums of power laws: the physics that run times follow.

A run takes a serial part, a part that more nodes share, a part that grows with the data, a part that talks:
each is a monomial exp(level) * prod(x_j ** exponent_j), and the time is their sum. Ernest's form is the special
case with fixed exponents. Here levels and exponents have Gaussian priors, so that three points already say
something, and everything is fitted on the log of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from shunter.advisor.values import Array


@dataclass(frozen=True)
class Term:
    """One monomial: the prior of its log level and of its exponents, one per feature."""

    level: float
    level_sd: float
    exponents: Sequence[float]
    exponent_sds: Sequence[float]


class Posynomial:
    """log t = log sum_k exp(level_k + exponents_k . z), with z the log features.

    Parameters travel as one vector: all levels, then the exponents whose prior is not a point.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self._levels = len(terms)
        self._exponents = np.array([term.exponents for term in terms], dtype=float)
        sds = np.array([term.exponent_sds for term in terms], dtype=float)
        self._free = sds > 0
        self._of_term, self._of_feature = np.nonzero(self._free)
        self.mean = np.concatenate([[term.level for term in terms], self._exponents[self._free]])
        self.sd = np.concatenate([[term.level_sd for term in terms], sds[self._free]])

    def log_time(self, parameters: Array, z: Array) -> tuple[Array, Array]:
        """The log of the sum at each row of z, and its derivative by every parameter."""
        exponents = self._exponents.copy()
        exponents[self._free] = parameters[self._levels :]
        parts = parameters[: self._levels] + z @ exponents.T
        top = parts.max(axis=1, keepdims=True)
        weights = np.exp(parts - top)
        total = weights.sum(axis=1, keepdims=True)
        weights /= total
        by_exponent = weights[:, self._of_term] * z[:, self._of_feature]
        return (top + np.log(total))[:, 0], np.concatenate([weights, by_exponent], axis=1)

    def log_time_without_last(self, parameters: Array, z: Array) -> Array:
        """The log of the sum of all terms but the last."""
        exponents = self._exponents.copy()
        exponents[self._free] = parameters[self._levels :]
        parts = (parameters[: self._levels] + z @ exponents.T)[:, :-1]
        return np.asarray(np.logaddexp.reduce(parts, axis=1))

    def linearised(self, parameters: Array, z: Array) -> tuple[Array, Array]:
        """Prior mean at z and its design matrix when the sum is replaced by its tangent at the parameters."""
        value, slope = self.log_time(parameters, z)
        return value - slope @ (parameters - self.mean), slope


def fit_mode(
    model: Posynomial, z: Array, log_seconds: Array, noise: Array, start: Array | None = None, steps: int = 25
) -> Array:
    """The most probable parameters when the residuals have the covariance `noise`; damped Gauss-Newton."""
    factor = linalg.cholesky(noise, lower=True, check_finite=False)
    whiten = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True, check_finite=False)
    here = model.mean.copy() if start is None else start.copy()
    residual, pull, slope, cost = _state(model, here, z, log_seconds, whiten)
    damping = 1e-3
    diagonal = np.diag_indices(len(here))
    for _ in range(steps):
        flat = whiten @ slope
        curvature = flat.T @ flat
        curvature[diagonal] = (curvature[diagonal] + 1 / model.sd**2) * (1 + damping)
        ascent = flat.T @ residual - pull / model.sd
        step = linalg.lapack.dposv(curvature, ascent, lower=1)[1]
        tried = _state(model, here + step, z, log_seconds, whiten)
        if tried[3] < cost:
            gained = cost - tried[3]
            here = here + step
            residual, pull, slope, cost = tried
            damping = max(damping / 5, 1e-6)
            if gained < 1e-5 * max(1.0, abs(cost)):
                break
        else:
            damping *= 5
            if damping > 1e5:
                break
    return here


def _state(
    model: Posynomial, parameters: Array, z: Array, log_seconds: Array, whiten: Array
) -> tuple[Array, Array, Array, float]:
    value, slope = model.log_time(parameters, z)
    residual = whiten @ (log_seconds - value)
    pull = (parameters - model.mean) / model.sd
    return residual, pull, slope, 0.5 * float(residual @ residual + pull @ pull)
