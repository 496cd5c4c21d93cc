"""The flexible part: a Gaussian process on what the physics leaves over.

Two functions are added to the sum of power laws: one of all features, rough enough for steps (a product of Matérn 5/2
kernels, one per feature), and a smooth one of the node count alone (caches that start to fit, waves of tasks).
Amplitude, length scales and noise have priors, and are found by the evidence of the whole linearised model, so the
physics keeps what it can explain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize

from shunter.advisor.values import Array


@dataclass(frozen=True)
class ResidualPrior:
    """Medians of the hyperparameters and their spread on the log scale."""

    amplitude: float = 0.05
    amplitude_sd: float = 0.6
    nodes_amplitude: float = 0.12
    nodes_amplitude_sd: float = 0.8
    noise: float = 0.02
    noise_sd: float = 0.5
    length: float = 1.0
    length_sd: float = 0.5
    nodes_length: float = 1.4


class Residual:
    """Covariances of the flexible part for fixed features; hyperparameters are a vector of logs."""

    def __init__(self, prior: ResidualPrior, features: Array, nodes_column: int) -> None:
        self._features = features
        self._nodes = nodes_column
        self._nodes_length = prior.nodes_length
        width = features.shape[1]
        self._apart = _apart(features, features)
        self._along_nodes = np.exp(-0.5 * self._apart[nodes_column] ** 2 / prior.nodes_length**2)
        self.start = np.log([prior.amplitude, prior.nodes_amplitude, prior.noise, *[prior.length] * width])
        self.spread = np.array(
            [prior.amplitude_sd, prior.nodes_amplitude_sd, prior.noise_sd, *[prior.length_sd] * width]
        )

    def covariance(self, logs: Array, noise_weights: Array) -> Array:
        """Covariance of the measured points, noise included."""
        noise = np.diag(np.exp(2 * logs[2]) * noise_weights)
        return np.asarray(_matern(logs, self._apart)[0] + np.exp(2 * logs[1]) * self._along_nodes + noise)

    def cross(self, logs: Array, features: Array) -> Array:
        """Covariance of new points with the measured ones."""
        apart = _apart(features, self._features)
        along = np.exp(2 * logs[1] - 0.5 * (apart[self._nodes] / self._nodes_length) ** 2)
        return np.asarray(_matern(logs, apart)[0] + along)

    def variance(self, logs: Array) -> float:
        """Prior variance of one new measurement, noise included."""
        return float(np.exp(2 * logs[:3]).sum())

    def best(
        self, base: Array, rest: Array, noise_weights: Array, start: Array, steps: int = 25
    ) -> tuple[Array, float]:
        """Hyperparameters of the highest posterior and its log; `base` is the covariance that physics gives."""
        diagonal = np.diag_indices(len(rest))

        def minus_log(logs: Array) -> tuple[float, Array]:
            smooth, by_length = _matern(logs, self._apart)
            along = np.exp(2 * logs[1]) * self._along_nodes
            noise = np.exp(2 * logs[2]) * noise_weights
            total = base + smooth + along
            total[diagonal] += noise
            # LAPACK itself: this is done hundreds of times for small matrices, where wrappers are most of the time.
            factor, bad = linalg.lapack.dpotrf(total, lower=1)
            if bad:
                return 1e10, np.zeros_like(logs)
            lower = linalg.lapack.dpotri(factor, lower=1)[0]
            inverse = lower + lower.T
            inverse[diagonal] *= 0.5
            solved = inverse @ rest
            pull = (logs - self.start) / self.spread
            value = 0.5 * float(rest @ solved) + float(np.log(factor[diagonal]).sum()) + 0.5 * float(pull @ pull)
            lever = inverse - solved[:, None] * solved
            weighted = lever * smooth
            lengths = 0.5 * (by_length.reshape(len(by_length), -1) @ weighted.ravel())
            slope = [weighted.sum(), (lever * along).sum(), float(lever[diagonal] @ noise), *lengths]
            return value, np.array(slope) + pull / self.spread

        bounds = [(m - 4 * s, m + 4 * s) for m, s in zip(self.start, self.spread, strict=True)]
        found = optimize.minimize(
            minus_log, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps, "ftol": 1e-6}
        )
        return np.asarray(found.x, dtype=float), -float(found.fun)


def _apart(left: Array, right: Array) -> Array:
    """Distances along each feature: feature, row of left, row of right."""
    return np.abs(left.T[:, :, None] - right.T[:, None, :])


def _matern(logs: Array, apart: Array) -> tuple[Array, Array]:
    """The product of Matérn 5/2 kernels, and its relative change with the log of each length."""
    far = np.sqrt(5.0) * np.exp(-logs[3:])[:, None, None] * apart
    square = far**2 / 3
    factors = 1 + far + square
    value = np.exp(2 * logs[0] - far.sum(axis=0)) * factors.prod(axis=0)
    return value, square * (1 + far) / factors
