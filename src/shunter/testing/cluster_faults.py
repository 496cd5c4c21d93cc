"""Kills on a cluster at seeded moments while runs are queued, placed and running; then a look for lies."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from shunter.errors import ServerUnreachable, ShunterError
from shunter.sdk.connect import connect
from shunter.sdk.run import Run
from shunter.sdk.workspace import Workspace
from shunter.testing.clusters import ClusterHouse
from shunter.testing.house import House

T = TypeVar("T")
PARTS = ("node", "busy node", "head", "server", "autoscaler", "keeper")

#: Writes down when it starts, that it goes on, and when it ends.
SCRIPT = """
import os, sys, time
def note(what):
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    line = "%.3f %s %s %s %d" % (time.time(), what, os.environ["SHUNTER_RUN_ID"], os.environ["SHUNTER_ATTEMPT"], os.getpid())
    os.write(fd, (line + "\\n").encode())
note("on")
until = time.time() + float(sys.argv[2])
while time.time() < until:
    note("at")
    time.sleep(0.1)
note("off")
os._exit(0)  # at once: what is killed between its last word and its end has not ended, and runs again
"""


class Storm:
    """Runs on one cluster, and kills among them. What the ledger says is compared with what the server says."""

    def __init__(self, ws: Workspace, home: Path, folder: Path, target: str, seed: int) -> None:
        self.ws = ws
        self.home = home
        self.target = target
        self.dice = random.Random(seed)
        self.source = folder / "src"
        self.source.mkdir(parents=True)
        (self.source / "train.py").write_text(SCRIPT)
        self.ledger = folder / "ledger"
        self.runs: list[Run] = []
        self.killed: list[str] = []

    @property
    def house(self) -> ClusterHouse:
        return next(h for h in ClusterHouse.all(self.home) if h.folder.path.name.endswith("." + self.target))

    def submit(self, count: int, longest_seconds: float) -> None:
        for _ in range(count):
            self.runs.append(self._patiently(partial(
                self.ws.submit, "train.py", source_directory=self.source, target=self.target,
                arguments=[self.ledger, self.dice.uniform(0.2, longest_seconds)], max_attempts=20,
            )))  # fmt: skip

    def kill(self, what: str) -> bool:
        """Kill -9 one part, if it is there at this moment."""
        house = self.house
        nodes = sorted(house.nodes().values())
        chosen: dict[str, list[int | None]] = {
            "node": self.dice.sample(nodes, k=min(1, len(nodes))), "busy node": [*house.busy_nodes()[:1]], "head": [house.head],
            "keeper": [house.keeper], "server": [House(self.home).server], "autoscaler": [*house.autoscaler()],
        }  # fmt: skip
        hit = False
        for pid in filter(None, chosen[what]):
            try:
                os.kill(pid, signal.SIGKILL)
                hit = True
            except ProcessLookupError:
                continue
        if hit:
            self.killed.append(f"{what} {time.strftime('%X')}")
        if what == "server":
            self._patiently(self._reconnect)
        return hit

    def lies(self, seconds: float) -> list[str]:
        """Wait for all runs; what is not as it must be, in words."""
        found = []
        until = time.monotonic() + seconds
        for run in self.runs:
            while run.data["status"] not in ("Completed", "Failed", "Canceled"):
                try:
                    self._patiently(self._reconnect)
                    run.workspace.client = self.ws.client
                    run.wait(timeout_seconds=max(1.0, until - time.monotonic()))
                except ServerUnreachable:
                    time.sleep(0.3)
                except TimeoutError:
                    break
            if run.data["status"] != "Completed":
                found.append(f"{run.id[:8]} is {run.data['status']}: {run.data['reason']}")
        found += overlaps(self.ledger, [run.id for run in self.runs])
        return [f"{words}; {self._story(words.split()[0])}" for words in found]

    def _story(self, short_id: str) -> str:
        """What happened to a run, for whoever has to find out why."""
        run = next(run for run in self.runs if run.id.startswith(short_id))
        events = " · ".join(f"{event['at']} {event['kind']} {event['reason']}" for event in self._patiently(run.events))
        return f"killed: {', '.join(self.killed)}; {events}"

    def _reconnect(self) -> None:
        self.ws.client = connect()

    def _patiently(self, what: Callable[[], T]) -> T:
        until = time.monotonic() + 60
        while True:
            try:
                return what()
            except ShunterError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)
                try:
                    self._reconnect()
                except ShunterError:
                    continue


def overlaps(ledger: Path, expected: list[str]) -> list[str]:
    """Attempts of one run that were seen at the same time, or after a success; runs that never succeeded."""
    spans: dict[str, dict[str, tuple[float, float, bool]]] = {run: {} for run in expected}
    for line in ledger.read_text().splitlines():
        at, what, run, attempt, _ = line.split()
        first, _, done = spans.setdefault(run, {}).get(attempt, (float(at), 0.0, False))
        spans[run][attempt] = (first, float(at), done or what == "off")
    found = []
    for run, attempts in spans.items():
        ordered = sorted(attempts.values())
        if any(earlier[1] > later[0] or earlier[2] for earlier, later in itertools.pairwise(ordered)):
            found.append(f"{run[:8]} ran twice: {attempts}")
        if sum(done for _, _, done in ordered) != 1:
            found.append(f"{run[:8]} succeeded {sum(done for _, _, done in ordered)} times")
    return found
