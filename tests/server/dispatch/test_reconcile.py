"""Decisions as tables: given, expected, and nothing else happened."""

from __future__ import annotations

import pytest

from shunter.drivers.base import Absent, Capacity, Ended, Gone, Provisioning, Running, Sign, Unknown
from shunter.model.run import MOVES, OVER, Launch, LaunchState, Outcome, Run, Status, may_move
from shunter.server.dispatch import reconcile
from shunter.server.dispatch.explain import explain
from shunter.server.dispatch.moves import ForbiddenMove, move
from shunter.server.dispatch.place import Pool, begin_attempt, choose, fits
from shunter.server.dispatch.reconcile import CancelOnNode, Change, FetchHome, LaunchAgain

GOOD = Outcome(kind="completed", exit_code=0, started_at=5.0, ended_at=9.0)
BAD = Outcome(kind="failed", exit_code=3, code="script_failed", message="exit code 3", ended_at=9.0)
CANCELED = Outcome(kind="canceled", exit_code=143, ended_at=9.0)


def a_run(status: Status = Status.RUNNING, **changes: object) -> Run:
    run = Run(
        id="a" * 32, workspace="w", experiment="e", name="n", target="t", status=status, snapshot_id="0" * 64,
        script="train.py", arguments=(), config={}, submitted_at=1.0, since=2.0, attempt=1,
    )  # fmt: skip
    return run.evolve(**changes)


def a_launch(state: LaunchState = LaunchState.STARTED, index: int = 0, attempt: int = 1, **changes: object) -> Launch:
    return Launch("a" * 32, attempt, index, state, intended_at=2.0).evolve(**changes)


@pytest.mark.parametrize(
    ("before", "outcome", "after", "exit_code"),
    [
        (Status.RUNNING, GOOD, Status.COMPLETED, 0),
        (Status.STARTING, GOOD, Status.COMPLETED, 0),
        (Status.FINALIZING, GOOD, Status.COMPLETED, 0),
        (Status.NOT_RESPONDING, GOOD, Status.COMPLETED, 0),
        (Status.RUNNING, BAD, Status.FAILED, 3),
        (Status.RUNNING, CANCELED, Status.CANCELED, 143),
    ],
)
def test_an_outcome_decides_the_state(before: Status, outcome: Outcome, after: Status, exit_code: int) -> None:
    change = reconcile.on_outcome(a_run(before), a_launch(), [a_launch()], outcome, 10.0)
    assert change.run is not None
    assert (change.run.status, change.run.exit_code) == (after, exit_code)
    assert [e.status for e in change.events] == [after]
    assert change.actions == ()


@pytest.mark.parametrize(("outcome", "after"), [(GOOD, Status.COMPLETED), (CANCELED, Status.CANCELED), (BAD, Status.FAILED)])
def test_a_canceled_run_that_ended_by_itself_keeps_its_own_outcome(outcome: Outcome, after: Status) -> None:
    run = a_run(Status.CANCEL_REQUESTED, cancel_requested=True)
    change = reconcile.on_outcome(run, a_launch(), [a_launch()], outcome, 10.0)
    assert change.run is not None
    assert change.run.status == after


def test_the_same_outcome_twice_changes_nothing() -> None:
    over = a_launch(LaunchState.ENDED, outcome=GOOD)
    assert reconcile.on_outcome(a_run(Status.COMPLETED), over, [over], GOOD, 10.0).is_nothing


def test_what_an_old_attempt_still_sends_is_kept_and_moves_nothing() -> None:
    run = a_run(Status.RUNNING, attempt=2)
    old = a_launch(LaunchState.GONE)
    change = reconcile.on_outcome(run, old, [old], GOOD, 10.0)
    assert change.run is None
    assert [m.outcome for m in change.launches] == [GOOD]
    assert [e.kind for e in change.events] == ["late"]


