"""Verdict from one monitored run: scale up, keep, scale down, or another family, with reasons and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shunter.advisor.machines import usage_vector
from shunter.advisor.rules import Direction, Reason, reasons_for
from shunter.advisor.trees import Forest, grow_forest
from shunter.advisor.values import Array, Machine, Usage, positive

# A larger size must be this much faster to be worth it, a smaller one at most this much slower.
UP_FASTER = 1.6
DOWN_SLOWER = 1.15
ENOUGH_SAMPLES = 30
# Chances, all classes taken as equally common, from which up and down are said.
UP_CUTS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)
DOWN_CUTS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
CLASSES: tuple[Direction, Direction, Direction] = ("up", "keep", "down")


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
    even = learned.forest.predict(row[None, :])
    # The forest takes all classes as equally common; the chances say how often each is.
    chances = even[0] * learned.common / float(even[0] @ learned.common)
    named = {str(name): float(chance) for name, chance in zip(CLASSES, chances, strict=True)}
    return _decide(even, learned.cuts)[0], named


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
class _Learned:
    """The forest, how common each class is, and the cuts that serve all classes best on programs left out."""

    forest: Forest
    common: Array
    cuts: tuple[float, float]


@lru_cache(maxsize=64)
def _learn(examples: tuple[VerdictExample, ...]) -> _Learned | None:
    groups = [example.group for example in examples]
    if len(examples) < 20 or len(set(groups)) < 3:
        return None
    rows = np.array([example.vector for example in examples])
    truth = [verdict_of(example.faster_up, example.slower_down) for example in examples]
    classes = np.array([CLASSES.index(said) for said in truth])
    forest = grow_forest(rows, classes, groups)
    best = (-1.0, (0.4, 0.4))
    for up in UP_CUTS:
        for down in DOWN_CUTS:
            score = macro_f1(truth, _decide(forest.left_out, (up, down)))
            if score > best[0]:
                best = (score, (up, down))
    return _Learned(forest, np.bincount(classes, minlength=3) / len(classes), best[1])


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
