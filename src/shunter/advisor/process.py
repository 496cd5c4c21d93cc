"""Gaussian processes that learn from other workloads: features in, log ratios out, honest spread.

All outputs share one kernel (a smooth part and a linear part); its few settings are chosen so that the workloads
that are left out, a whole group at a time, are predicted best. The same left-out residuals give the intervals.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from shunter.advisor.errors import TooFewProbes
from shunter.advisor.values import Array

LENGTHS = (0.7, 1.2, 2.0, 3.5)
LINEARS = (0.0, 0.1, 1.0)
NOISES = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Process:
    """A fitted process; `predict` gives means and spreads of every output."""

    centre: Array
    scale: Array
    inputs: Array
    solved: Array
    factor: Array
    base: Array
    amplitudes: Array
    length: float
    linear: float
    noise: float
    widening: Array
    left_out: Array

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Means and standard deviations, one row per row of features, one column per output."""
        rows = (np.atleast_2d(features) - self.centre) / self.scale
        rows = np.clip(rows, -4, 4)
        cross = _kernel(rows, self.inputs, self.length, self.linear)
        own = 1.0 + self.linear * (rows**2).mean(axis=1) + self.noise
        explained = np.einsum("ij,ji->i", cross, linalg.cho_solve((self.factor, True), cross.T))
        variance = np.maximum(own - explained, self.noise * 0.5)
        return self.base + cross @ self.solved, np.sqrt(variance)[:, None] * self.amplitudes * self.widening


def fit_process(features: Array, targets: Array, groups: Sequence[str], weights: Array | None = None) -> Process:
    """Fit to targets (rows are examples); groups name what must be left out together when judging.

    Targets may hold NaN: that output is then taken at its mean for that example. `weights` above one make an
    example noisier.
    """
    features, targets = np.atleast_2d(features), np.atleast_2d(targets)
    if len(features) < 3:
        raise TooFewProbes("fewer than three other workloads to learn from", hint="Use the packaged priors.")
    targets = targets if targets.shape[0] == len(features) else targets.T
    base = np.nanmedian(targets, axis=0)
    centred = np.where(np.isnan(targets), 0.0, targets - base)
    amplitudes = np.maximum(1.4826 * np.median(np.abs(centred), axis=0), 0.5 * centred.std(axis=0)) + 1e-6
    centred = np.clip(centred, -4 * amplitudes, 4 * amplitudes)
    centre = features.mean(axis=0)
    scale = np.maximum(features.std(axis=0), 1e-9)
    inputs = np.clip((features - centre) / scale, -4, 4)
    noisy = np.ones(len(inputs)) if weights is None else weights
    blocks = _blocks(groups)
    best: tuple[float, float, float, float, Array, Array] | None = None
    for length, linear in itertools.product(LENGTHS, LINEARS):
        kernel = _kernel(inputs, inputs, length, linear)
        for noise in NOISES:
            inverse = linalg.inv(kernel + noise * np.diag(noisy))
            residual, sd = _left_out(inverse, centred, blocks)
            loss = float(np.abs(residual / amplitudes).mean())
            if best is None or loss < best[0]:
                best = (loss, length, linear, noise, residual, sd)
    assert best is not None
    _, length, linear, noise, residual, sd = best
    reach = np.abs(residual) / (sd[:, None] * amplitudes)
    widening = np.maximum(_upper(reach, 0.9) / 1.645, 0.3)
    factor = linalg.cholesky(_kernel(inputs, inputs, length, linear) + noise * np.diag(noisy), lower=True)
    solved = linalg.cho_solve((factor, True), centred)
    left_out = centred - residual + base
    return Process(
        centre, scale, inputs, solved, factor, base, amplitudes, length, linear, noise, widening, left_out
    )


def _upper(reach: Array, share: float) -> Array:
    """The share-quantile of each column, pulled towards that of all columns (few examples each)."""
    each = np.quantile(reach, min(share * (1 + 1 / len(reach)), 1.0), axis=0)
    return np.asarray(0.5 * each + 0.5 * np.quantile(reach, share))


def _kernel(left: Array, right: Array, length: float, linear: float) -> Array:
    width = left.shape[1]
    products = left @ right.T
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :] - 2 * products
    return np.asarray(np.exp(-0.5 * np.maximum(squares, 0.0) / (length**2 * width)) + linear * products / width)


def _blocks(groups: Sequence[str]) -> list[list[int]]:
    where: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        where.setdefault(group, []).append(index)
    return list(where.values())


def _left_out(inverse: Array, centred: Array, blocks: list[list[int]]) -> tuple[Array, Array]:
    """Residuals and unit spreads of every example when its whole group is left out, in closed form."""
    solved = inverse @ centred
    residual = np.empty_like(centred)
    sd = np.empty(len(centred))
    for block in blocks:
        part = linalg.inv(inverse[np.ix_(block, block)])
        residual[block] = part @ solved[block]
        sd[block] = np.sqrt(np.maximum(np.diag(part), 1e-12))
    return residual, sd