@pytest.mark.parametrize(
    ("sign", "silent_seconds", "expected"),
    [
        (Running(), 100.0, Change()),
        (Unknown("no answer"), 5.0, Change()),
        (Ended(GOOD, pushing=True), 1.0, Change()),
        (Ended(GOOD, pushing=False), 1.0, Change(actions=(FetchHome(a_launch(), GOOD),))),
        (Ended(GOOD, pushing=True), 60.0, Change(actions=(FetchHome(a_launch(), GOOD),))),
        (Absent(), 1.0, Change(actions=(LaunchAgain(a_launch()),))),
    ],
)
def test_signs_of_a_running_launch(sign: Sign, silent_seconds: float, expected: Change) -> None:
    assert reconcile.on_sign(a_run(), a_launch(), [a_launch()], sign, silent_seconds, 10.0) == expected


@pytest.mark.parametrize("sign", [Running(), Absent(), Provisioning("Its nodes are coming up.", 1.0)])
def test_a_cancel_reaches_the_node_whatever_the_launch_waits_for(sign: Sign) -> None:
    run = a_run(Status.CANCEL_REQUESTED, cancel_requested=True)
    launch = a_launch(LaunchState.INTENDED)
    assert reconcile.on_sign(run, launch, [launch], sign, 1.0, 10.0).actions == (CancelOnNode(launch),)


def test_silence_is_not_failure() -> None:
    change = reconcile.on_sign(a_run(), a_launch(), [a_launch()], Unknown("no route"), 60.0, 70.0)
    assert change.run is not None
    assert change.run.status == Status.NOT_RESPONDING
    assert "no route" in change.run.reason
    back = reconcile.on_sign(change.run, a_launch(), [a_launch()], Running(), 0.0, 80.0)
    assert back.run is not None
    assert back.run.status == Status.RUNNING


@pytest.mark.parametrize(
    ("started", "attempt", "max_attempts", "after"),
    [
        (True, 1, 1, Status.FAILED),
        (True, 1, 2, Status.QUEUED),
        (True, 2, 2, Status.FAILED),
        (False, 1, 1, Status.QUEUED),
        (False, 3, 1, Status.FAILED),
    ],
)
def test_a_lost_launch_is_repeated_only_when_that_is_free_or_asked_for(
    started: bool, attempt: int, max_attempts: int, after: Status
) -> None:
    state = LaunchState.STARTED if started else LaunchState.INTENDED
    launch = a_launch(state, attempt=attempt, started_at=3.0 if started else None)
    run = a_run(Status.RUNNING if started else Status.STARTING, attempt=attempt, max_attempts=max_attempts)
    change = reconcile.on_sign(run, launch, [launch], Gone("rebooted", started=started), 0.0, 10.0)
    assert change.run is not None
    assert change.run.status == after
    assert "rebooted" in change.run.reason


def test_one_ranks_failure_ends_the_gang_with_that_ranks_words() -> None:
    gang = [a_launch(index=0), a_launch(index=1)]
    change = reconcile.on_outcome(a_run(node_count=2), gang[1], gang, BAD, 10.0)
    assert change.run is not None
    assert change.run.status == Status.FINALIZING
    assert change.actions == (CancelOnNode(gang[0]),)
    gang = [gang[0], change.launches[0]]
    last = reconcile.on_outcome(change.run, gang[0], gang, CANCELED, 12.0)
    assert last.run is not None
    assert last.run.status == Status.FAILED
    assert last.run.error is not None
    assert last.run.error.message == "Node 1: exit code 3"


def test_a_gang_is_running_when_all_its_members_are() -> None:
    gang = [a_launch(LaunchState.INTENDED, 0), a_launch(LaunchState.INTENDED, 1)]
    run = a_run(Status.STARTING, node_count=2)
    first = reconcile.on_started(run, gang[0], gang, 3.0, 3.0)
    assert first.run is not None
    assert first.run.status == Status.STARTING
    gang = [first.launches[0], gang[1]]
    second = reconcile.on_started(first.run, gang[1], gang, 4.0, 4.0)
    assert second.run is not None
    assert (second.run.status, second.run.started_at) == (Status.RUNNING, 3.0)


