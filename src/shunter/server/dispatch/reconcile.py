"""What follows from what a node says, or does not say. Pure: values in, a Change out; `loop.py` and `collect` act on it.

A state only moves on evidence. What an old attempt still sends is kept and moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shunter.drivers.base import Absent, Ended, Gone, Provisioning, Running, Sign, Unknown
from shunter.model.run import Event, Launch, LaunchState, Outcome, Run, RunError, Status
from shunter.server.dispatch.moves import move, note

#: A launcher says something at least every ten seconds; after so long we ask its target.
SILENT_SECONDS = 25.0
#: A launcher that lives brings its outcome home itself; after so long we fetch it.
PUSH_PATIENCE_SECONDS = 10.0
#: Attempts that were lost before the script ever ran cost nothing and are repeated, up to so many.
FREE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class LaunchAgain:
    launch: Launch


@dataclass(frozen=True, slots=True)
class CancelOnNode:
    launch: Launch


@dataclass(frozen=True, slots=True)
class FetchHome:
    """Read the spool from the node, then apply the outcome."""

    launch: Launch
    outcome: Outcome


Action = LaunchAgain | CancelOnNode | FetchHome


@dataclass(frozen=True, slots=True)
class Change:
    """What to write, then what to do. `run` is None when the run's row stays as it is."""

    run: Run | None = None
    launches: tuple[Launch, ...] = ()
    events: tuple[Event, ...] = ()
    actions: tuple[Action, ...] = field(default=())

    @property
    def is_nothing(self) -> bool:
        return self.run is None and not self.launches and not self.events and not self.actions


Step = Callable[[Run, Launch, list[Launch]], Change]


def in_turn(run: Run, launch: Launch, members: Sequence[Launch], steps: Sequence[Step]) -> Change:
    """Several messages of one report as one change: a run that started and ended meanwhile is written once."""
    whole = Change()
    gang = list(members)
    for step in steps:
        change = step(run, launch, gang)
        run = change.run or run
        changed = {m.id: m for m in change.launches}
        launch = changed.get(launch.id, launch)
        gang = [changed.get(m.id, m) for m in gang]
        kept = {m.id: m for m in whole.launches} | changed
        happened, todo = whole.events + change.events, whole.actions + change.actions
        whole = Change(change.run or whole.run, tuple(kept.values()), happened, todo)
    return whole


def on_preparing(run: Run, launch: Launch, what: str, now: float) -> Change:
    if _is_old(run, launch) or run.status not in (Status.STARTING, Status.PREPARING, Status.PROVISIONING):
        return Change()
    if run.status == Status.PREPARING and run.reason == what:
        return Change()
    if run.status == Status.PREPARING:
        return Change(run.evolve(reason=what), (), (note(run, now, "preparing", what),))
    moved, event = move(run, Status.PREPARING, now, what)
    return Change(moved, (), (event,))


def on_started(run: Run, launch: Launch, members: Sequence[Launch], at: float, now: float) -> Change:
    """A node says that it started the script."""
    if launch.state != LaunchState.INTENDED:
        return _back_to_life(run, launch, now)
    started = launch.evolve(state=LaunchState.STARTED, started_at=at)
    if _is_old(run, launch) or run.is_over:
        return Change(None, (started,), (note(run, now, "late", f"Attempt {launch.attempt} says it had started."),))
    rest = [m for m in members if m.id != launch.id]
    if any(m.state == LaunchState.INTENDED for m in rest):
        return Change(run, (started,), ())
    first = run.started_at if run.started_at is not None else min([at, *(m.started_at or at for m in rest)])
    if run.status in (Status.CANCEL_REQUESTED, Status.RUNNING, Status.FINALIZING):
        return Change(run.evolve(started_at=first), (started,), ())
    reason = "The script is running." if run.node_count == 1 else f"The script is running on {run.node_count} nodes."
    moved, event = move(run, Status.RUNNING, now, reason, started_at=first, data={"at": at})
    return Change(moved, (started,), (event,))


def on_ended(run: Run, launch: Launch, now: float) -> Change:
    """The script is over; its outputs are on their way."""
    if _is_old(run, launch) or run.status not in (Status.STARTING, Status.PREPARING, Status.RUNNING):
        return Change()
    if run.node_count > 1:
        return Change()
    moved, event = move(run, Status.FINALIZING, now, "The script has ended; its outputs are being brought home.")
    return Change(moved, (), (event,))


