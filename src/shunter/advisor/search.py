"""Which probe next? Ask and tell over candidates, until one more probe would not pay.

    search = Search(candidates, examples=cluster_examples())
    while (candidate := search.ask()) is not None:
        search.tell(candidate, probe)
    search.best
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.advisor.clusters import (
    Candidate,
    ClusterExample,
    cluster_table,
    draw_workloads,
    log_busy,
    log_seconds,
    slowdown,
)
from shunter.advisor.errors import AdvisorError, BadMeasurement, TooFewProbes
from shunter.advisor.values import Array, Estimate, Outcome, Usage, positive

# Small moves of the belief when it has become narrow.
_STIR = np.array([0.05, 0.15, 0.15, 0.02, 0.1, 0.1, 0.1, 0.02])


@dataclass(frozen=True)
class Goal:
    """What to look for: the cheapest run; within a deadline; or the fastest whose run costs at most `usd`."""

    deadline_seconds: float | None = None
    usd: float | None = None
    fastest: bool = False


@dataclass(frozen=True)
class SearchSettings:
    """How the search believes and dares.

    `full` is the working set's share of memory from which memory is taken as the limit; of such runs `slowed`
    are truly slowed by it. `busy_noise` is how far the log CPU share may be off what computing and waiting explain.
    A probe pays while it is expected to save `worth` of the cost of a run; `ambition` weighs the chance to be near
    the best against the expected saving.
    """

    particles: int = 6000
    noise: float = 0.12
    strangers: float = 0.5
    needless: float = 0.4
    near: float = 1.1
    full: float = 0.6
    slowed: float = 0.7
    unslowed: float = 0.01
    bound: float = 0.3
    busy_noise: float = 0.3
    worth: float = 0.03
    ambition: float = 0.001


@dataclass(frozen=True)
class Told:
    """A probe as the search remembers it."""

    candidate: Candidate
    seconds: float
    outcome: Outcome


class Search:
    """Proposes the next candidate to probe and knows the best so far; the same probes give the same proposals."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        goal: Goal | None = None,
        examples: Sequence[ClusterExample] = (),
        settings: SearchSettings | None = None,
        seed: int = 0,
    ) -> None:
        if not candidates:
            raise TooFewProbes("there are no candidates", hint="Give at least one machine type and node count.")
        self.candidates = tuple(candidates)
        self.goal = goal or Goal()
        self.told: list[Told] = []
        self._settings = settings or SearchSettings()
        self._rng = np.random.default_rng(seed)
        self._table = cluster_table(self.candidates)
        self._rates = np.log([candidate.usd_per_second for candidate in self.candidates])
        s = self._settings
        self._belief = draw_workloads(examples, s.particles, self._rng, s.strangers, s.needless)
        self._weight = np.zeros(s.particles)
        self._impossible = np.zeros(len(self.candidates), dtype=bool)
        self._refresh()

    def ask(self) -> Candidate | None:
        """The candidate that is expected to improve most, or None when one more probe would not pay."""
        gains, ranked = self._gains()
        if not np.isfinite(ranked).any() or ranked.max() <= -1:
            return None
        choice = int(np.argmax(ranked))
        if self._has_best() and gains[choice] < self._settings.worth:
            return None
        return self.candidates[choice]

    def ask_anyway(self) -> Candidate | None:
        """As `ask`, but without asking whether it pays; None when everything was tried or is impossible."""
        _, ranked = self._gains()
        return self.candidates[int(np.argmax(ranked))] if ranked.max() > -1 else None

    def tell(
        self, candidate: Candidate, seconds: float, outcome: Outcome = "completed", usage: Usage | None = None
    ) -> None:
        """Take in a probe; a run that failed or was cut off counts as one that would take at least as long."""
        positive(seconds, "seconds")
        where = self._index(candidate)
        self.told.append(Told(candidate, seconds, outcome))
        s = self._settings
        gap = self._times[:, where] - math.log(seconds)
        if outcome != "completed":
            gap = np.minimum(gap, 0.0)
        if outcome == "out_of_memory":
            self._forbid_less_memory_than(candidate)
        else:
            self._weight = self._weight - 2.5 * np.log1p((gap / s.noise) ** 2 / 4)
        peak_gib = usage.memory_peak_gib if usage is not None else None
        if outcome == "out_of_memory":
            peak_gib = candidate.machine.memory_gib
        if peak_gib is not None:
            self._believe_memory(where, peak_gib / candidate.machine.memory_gib)
        if usage is not None:
            self._believe_busy(where, usage.cpu_mean)
        self._renew()

    @property
    def best(self) -> Told:
        """The best completed probe that meets the goal."""
        done = [told for told in self.told if told.outcome == "completed"]
        if not done:
            raise TooFewProbes("no probe has ended yet", hint="Go on asking.")
        return min(done, key=lambda told: self._score(told.candidate, math.log(told.seconds)))

    def expected(self) -> tuple[Estimate, ...]:
        """Seconds on every candidate as believed now, with 90 % intervals."""
        weights = self._normal()
        out = []
        for column in self._times.T:
            order = np.argsort(column)
            passed = np.cumsum(weights[order])
            places = np.minimum(np.searchsorted(passed, (0.05, 0.5, 0.95)), len(order) - 1)
            low, mid, high = (float(value) for value in column[order][places])
            extra = 1.645 * self._settings.noise
            out.append(Estimate(math.exp(mid), math.exp(low - extra), math.exp(high + extra)))
        return tuple(out)

    def _gains(self) -> tuple[Array, Array]:
        """Expected log improvement of each candidate, and the order to try them in; -1 is never."""
        weights = self._normal()
        scores = self._scores
        near = scores <= scores.min(axis=1, keepdims=True) + math.log(self._settings.near)
        good = weights @ near
        gains, ranked = good, good
        if self._has_best():
            best = self._score(self.best.candidate, math.log(self.best.seconds))
            gains = weights @ np.clip(best - scores, 0.0, 3.0)
            ranked = gains + self._settings.ambition * good
        closed = self._impossible.copy()
        for told in self.told:
            closed[self._index(told.candidate)] = True
        return gains, np.where(closed, -1.0, ranked)

    def _score(self, candidate: Candidate, log_time: float) -> float:
        rate = float(self._rates[self._index(candidate)])
        late = self.goal.deadline_seconds is not None and log_time > math.log(self.goal.deadline_seconds)
        dear = self.goal.usd is not None and log_time + rate > math.log(self.goal.usd)
        return (log_time if self.goal.fastest else log_time + rate) + (3.0 if late or dear else 0.0)

    def _refresh(self) -> None:
        self._times = log_seconds(self._belief, self._table)
        cost = self._times + self._rates
        scores = self._times.copy() if self.goal.fastest else cost.copy()
        if self.goal.deadline_seconds is not None:
            scores += 3.0 * (self._times > math.log(self.goal.deadline_seconds))
        if self.goal.usd is not None:
            scores += 3.0 * (cost > math.log(self.goal.usd))
        self._scores = scores

    def _renew(self) -> None:
        weights = self._normal()
        count = len(weights)
        if 1 / float((weights**2).sum()) < 0.15 * count:
            kept = self._rng.choice(count, count, p=weights)
            self._belief = self._belief[kept] + self._rng.standard_normal((count, 8)) * _STIR
            self._weight = np.zeros(count)
            self._refresh()

    def _believe_memory(self, where: int, share: float) -> None:
        s = self._settings
        chance = s.slowed if share > s.full else s.unslowed
        slow = slowdown(self._belief, self._table[where : where + 1])[:, 0] > s.bound
        self._weight = self._weight + np.log(np.where(slow, chance, 1 - chance))

    def _believe_busy(self, where: int, cpu_share: float) -> None:
        least, most = log_busy(self._belief, self._table[where : where + 1])
        seen = math.log(max(cpu_share, 0.01))
        gap = np.maximum(least[:, 0] - seen, 0.0) + np.maximum(seen - most[:, 0], 0.0)
        self._weight = self._weight - 2.5 * np.log1p((gap / self._settings.busy_noise) ** 2 / 4)

    def _forbid_less_memory_than(self, candidate: Candidate) -> None:
        for index, other in enumerate(self.candidates):
            if other.memory_gib <= candidate.memory_gib and other.machine.memory_gib <= candidate.machine.memory_gib:
                self._impossible[index] = True

    def _has_best(self) -> bool:
        return any(told.outcome == "completed" for told in self.told)

    def _normal(self) -> Array:
        weights = np.exp(self._weight - self._weight.max())
        return np.asarray(weights / weights.sum())

    def _index(self, candidate: Candidate) -> int:
        try:
            return self.candidates.index(candidate)
        except ValueError:
            raise BadMeasurement(
                f"{candidate.nodes} x {candidate.machine.name} is not a candidate", hint="Tell what was asked."
            ) from None


__all__ = ["AdvisorError", "Candidate", "Goal", "Search", "SearchSettings", "Told"]
