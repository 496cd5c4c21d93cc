"""A thousand nodes and a long queue: a round of the real dispatcher on a real database costs what it costs for a short one."""

from __future__ import annotations

from pathlib import Path

from shunter.testing.crowd import measure


def test_a_round_costs_the_same_for_a_long_queue_and_memory_stays_flat(tmp_path: Path) -> None:
    short, long = (measure(tmp_path, queued, rounds=12) for queued in (2_000, 20_000))
    assert long.started == short.started == 120
    assert long.milliseconds < 2 * short.milliseconds + 10, (short, long)
    assert long.grown_bytes < 8 << 20, long
