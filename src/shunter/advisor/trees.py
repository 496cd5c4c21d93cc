"""A small forest of random trees for the chance of each class.

Every tree sees a random part of the groups, so each example is also judged by the trees that know nothing of its
group. Splits are drawn at random and the best of a few is taken: few examples, little to overfit with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shunter.advisor.values import Array

Indices = NDArray[np.intp]

TREES = 80
# Part of the groups that a tree sees, and of the features that a split may look at.
SEEN, LOOKED_AT = 0.75, 0.6
SMALLEST_LEAF = 3
DEEPEST = 12


@dataclass(frozen=True)
class Tree:
    """Nodes in arrays: the feature to look at (-1 in a leaf), its threshold, where to go, and the chances."""

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    below: tuple[int, ...]
    above: tuple[int, ...]
    chances: Array

    def predict(self, rows: Array) -> Array:
        """Chances of each class, one row per row."""
        feature, threshold = np.array(self.feature), np.array(self.threshold)
        below, above = np.array(self.below), np.array(self.above)
        here = np.zeros(len(rows), dtype=int)
        for _ in range(DEEPEST + 1):
            looked = feature[here]
            inner = looked >= 0
            if not inner.any():
                break
            left = rows[np.arange(len(rows)), np.maximum(looked, 0)] < threshold[here]
            here = np.where(inner, np.where(left, below[here], above[here]), here)
        return np.asarray(self.chances[here])


@dataclass(frozen=True)
class Forest:
    """Trees, and what those that did not see its group say of each example."""

    trees: tuple[Tree, ...]
    left_out: Array

    def predict(self, rows: Array) -> Array:
        """Mean chances of all trees."""
        return np.asarray(np.mean([tree.predict(rows) for tree in self.trees], axis=0))


def grow_forest(rows: Array, classes: Array, groups: Sequence[str], count: int = 3, seed: int = 0) -> Forest:
    """A forest for classes 0 to `count` - 1; rare classes weigh as much as common ones, groups are kept together."""
    rng = np.random.default_rng(seed)
    named = np.array(groups)
    every = np.unique(named)
    one_hot = np.eye(count)[classes]
    trees, said, votes = [], np.zeros((len(rows), count)), np.zeros(len(rows))
    for _ in range(TREES):
        seen = rng.choice(every, max(1, round(SEEN * len(every))), replace=False)
        known = np.isin(named, seen)
        share = one_hot[known].sum(axis=0)
        weights = one_hot[known] / np.maximum(share, 1.0)
        tree = _grow(rows[known], weights, rng)
        trees.append(tree)
        if not known.all():
            said[~known] += tree.predict(rows[~known])
            votes[~known] += 1
    prior = one_hot.mean(axis=0)
    left_out = np.where(votes[:, None] > 0, said / np.maximum(votes, 1)[:, None], prior)
    return Forest(tuple(trees), left_out)


def _grow(rows: Array, weights: Array, rng: np.random.Generator) -> Tree:
    feature: list[int] = []
    threshold: list[float] = []
    below: list[int] = []
    above: list[int] = []
    chances: list[Array] = []
    looked = max(1, round(LOOKED_AT * rows.shape[1]))

    def node(index: Indices, depth: int) -> int:
        here = len(feature)
        total = weights[index].sum(axis=0)
        chances.append(total / max(float(total.sum()), 1e-300))
        feature.append(-1)
        threshold.append(0.0)
        below.append(here)
        above.append(here)
        if depth < DEEPEST and len(index) >= 2 * SMALLEST_LEAF and (total > 0).sum() > 1:
            split = _split(rows, weights, index, rng.permutation(rows.shape[1])[:looked].astype(np.intp), rng)
            if split is not None:
                feature[here], threshold[here] = split
                left = rows[index, split[0]] < split[1]
                below[here] = node(index[left], depth + 1)
                above[here] = node(index[~left], depth + 1)
        return here

    node(np.arange(len(rows), dtype=np.intp), 0)
    return Tree(tuple(feature), tuple(threshold), tuple(below), tuple(above), np.array(chances))


def _split(
    rows: Array, weights: Array, index: Indices, columns: Indices, rng: np.random.Generator
) -> tuple[int, float] | None:
    """The purest of one random threshold per column; None when none leaves enough on both sides."""
    part = rows[np.ix_(index, columns)]
    low, high = part.min(axis=0), part.max(axis=0)
    cuts = low + rng.random(len(columns)) * (high - low)
    left = part < cuts
    inside = left.sum(axis=0)
    fair = (inside >= SMALLEST_LEAF) & (len(index) - inside >= SMALLEST_LEAF)
    if not fair.any():
        return None
    one = left.T.astype(float) @ weights[index]
    other = weights[index].sum(axis=0) - one
    purity = (one**2).sum(axis=1) / np.maximum(one.sum(axis=1), 1e-300)
    purity += (other**2).sum(axis=1) / np.maximum(other.sum(axis=1), 1e-300)
    best = int(np.argmax(np.where(fair, purity, -1.0)))
    return int(columns[best]), float(cuts[best])