def on_outcome(run: Run, launch: Launch, members: Sequence[Launch], outcome: Outcome, now: float) -> Change:
    """A node's word on how the script ended, written there before it was sent."""
    if launch.state == LaunchState.ENDED or (outcome.kind == "lost" and launch.is_over):
        return Change()
    if outcome.kind == "lost" and not (_is_old(run, launch) or run.is_over):
        # The node's own word that it gave up what it ran: it lost its place in the cluster, or its lease.
        gone = launch.evolve(state=LaunchState.GONE, ended_at=outcome.ended_at or now, outcome=outcome,
                             evidence=outcome.message or "The node gave it up.")  # fmt: skip
        return _verdict(run, gone, members, now)
    ended = launch.evolve(
        state=LaunchState.ENDED,
        outcome=outcome,
        started_at=outcome.started_at or launch.started_at,
        ended_at=outcome.ended_at or now,
    )
    if _is_old(run, launch) or run.is_over:
        return Change(None, (ended,), (note(run, now, "late", f"Attempt {launch.attempt} ended: {outcome.kind}."),))
    return _verdict(run, ended, members, now)


def on_sign(run: Run, launch: Launch, members: Sequence[Launch], sign: Sign, silent_seconds: float, now: float) -> Change:
    """What a driver found when it was asked about one launch of the current attempt."""
    if launch.is_over or run.is_over or _is_old(run, launch):
        return Change()
    match sign:
        case Running(started=started):
            cancel = (CancelOnNode(launch),) if run.cancel_requested or _is_doomed(launch, members) else ()
            if started and launch.state == LaunchState.INTENDED:
                change = on_started(run, launch, members, now, now)
            else:
                change = _back_to_life(run, launch, now)
            return Change(change.run, change.launches, change.events, cancel)
        case Ended(outcome=outcome, pushing=pushing):
            if pushing and silent_seconds < PUSH_PATIENCE_SECONDS:
                return Change()
            return Change(actions=(FetchHome(launch, outcome),))
        case Gone(evidence=evidence, started=started):
            words = "" if started else "never started"
            gone = launch.evolve(state=LaunchState.GONE, ended_at=now, evidence=evidence or "gone",
                                 outcome=Outcome(kind="lost", code=words, message=evidence))  # fmt: skip
            return _verdict(run, gone, members, now)
        case Absent():
            if run.cancel_requested or _is_doomed(launch, members):
                return Change(actions=(CancelOnNode(launch),))
            return Change(actions=(LaunchAgain(launch),))
        case Provisioning(why=why):
            if run.cancel_requested or _is_doomed(launch, members):
                return Change(actions=(CancelOnNode(launch),))
            if run.status != Status.PROVISIONING or run.reason == why or not why:
                return Change()
            return Change(run.evolve(reason=why))
        case Unknown(why=why):
            if silent_seconds < SILENT_SECONDS or run.status in (Status.NOT_RESPONDING, Status.CANCEL_REQUESTED):
                return Change()
            reason = f"Nothing was heard from the node for {silent_seconds:.0f} s: {why}"
            moved, event = move(run, Status.NOT_RESPONDING, now, reason)
            return Change(moved, (), (event,))


def request_cancel(run: Run, members: Sequence[Launch], by: str, now: float) -> Change:
    """Legal in every state, and may be repeated."""
    if run.is_over:
        return Change()
    current = [m for m in members if m.attempt == run.attempt and not m.is_over]
    if run.status in (Status.NOT_STARTED, Status.QUEUED) or not current:
        moved, event = move(run, Status.CANCELED, now, f"Canceled by {by} before it started.",
                            cancel_requested=True, ended_at=now)  # fmt: skip
        return Change(moved, (), (event,))
    actions = tuple(CancelOnNode(m) for m in current)
    if run.cancel_requested or run.status == Status.CANCEL_REQUESTED:
        return Change(actions=actions)
    moved, event = move(run, Status.CANCEL_REQUESTED, now, f"{by} asked for it to be canceled.", cancel_requested=True)
    return Change(moved, (), (event,), actions)