@pytest.mark.parametrize("status", list(Status))
def test_cancel_is_legal_in_every_state_and_may_be_repeated(status: Status) -> None:
    run = a_run(status, attempt=0 if status in (Status.QUEUED, Status.NOT_STARTED) else 1)
    members = [a_launch()] if run.attempt else []
    change = reconcile.request_cancel(run, members, "somebody", 10.0)
    if status in OVER:
        assert change.is_nothing
        return
    assert change.run is None or change.run.status in (Status.CANCELED, Status.CANCEL_REQUESTED)
    again = reconcile.request_cancel(change.run or run, members, "somebody", 11.0)
    assert again.run is None or again.run.is_over


def test_a_run_that_is_over_never_moves() -> None:
    for status in OVER:
        assert MOVES[status] == frozenset()
        with pytest.raises(ForbiddenMove):
            move(a_run(status), Status.RUNNING, 1.0, "no")
    assert not may_move(Status.COMPLETED, Status.QUEUED)


def test_the_queue_is_served_in_order_and_a_large_run_is_not_overtaken() -> None:
    pool = Pool(Capacity(slots=4), (("x", 1),))
    queue = [a_run(Status.QUEUED, slots=n) for n in (2, 4, 1)]
    assert [r.slots for r in choose(queue, pool)] == [2]


def test_a_new_attempt_has_one_launch_for_each_node() -> None:
    start = begin_attempt(a_run(Status.QUEUED, attempt=1, node_count=3), 5.0, lambda launch: {"launch": launch})
    assert [(m.attempt, m.node_index, m.state) for m in start.launches] == [(2, i, LaunchState.INTENDED) for i in range(3)]
    assert (start.run.status, start.run.attempt, start.run.deadline_at) == (Status.STARTING, 2, 35.0)


@pytest.mark.parametrize(
    ("asked", "word"),
    [({"slots": 8}, "--cpus 4"), ({"node_count": 2}, "--nodes 1"), ({"gpus": 1}, "--gpus 0"),
     ({"memory_bytes": 1 << 40}, "--memory 8G")],
)  # fmt: skip
def test_what_never_fits_is_named_with_the_nearest_that_would(asked: dict[str, int], word: str) -> None:
    request = {"slots": 1, "node_count": 1} | asked
    fit = fits(Capacity(slots=4, memory_bytes=8 << 30), **request)
    assert not fit.possible
    assert fit.nearest == word


def test_why_says_behind_what_a_run_waits() -> None:
    pool = Pool(Capacity(slots=1), (("b" * 32, 1),))
    why = explain(a_run(Status.QUEUED, attempt=0), [], pool, ahead=2, target_problem="", now=5.0)
    assert why.can_start
    assert "2 runs wait before it" in why.reasons[0]
    assert "bbbbbbbb" in why.reasons[1]
    assert why.owner == "dispatch"


def test_why_says_when_a_run_can_never_start() -> None:
    why = explain(a_run(Status.QUEUED, attempt=0, slots=9), [], Pool(Capacity(slots=2)), 0, "", 5.0)
    assert not why.can_start
    assert why.would_help == ("Submit it again with --cpus 2.",)


def test_a_run_pays_for_all_its_attempts_at_the_price_that_was_there_when_each_began() -> None:
    started = begin_attempt(a_run(Status.QUEUED, attempt=0, max_attempts=2), 0.0, lambda _: {}, price_per_hour=3600.0).run
    first = a_launch(started_at=4.0)
    lost = reconcile.on_sign(started, first, [first], Gone("gone"), 0.0, 10.0)
    assert lost.run is not None
    assert lost.run.usage == {"price_per_hour": 3600.0, "cost": 6.0}
    again = begin_attempt(lost.run, 20.0, lambda _: {}, price_per_hour=7200.0).run
    second = a_launch(attempt=2, started_at=5.0)
    over = reconcile.on_outcome(again, second, [second], GOOD, 10.0)
    assert over.run is not None
    assert over.run.usage == {"price_per_hour": 7200.0, "cost": 14.0}


def test_a_run_on_a_target_without_a_price_has_no_cost() -> None:
    change = reconcile.on_outcome(a_run(), a_launch(), [a_launch()], GOOD, 10.0)
    assert change.run is not None
    assert "cost" not in change.run.usage
