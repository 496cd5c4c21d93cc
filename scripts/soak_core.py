"""Kills of every part at seeded moments, in real processes; and many simulated stories. Exit status 1 when a promise broke."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from shunter.testing.faults import Batch, PromiseBroken, kill_some, kill_the_server_again_and_again
from shunter.testing.house import House
from shunter.testing.simulation import PLANTS, BrokenPromise, simulate


def server_kills(folder: Path) -> str:
    """One batch of 60 runs, 100 kills of the server while they are queued, starting, running and ending."""
    house = House(folder / "home")
    batch = Batch(house, folder / "batch", seed=100)
    killed = kill_the_server_again_and_again(house, batch, kills=100, count=60)
    batch.wait(900)
    return f"{killed} kills, {sum((c := batch.check()).values())} runs: {words(c)}; none lost, none twice, logs and files whole"


def part_kills(what: str) -> Callable[[Path], str]:
    def story(folder: Path) -> str:
        total: Counter[str] = Counter()
        killed = 0
        for seed in range(10):
            house = House(folder / f"home{seed}")
            os.environ["SHUNTER_HOME"] = str(house.home)
            try:
                batch = Batch(house, folder / f"batch{seed}", seed=seed)
                batch.submit(4, longest_seconds=1.5)
                lost = kill_some(house, batch, what)
                killed += 1
                batch.wait(300)
                total += batch.check(lost)
            finally:
                house.end_all()
        return f"10 seeds, {killed} kills, {sum(total.values())} runs: {words(total)}; every state true, with its reason"

    story.__doc__ = f"kill -9 of {what} while runs go on, ten seeds."
    return story


def simulation(_: Path) -> str:
    """20,000 stories of dispatch with a virtual clock; each planted bug is caught."""
    simulate(range(20_000))
    caught = []
    for plant in PLANTS:
        try:
            simulate(range(500), plant)
        except BrokenPromise:
            caught.append(plant)
    if len(caught) != len(PLANTS):
        raise PromiseBroken(f"planted bugs that were caught: {caught}")
    return f"20,000 stories, all promises kept; planted bugs caught: {', '.join(caught)}"


def words(counted: Counter[str]) -> str:
    return ", ".join(f"{n} {status}" for status, n in sorted(counted.items()))


STORIES: dict[str, Callable[[Path], str]] = {
    "the server": server_kills,
    "the warm parent": part_kills("parent"),
    "launchers": part_kills("launcher"),
    "scripts": part_kills("script"),
    "all of them at once": part_kills("all"),
    "simulation": simulation,
}


def main() -> int:
    print("# What Shunter survives\n\n    scripts/soak | tee docs/soak.md\n")
    print("Made by `scripts/soak` with real processes and `kill -9`.\n")
    print("| what | result | seconds |\n|---|---|---|", flush=True)
    bad = 0
    for name, story in STORIES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SHUNTER_HOME"] = str(Path(folder) / "home")
            begin = time.monotonic()
            try:
                result = story(Path(folder))
            except (PromiseBroken, BrokenPromise, TimeoutError) as error:
                bad += 1
                result = f"**BROKEN**: {str(error).splitlines()[0]}"
                print(error, file=sys.stderr)
            finally:
                House(Path(folder) / "home").end_all()
            print(f"| {name} | {result} | {time.monotonic() - begin:.0f} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
