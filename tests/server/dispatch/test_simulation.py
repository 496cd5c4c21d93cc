"""At least 2,000 stories with lost, late, repeated and reordered messages and crashes between any two steps."""

from __future__ import annotations

import pytest

from shunter.testing.simulation import PLANTS, BrokenPromise, simulate

STORIES = 2000
PORTION = 125


@pytest.mark.parametrize("start", range(0, STORIES, PORTION))
def test_every_story_ends_with_its_promises_kept(start: int) -> None:
    simulate(range(start, start + PORTION))


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str) -> None:
    with pytest.raises(BrokenPromise):
        simulate(range(200), plant)
