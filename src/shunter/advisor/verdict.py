"""Verdict from one monitored run: scale up, keep, scale down, or another family, with reasons and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.machines import usage_vector
from shunter.advisor.rules import Direction, Reason, reasons_for
from shunter.advisor.values import Array, Machine, Usage, positive

# A larger size must be this much faster to be worth it, a smaller one at most this much slower.
UP_FASTER = 1.6
DOWN_SLOWER = 1.15
ENOUGH_SAMPLES = 30
CLASSES: tuple[Direction, Direction, Direction] = ("up", "keep", "down")
LIKENESS_WIDTH = 0.45
PRIOR_VOTES = 0.05
# Weight of each figure of verdict_vector in the likeness of two runs.
WEIGHTS = np.array([2, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 2, 0, 1, 0], dtype=float)


@dataclass(frozen=True)
class Advice:
    """What to do next time, why, on which evidence, and how sure (0 to 1)."""

    verdict: Direction
    reasons: tuple[Reason, ...]
    evidence: Mapping[str, float]
    confidence: float


@dataclass(frozen=True)
class VerdictExample:
    """One monitored run elsewhere, and what the next size up and the next size down did to its time."""

    fingerprint: str
    group: str
    vector: tuple[float, ...]
    faster_up: float
    slower_down: float


def advise(
    usage: Usage, machine: Machine, seconds: float, examples: Sequence[VerdictExample] = ()
) -> Advice:
    """Advice from one run; the size verdict is learned from the examples, the words come from the rules."""
    reasons = reasons_for(usage, machine)
    evidence = {key: value for reason in reasons for key, value in reason.evidence.items()}
    size, chances = size_verdict(usage, machine, seconds, examples)
    evidence |= {f"chance_{name}": round(chance, 3) for name, chance in chances.items()}
    confidence = chances.get(size, 0.5)
    verdict: Direction = size
    pointed = {reason.points_to for reason in reasons}
    if machine.gpu_count:
        verdict = next((way for way in ("fix", "up", "down", "another_family") if way in pointed), "keep")
    elif "another_family" in pointed and size != "up":
        verdict = "another_family"
    if "repeat" in pointed or usage.samples < ENOUGH_SAMPLES:
        confidence *= 0.6
    return Advice(verdict, reasons, evidence, round(min(confidence, 0.99), 3))


def size_verdict(
    usage: Usage, machine: Machine, seconds: float, examples: Sequence[VerdictExample] = ()
) -> tuple[Direction, dict[str, float]]:
    """Up, keep or down within the family, and the chance of each.

    Up means that the next size is at least 1.6 times as fast, down that the one below is at most 1.15 times slower.
    """
    positive(seconds, "seconds")
    learned = _learn(tuple(sorted(examples, key=lambda example: example.fingerprint)))
    if learned is None:
        return _by_rules(usage, machine)
    row = np.array(verdict_vector(usage, machine, seconds))
    chances = learned.chances(row[None, :])
    named = {str(name): float(chance) for name, chance in zip(CLASSES, chances[0], strict=True)}
    return _decide(chances, learned.cuts)[0], named


def verdict_vector(usage: Usage, machine: Machine, seconds: float) -> tuple[float, ...]:
    """The usage as the verdict sees it: shares of the machine, and how long it ran."""
    vector = usage_vector(usage, machine, seconds)
    runnable = usage.runnable_mean if usage.runnable_mean is not None else usage.cpu_mean * machine.vcpu
    committed = usage.memory_committed if usage.memory_committed is not None else vector[5]
    lean = math.log(machine.memory_gib / machine.vcpu)
    return (*vector, math.log(seconds), lean, math.log1p(runnable), min(committed, 3.0))


def _by_rules(usage: Usage, machine: Machine) -> tuple[Direction, dict[str, float]]:
    pointed = [reason.points_to for reason in reasons_for(usage, machine)]
    for way in ("up", "down"):
        if way in pointed:
            return way, {"up": 0.5, "keep": 0.3, "down": 0.5} | {way: 0.55}
    return "keep", {"up": 0.25, "keep": 0.5, "down": 0.25}


def _decide(chances: Array, cuts: tuple[float, float]) -> list[Direction]:
    out: list[Direction] = []
    for up, _, down in chances:
        out.append("up" if up / cuts[0] >= max(1.0, down / cuts[1]) else "down" if down >= cuts[1] else "keep")
    return out


@dataclass(frozen=True)
class _Votes:
    """Runs elsewhere that vote with the weight of their likeness, and the cuts that serve all classes best."""

    centre: Array
    scale: Array
    rows: Array
    votes: Array
    cuts: tuple[float, float]

    def chances(self, vectors: Array, groups: Sequence[str] | None = None, own: Sequence[str] = ()) -> Array:
        """Chance of each class; with `groups`, runs of a vector's own group do not vote."""
        asked = (vectors - self.centre) / self.scale
        distance = np.array([(((self.rows - row) * WEIGHTS) ** 2).sum(axis=1) for row in asked]) / (WEIGHTS**2).sum()
        if groups is not None:
            distance[np.array(own)[:, None] == np.array(groups)[None, :]] = np.inf
        nearest = distance.min(axis=1, keepdims=True)
        weight = np.exp(-(distance - nearest) / (2 * LIKENESS_WIDTH**2))
        chances = weight @ self.votes + PRIOR_VOTES * self.votes.mean(axis=0)
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))


@lru_cache(maxsize=64)
def _learn(examples: tuple[VerdictExample, ...]) -> _Votes | None:
    groups = [example.group for example in examples]
    if len(examples) < 20 or len(set(groups)) < 3:
        return None
    rows = np.array([example.vector for example in examples])
    truth = [verdict_of(example.faster_up, example.slower_down) for example in examples]
    votes = np.array([[float(said == name) for name in CLASSES] for said in truth])
    centre, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
    plain = _Votes(centre, scale, (rows - centre) / scale, votes, (0.5, 0.5))
    chances = plain.chances(rows, groups, groups)
    best = (-1.0, (0.5, 0.5))
    for up in np.quantile(chances[:, 0], np.linspace(0.3, 0.95, 20)):
        for down in np.quantile(chances[:, 2], np.linspace(0.6, 0.999, 20)):
            cuts = (max(float(up), 1e-3), max(float(down), 1e-3))
            score = macro_f1(truth, _decide(chances, cuts))
            if score > best[0]:
                best = (score, cuts)
    return _Votes(centre, scale, plain.rows, votes, best[1])


def verdict_of(faster_up: float, slower_down: float) -> Direction:
    """What the measured neighbours say."""
    return "up" if faster_up >= UP_FASTER else "down" if slower_down <= DOWN_SLOWER else "keep"


def macro_f1(truth: Sequence[str], said: Sequence[str]) -> float:
    """Mean over the classes of the harmonic mean of precision and recall."""
    scores = []
    for name in sorted(set(truth) | set(said)):
        hit = sum(t == name and s == name for t, s in zip(truth, said, strict=True))
        total = sum(t == name for t in truth) + sum(s == name for s in said)
        scores.append(2 * hit / total if total else 0.0)
    return sum(scores) / len(scores)
