"""Ask and tell: finds the cheapest in few probes, stops, and stays away from too little memory."""

from __future__ import annotations

import numpy as np
import pytest

from shunter.advisor.clusters import (
    START,
    TALK,
    Candidate,
    ClusterExample,
    cluster_table,
    draw_workloads,
    learn_cluster,
    log_busy,
    log_seconds,
)
from shunter.advisor.errors import BadMeasurement, TooFewProbes
from shunter.advisor.search import Goal, Search
from shunter.advisor.values import Machine, Usage

LEAN = [Machine(f"lean{v}", v, 2 * v, 0.05 * v) for v in (2, 4, 8)]
ROOMY = [Machine(f"roomy{v}", v, 8 * v, 0.067 * v) for v in (2, 4, 8)]
CANDIDATES = [Candidate(machine, nodes) for machine in LEAN + ROOMY for nodes in (4, 8, 16)]


def seconds(candidate: Candidate, need_gib: float = 0.0) -> float:
    work = 8000 / (candidate.machine.vcpu * candidate.nodes)
    slow = 4.0 if candidate.memory_gib < need_gib else 1.0
    return 60 + work * slow + 2 * candidate.nodes


def usage(candidate: Candidate, need_gib: float) -> Usage:
    share = min(need_gib / candidate.memory_gib, 1.0) * 0.8
    return Usage(0.7, memory_peak_gib=share * candidate.machine.memory_gib)


def look(search: Search, need_gib: float, most: int = 18) -> int:
    for trial in range(most):
        candidate = search.ask()
        if candidate is None:
            return trial
        search.tell(candidate, seconds(candidate, need_gib), usage=usage(candidate, need_gib))
    return most


def usd(candidate: Candidate, need_gib: float) -> float:
    return seconds(candidate, need_gib) * candidate.usd_per_second


@pytest.mark.parametrize("need_gib", [5.0, 100.0])
def test_the_cheapest_is_found_and_the_search_stops_before_trying_all(need_gib: float) -> None:
    search = Search(CANDIDATES)
    trials = look(search, need_gib)
    best = min(usd(candidate, need_gib) for candidate in CANDIDATES)
    assert trials < len(CANDIDATES)
    assert usd(search.best.candidate, need_gib) <= 1.3 * best


def test_what_ran_out_of_memory_and_anything_smaller_is_never_proposed_again() -> None:
    search = Search(CANDIDATES)
    failed = CANDIDATES[4]
    search.tell(failed, 30.0, "out_of_memory")
    for _ in CANDIDATES:
        candidate = search.ask_anyway()
        if candidate is None:
            break
        assert candidate.memory_gib > failed.memory_gib or candidate.machine.memory_gib > failed.machine.memory_gib
        search.tell(candidate, seconds(candidate))


def test_the_fastest_and_the_deadline_are_goals_too() -> None:
    fast = Search(CANDIDATES, Goal(fastest=True))
    look(fast, 0.0)
    cheap = Search(CANDIDATES)
    look(cheap, 0.0)
    assert fast.best.seconds < cheap.best.seconds
    hurried = Search(CANDIDATES, Goal(deadline_seconds=250.0))
    look(hurried, 0.0)
    assert hurried.best.seconds <= 250


def test_the_same_probes_give_the_same_proposals() -> None:
    asked = []
    for _ in range(2):
        search = Search(CANDIDATES, seed=3)
        first = search.ask()
        assert first is not None
        search.tell(first, seconds(first))
        asked.append((first, search.ask()))
    assert asked[0] == asked[1]


def test_a_catalog_without_prices_is_searched_by_time() -> None:
    free = [Candidate(Machine("m", 4, 16), nodes) for nodes in (1, 2, 4)]
    search = Search(free)
    while (candidate := search.ask()) is not None:
        search.tell(candidate, 1000 / candidate.nodes + 10)
    assert search.best.candidate.nodes == 4


def test_wrong_calls_are_refused() -> None:
    with pytest.raises(TooFewProbes):
        Search([])
    search = Search(CANDIDATES[:2])
    with pytest.raises(TooFewProbes):
        _ = search.best
    with pytest.raises(BadMeasurement):
        search.tell(CANDIDATES[5], 10.0)
    with pytest.raises(BadMeasurement):
        search.tell(CANDIDATES[0], 0.0)


def test_expected_seconds_narrow_around_what_was_told() -> None:
    search = Search(CANDIDATES)
    before = search.expected()[0]
    search.tell(CANDIDATES[0], seconds(CANDIDATES[0]), usage=usage(CANDIDATES[0], 1.0))
    after = search.expected()[0]
    assert after.log_sd < before.log_sd
    assert after.covers(seconds(CANDIDATES[0]))


def test_an_idle_cluster_says_that_more_cores_will_not_help() -> None:
    waits = ClusterExample("w", "g", (7.0, 7.0, 1.0, 0.1, -3.0, 0.5, 1.6, 0.0))
    works = ClusterExample("x", "h", (9.5, 4.0, 1.0, 0.1, -3.0, 0.5, 1.6, 0.0))
    small, large = CANDIDATES[0], CANDIDATES[8]
    expected = {}
    for cpu in (0.1, 0.95):
        search = Search(CANDIDATES, examples=[waits, works])
        search.tell(small, 1000.0, usage=Usage(cpu, memory_peak_gib=0.5))
        expected[cpu] = search.expected()[CANDIDATES.index(large)].median
    assert expected[0.1] > 2 * expected[0.95]


def test_the_cpu_share_lies_between_work_alone_and_work_slowed_by_memory() -> None:
    numbers = draw_workloads([], 50, np.random.default_rng(0), 1.0, 0.4)
    table = cluster_table(CANDIDATES)
    least, most = log_busy(numbers, table)
    waiting = np.exp(numbers[:, [START]]) + np.exp(numbers[:, [TALK]]) * table[:, 3]
    assert (least <= most).all()
    assert np.allclose(np.exp(most), 1 - waiting / np.exp(log_seconds(numbers, table)))


def test_examples_of_other_workloads_are_learned() -> None:
    example = learn_cluster("f", "g", CANDIDATES, [seconds(c, 100.0) for c in CANDIDATES], [True] * len(CANDIDATES))
    assert len(example.numbers) == 8
    assert Search(CANDIDATES, examples=[example]).ask() in CANDIDATES