def _verdict(run: Run, changed: Launch, members: Sequence[Launch], now: float) -> Change:
    """One member of the gang is over: is the attempt over, and how?"""
    gang = sorted([changed, *(m for m in members if m.id != changed.id)], key=lambda m: m.node_index)
    bad = sorted((m for m in gang if m.is_over and not _is_fine(m)), key=lambda m: m.ended_at or now)
    open_ones = [m for m in gang if not m.is_over]
    if open_ones:
        if not bad:
            return Change(run, (changed,), ())
        # One rank's failure ends the gang.
        actions = tuple(CancelOnNode(m) for m in open_ones)
        reason = f"Node {bad[0].node_index} is over ({_words(bad[0])}); the others are being stopped."
        if run.status in (Status.CANCEL_REQUESTED, Status.FINALIZING):
            return Change(run, (changed,), (note(run, now, "gang", reason),), actions)
        moved, event = move(run, Status.FINALIZING, now, reason)
        return Change(moved, (changed,), (event,), actions)
    if not bad:
        return _finish(run, changed, gang, Status.COMPLETED, now, "The script completed.", exit_code=0)
    lost = [m for m in bad if m.state == LaunchState.GONE]
    if lost and not run.cancel_requested:
        return _lost(run, changed, gang, lost[0], now)
    if run.cancel_requested and (lost or any(m.outcome and m.outcome.kind == "canceled" for m in bad)):
        return _finish(run, changed, gang, Status.CANCELED, now, "Canceled.", exit_code=_exit_code(bad[0]))
    first = next((m for m in bad if m.outcome and m.outcome.kind == "failed"), bad[0])
    outcome = first.outcome or Outcome(kind="failed")
    if outcome.kind == "canceled":
        return _finish(run, changed, gang, Status.CANCELED, now, outcome.message or "Canceled.", exit_code=outcome.exit_code)
    where = f"Node {first.node_index}: " if run.node_count > 1 else ""
    error = RunError(outcome.code or "script_failed", where + outcome.message, outcome.hint)
    return _finish(run, changed, gang, Status.FAILED, now, error.message, exit_code=outcome.exit_code, error=error)


def _lost(run: Run, changed: Launch, gang: Sequence[Launch], lost: Launch, now: float) -> Change:
    """A member is gone and there is evidence: a new attempt if that is free or was asked for, else the truth."""
    ran = any(m.started_at is not None or not (m.outcome and m.outcome.code == "never started") for m in gang)
    again = run.attempt < (run.max_attempts if ran else max(run.max_attempts, FREE_ATTEMPTS))
    if again:
        reason = f"Attempt {run.attempt} was lost ({lost.evidence}); a new one is queued."
        moved, event = move(
            run, Status.QUEUED, now, reason,
            usage={**run.usage, **_paid(run, gang, now)}, data={"attempt": run.attempt, "evidence": lost.evidence},
        )  # fmt: skip
        return Change(moved, (changed,), (event,))
    error = RunError(
        "node_lost",
        f"The run was lost with its node: {lost.evidence}",
        "`shunter run rerun` starts it again; `--max-attempts` lets Shunter do so by itself.",
    )
    return _finish(run, changed, gang, Status.FAILED, now, error.message, exit_code=None, error=error)


def _finish(
    run: Run, changed: Launch, gang: Sequence[Launch], to: Status, now: float, reason: str, *,
    exit_code: int | None, error: RunError | None = None,
) -> Change:  # fmt: skip
    starts = [m.started_at for m in gang if m.started_at is not None]
    ends = [m.ended_at for m in gang if m.ended_at is not None]
    usage = {**(gang[0].outcome.usage if gang[0].outcome else {}), **_paid(run, gang, now)}
    moved, event = move(
        run, to, now, reason,
        exit_code=exit_code, error=error, ended_at=max(ends) if ends else now,
        started_at=run.started_at if run.started_at is not None else (min(starts) if starts else None),
        usage=usage, data={"exit_code": exit_code, "attempt": run.attempt},
    )  # fmt: skip
    return Change(moved, (changed,), (event,))


def _paid(run: Run, gang: Sequence[Launch], now: float) -> dict[str, float]:
    """What all attempts cost, with this one over: hours on its nodes by their price, whoever else was there."""
    price = run.usage.get("price_per_hour")
    if price is None:
        return {}
    seconds = sum(max(0.0, (m.ended_at or now) - m.started_at) for m in gang if m.started_at is not None)
    cost = float(run.usage.get("cost") or 0.0) + seconds / 3600 * float(price)
    return {"price_per_hour": price, "cost": round(cost, 6)}


def _back_to_life(run: Run, launch: Launch, now: float) -> Change:
    if run.status != Status.NOT_RESPONDING or _is_old(run, launch):
        return Change()
    to = Status.RUNNING if launch.state == LaunchState.STARTED else Status.STARTING
    moved, event = move(run, to, now, "The node answers again.")
    return Change(moved, (), (event,))


def _is_old(run: Run, launch: Launch) -> bool:
    return launch.attempt != run.attempt


def _is_fine(launch: Launch) -> bool:
    return launch.state == LaunchState.ENDED and launch.outcome is not None and launch.outcome.kind == "completed"


def _is_doomed(launch: Launch, members: Sequence[Launch]) -> bool:
    """Another member of the gang is over and not well: this one is to be stopped."""
    return any(m.is_over and not _is_fine(m) for m in members if m.id != launch.id)


def _exit_code(launch: Launch) -> int | None:
    return launch.outcome.exit_code if launch.outcome else None


def _words(launch: Launch) -> str:
    if launch.state == LaunchState.GONE:
        return launch.evidence
    return (launch.outcome.message if launch.outcome else "") or "ended"
