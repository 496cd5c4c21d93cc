"""Clocks of other machines: how far one is off, and what it told in our time."""

from __future__ import annotations

from typing import Any

#: A report that took so long says nothing about a clock.
SLACK_SECONDS = 2.0


def settle(before: float, heard: float) -> float:
    """What to believe of a clock. Reports come late, never early: the largest is the nearest, until the clock is set anew.

    >>> settle(0.0, -1.2), settle(0.0, -7201.5), settle(-7201.5, -7200.1), settle(-7200.1, -7203.0), settle(-7200.1, 0.0)
    (0.0, -7201.5, -7200.1, -7200.1, 0.0)
    """
    if abs(heard) < SLACK_SECONDS:
        return 0.0
    if before and before - 5 * SLACK_SECONDS < heard <= before:
        return before
    return heard


def in_our_time(mark: dict[str, Any], off_seconds: float) -> dict[str, Any]:
    """A state message or a sign of a node whose clock is `off_seconds` ahead of ours, in our time."""
    if not off_seconds:
        return mark
    found = dict(mark)
    for kind in ("started", "outcome"):
        if isinstance(found.get(kind), dict):
            found[kind] = {
                k: v - off_seconds if k in ("at", "started_at", "ended_at") and isinstance(v, int | float) else v
                for k, v in found[kind].items()
            }
    return found
