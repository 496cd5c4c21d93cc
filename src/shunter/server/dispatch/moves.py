"""The one way a run changes its state: by the table, with a reason, as an event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shunter.model.run import DEADLINE_SECONDS, Event, Run, Status, may_move


class ForbiddenMove(AssertionError):
    """A decision asked for a move that the table does not have: a bug in a decision."""


def move(
    run: Run, to: Status, now: float, reason: str, *, data: Mapping[str, Any] | None = None, **changes: Any
) -> tuple[Run, Event]:
    """The run in its new state and the event that says so."""
    if not may_move(run.status, to):
        raise ForbiddenMove(f"{run.id}: {run.status} → {to} ({reason})")
    limit = DEADLINE_SECONDS[to]
    moved = run.evolve(
        status=to, since=now, reason=reason, deadline_at=now + limit if limit is not None else None, **changes
    )
    return moved, Event(run.id, now, "state", to, reason, dict(data or {}))


def note(run: Run, now: float, kind: str, reason: str, **data: Any) -> Event:
    """Something worth keeping that does not change the state."""
    return Event(run.id, now, kind, run.status, reason, data)
