"""Verdict from one monitored run: scale up, keep, scale down, or another family, with reasons and evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from shunter.advisor.machines import chance_faster, usage_vector
from shunter.advisor.rules import Direction, Reason, reasons_for
from shunter.advisor.similar import MachineExample
from shunter.advisor.trees import Forest, grow_forest
from shunter.advisor.values import Array, Machine, Point, Probe, Usage, positive

# A larger size must be this much faster to be worth it, a smaller one at most this much slower.
UP_FASTER = 1.6
DOWN_SLOWER = 1.15
ENOUGH_SAMPLES = 30
# Chances, both classes taken as equally common, from which up is said.
UP_CUTS = (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
# Chance of a foreseen gain from which up is said. F1 gains from saying a class more often until its chance is half of
# the F1 that is within reach, here about 0.7.
UP_CHANCE = 0.35
# Places in a verdict vector: the mean CPU share and the log seconds.
CPU, LOG_SECONDS = 0, 11


@dataclass(frozen=True)
class Advice:
    """What to do next time, why, on which evidence, and how sure (0 to 1)."""

    verdict: Direction
    reasons: tuple[Reason, ...]
    evidence: Mapping[str, float]
    confidence: float


@dataclass(frozen=True)
class VerdictExample:
    """One monitored run elsewhere, and what the next size up and the next size down did to its time.

    The two are ratios of medians; `steady_down` is that of the fastest repetitions (the same when it is not known).
    """

    fingerprint: str
    group: str
    vector: tuple[float, ...]
    faster_up: float
    slower_down: float
    steady_down: float | None = None


def advise(
    usage: Usage,
    machine: Machine,
    seconds: float,
    examples: Sequence[VerdictExample] = (),
    machines: Sequence[Machine] = (),
    measured: Sequence[MachineExample] = (),
) -> Advice:
    """Advice from one run; the size verdict is learned from the examples, the words come from the rules."""
    reasons = reasons_for(usage, machine)
    evidence = {key: value for reason in reasons for key, value in reason.evidence.items()}
    size, chances = size_verdict(usage, machine, seconds, examples, machines, measured)
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
    usage: Usage,
    machine: Machine,
    seconds: float,
    examples: Sequence[VerdictExample] = (),
    machines: Sequence[Machine] = (),
    measured: Sequence[MachineExample] = (),
) -> tuple[Direction, dict[str, float]]:
    """Up, keep or down within the family, and the chance of each.

    Up means that the next size is at least 1.6 times as fast, down that the one below is at most 1.15 times slower.
    With `machines` (the catalog) and workloads that were `measured` on them, up is what is foreseen of the next size.
    """
    positive(seconds, "seconds")
    known = tuple(sorted(examples, key=lambda example: example.fingerprint))
    common = _common_up(known)
    if not 0 < common < 1:
        return _by_rules(usage, machine)
    row = np.array(verdict_vector(usage, machine, seconds))
    down = _learn_down(known).chance(row)
    foreseen = _foreseen(usage, machine, seconds, machines, measured)
    if foreseen is not None:
        rises = (1 - down) * foreseen
        chances = {"up": rises, "keep": 1 - down - rises, "down": down}
        return "down" if down >= 0.5 else "up" if foreseen >= UP_CHANCE else "keep", chances
    forest, cut = _learn_up(known)
    up = float(forest.predict(row[None, :])[0, 0])
    # The forest takes both classes as equally common; the chances say how often each is.
    odds = up / max(1 - up, 1e-9) * common / (1 - common)
    rises = (1 - down) * odds / (1 + odds)
    chances = {"up": rises, "keep": 1 - down - rises, "down": down}
    return "down" if down >= 0.5 else "up" if up >= cut else "keep", chances


def verdict_vector(usage: Usage, machine: Machine, seconds: float) -> tuple[float, ...]:
    """The usage as the verdict sees it: shares of the machine, and how long it ran."""
    vector = usage_vector(usage, machine, seconds)
    runnable = usage.runnable_mean if usage.runnable_mean is not None else usage.cpu_mean * machine.vcpu
    committed = usage.memory_committed if usage.memory_committed is not None else vector[5]
    lean = math.log(machine.memory_gib / machine.vcpu)
    return (*vector, math.log(seconds), lean, math.log1p(runnable), min(committed, 3.0))


def _foreseen(
    usage: Usage, machine: Machine, seconds: float, machines: Sequence[Machine], measured: Sequence[MachineExample]
) -> float | None:
    """Chance that the next size of the family is worth it, from workloads measured on it."""
    larger = [other for other in machines if other.family == machine.family and other.vcpu > machine.vcpu]
    if not larger or not measured:
        return None
    probe = Probe(Point(machine=machine), seconds, usage=usage)
    return chance_faster(probe, min(larger, key=lambda other: other.vcpu), machines, measured, UP_FASTER)


def _by_rules(usage: Usage, machine: Machine) -> tuple[Direction, dict[str, float]]:
    pointed = [reason.points_to for reason in reasons_for(usage, machine)]
    for way in ("up", "down"):
        if way in pointed:
            return way, {"up": 0.5, "keep": 0.3, "down": 0.5} | {way: 0.55}
    return "keep", {"up": 0.25, "keep": 0.5, "down": 0.25}


@dataclass(frozen=True)
class _Shrinking:
    """How much slower the next size down is: a line over 1 / seconds and the CPU share.

    With half the processors what they share takes twice as long and start-up as long as before: 2 - start / seconds;
    the same holds for phases that keep only one of them busy, so the ratio is a line in the CPU share, too.
    """

    line: Array
    spread: float

    def chance(self, row: Array) -> float:
        """Chance that the smaller size is at most so much slower that it pays."""
        gap = (DOWN_SLOWER - float(_causes(row[None, :])[0] @ self.line)) / self.spread
        return float(special.ndtr(gap))


def _common_up(examples: tuple[VerdictExample, ...]) -> float:
    """How common "up" is; 0 when too few are known to learn from."""
    if len(examples) < 20 or len({example.group for example in examples}) < 3:
        return 0.0
    return sum(_is_up(example) for example in examples) / len(examples)


def _is_up(example: VerdictExample) -> bool:
    return verdict_of(example.faster_up, example.slower_down) == "up"


@lru_cache(maxsize=64)
def _learn_up(examples: tuple[VerdictExample, ...]) -> tuple[Forest, float]:
    """The forest for "up", and the cut that serves best on programs left out."""
    rows = np.array([example.vector for example in examples])
    truth = [_is_up(example) for example in examples]
    forest = grow_forest(rows, np.where(truth, 0, 1), [example.group for example in examples], count=2)
    named = [str(up) for up in truth]
    scores = [macro_f1(named, [str(bool(up)) for up in forest.left_out[:, 0] >= cut]) for cut in UP_CUTS]
    return forest, UP_CUTS[int(np.argmax(scores))]


@lru_cache(maxsize=64)
def _learn_down(examples: tuple[VerdictExample, ...]) -> _Shrinking:
    rows = np.array([example.vector for example in examples])
    down = np.array([example.steady_down or example.slower_down for example in examples])
    return _shrinking(_causes(rows), down)


def _causes(rows: Array) -> Array:
    return np.column_stack([np.ones(len(rows)), np.exp(-rows[:, LOG_SECONDS]), rows[:, CPU]])


def _shrinking(causes: Array, down: Array) -> _Shrinking:
    """A line that runs with other accidents do not pull: weights as of a Student distribution with four degrees."""
    weights, spread = np.ones(len(down)), 1.0
    line: Array = np.zeros(causes.shape[1])
    for _ in range(20):
        root = np.sqrt(weights)
        line = np.asarray(np.linalg.lstsq(causes * root[:, None], down * root, rcond=None)[0])
        off = down - causes @ line
        spread = max(1.4826 * float(np.median(np.abs(off))), 0.01)
        weights = 5 / (4 + (off / spread) ** 2)
    return _Shrinking(line, spread)


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
