"""Dispatch and collect, the real ones, against simulated nodes, a virtual clock and seeded faults.

A seed is one story: runs and gangs are submitted and canceled; messages are lost, late, repeated, reordered; launchers and
nodes die; the server is killed between any two steps. Then the faults end, time passes, and the promises are checked.
`plant` breaks one part on purpose, to show that the check would notice.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shunter.drivers.base import Absent, Ended, Gone, Running, Sign, Unknown
from shunter.errors import ShunterError
from shunter.model.run import Event, Launch, Outcome, Run, Status
from shunter.node.home import encode
from shunter.server.collect.ingest import Ingest
from shunter.server.collect.streams import Handlers
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.storage.files import RunFiles
from shunter.testing.runs import MemoryRuns
from shunter.testing.simulated import NODES, Killed, MemoryFiles, OneTarget, PlainOrders, SimDriver, SimLaunch

PLANTS = ("double_launch", "lost_acknowledgement", "skipped_reconcile")
FAULTS_UNTIL = 400.0
QUIET_UNTIL = 2400.0


class BrokenPromise(AssertionError):
    """A story that ended as none may."""


@dataclass
class World:
    """One story."""

    seed: int
    plant: str = ""
    now: float = 0.0
    plan: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    launches: dict[str, SimLaunch] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    server_alive: bool = True
    cut_off: set[int] = field(default_factory=set)
    kills: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.count = itertools.count()
        self.store = MemoryRuns()
        self.files = MemoryFiles(self)
        self.kill_chance = self.random.choice([0.0, 0.004, 0.02])
        self.trouble = self.random.choice([0.0, 0.1, 0.4])
        guarded = self.store.apply

        def apply(run: Run, before: Run, changed: Sequence[Launch] = (), happened: Sequence[Event] = ()) -> Run:
            self.step("before apply")
            found = guarded(run, before, changed, happened)
            self.step("after apply")
            return found

        self.store.apply = apply  # type: ignore[method-assign]
        self.dispatch = self._new_server()

    def _new_server(self) -> Dispatcher:
        driver = SimDriver(self)
        ingest = Ingest(cast("RunFiles", self.files), Handlers(), lambda: self.now)
        dispatch = Dispatcher(
            self.store, OneTarget(driver), PlainOrders(), ingest, clock=lambda: self.now, on_change=lambda run: None
        )
        ingest.dispatch = dispatch
        self.ingest = ingest
        return dispatch

    # Faults

    @property
    def is_faulty(self) -> bool:
        return self.now < FAULTS_UNTIL

    def step(self, name: str) -> None:
        """A moment at which the server may be killed; when it is dead, nothing of it goes on."""
        if not self.server_alive:
            raise Killed(name)
        if self.is_faulty and self.random.random() < self.kill_chance:
            self.server_alive = False
            self.kills += 1
            self.note(f"server killed at {name}")
            self.later(self.random.uniform(0.1, 60), self._restart)
            raise Killed(name)

    def fate(self) -> str:
        if not self.is_faulty or self.random.random() > self.trouble:
            return "fine"
        return self.random.choice(["lost", "late", "repeated", "unanswered"])

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.plan, (self.now + seconds, next(self.count), what))

    def note(self, text: str) -> None:
        self.history.append(f"{self.now:8.2f} {text}")

    def _restart(self) -> None:
        self.server_alive = True
        self.note("server starts")
        self.dispatch = self._new_server()
        if self.plant == "skipped_reconcile":
            for key in self.store.queues():
                self.dispatch.dirty[key] = None
            self.dispatch.wake.set()
            return
        try:
            self.dispatch.boot()
        except Killed:
            pass

    # The nodes

    def on_launch(self, launch_id: str) -> None:
        """The order arrives at a node. The claim decides; a canceled one never starts."""
        launch = self.launches.setdefault(launch_id, SimLaunch(launch_id, int(launch_id.rsplit(".", 1)[1]) % NODES))
        if launch.claimed and self.plant != "double_launch":
            return
        if launch.lost or launch.ended_at is not None:
            return
        launch.claimed = launch.launcher_alive = True
        if launch.cancel:
            self._end(launch, {"kind": "canceled", "message": "canceled before it started"})
            return
        if self.is_faulty and self.random.random() < self.trouble * 0.2:
            launch.launcher_alive = False
            launch.lost = True
            self.note(f"{launch_id} launcher dies before the start")
            return
        self.later(self.random.uniform(0.01, 3), lambda: self._start(launch))

    def _start(self, launch: SimLaunch) -> None:
        if launch.lost or launch.ended_at is not None:
            return
        if launch.cancel:
            self._end(launch, {"kind": "canceled", "message": "canceled before it started"})
            return
        launch.starts += 1
        launch.started_at = self.now
        self.note(f"{launch.id} starts")
        self.later(self.random.uniform(0.01, 60), lambda: self._script_ends(launch))
        if self.is_faulty and self.random.random() < self.trouble * 0.5:
            self.later(self.random.uniform(0.01, 40), lambda: self._launcher_dies(launch))
        self._push(launch)

    def _script_ends(self, launch: SimLaunch) -> None:
        if launch.lost or launch.ended_at is not None:
            return
        good = self.random.random() < 0.8
        words = {"kind": "completed", "exit_code": 0} if good else {"kind": "failed", "exit_code": 1, "code": "script_failed"}
        self._end(launch, words)

    def _end(self, launch: SimLaunch, words: Mapping[str, Any]) -> None:
        launch.log += f"end of {launch.id}".encode()
        launch.ended_at = self.now
        launch.outcome = {**words, "started_at": launch.started_at, "ended_at": self.now}
        self.note(f"{launch.id} ends: {words['kind']}")
        self._push(launch)

    def _launcher_dies(self, launch: SimLaunch) -> None:
        if launch.launcher_alive and not launch.done:
            launch.launcher_alive = False
            self.note(f"{launch.id} launcher dies")

    def lose_node(self, node: int) -> None:
        """A reboot: everything on the node that had not ended is gone; what was written there is still there."""
        self.note(f"node {node} reboots")
        for launch in self.launches.values():
            if launch.node == node and launch.claimed:
                launch.launcher_alive = False
                if launch.outcome is None:
                    launch.lost = True

    def on_cancel(self, launch_id: str) -> None:
        launch = self.launches.setdefault(launch_id, SimLaunch(launch_id, int(launch_id.rsplit(".", 1)[1]) % NODES))
        launch.cancel = True
        if not launch.claimed:
            launch.claimed = True
            self._end(launch, {"kind": "canceled", "message": "canceled before it started"})
        elif launch.script_alive:
            self.later(self.random.uniform(0.01, 5), lambda: self._killed_by_cancel(launch))

    def _killed_by_cancel(self, launch: SimLaunch) -> None:
        if launch.script_alive:
            self._end(launch, {"kind": "canceled", "exit_code": 143, "signal": 15})

    def sign(self, launch_id: str) -> Sign:
        """What a driver finds on the node."""
        launch = self.launches.get(launch_id)
        node = launch.node if launch else int(launch_id.rsplit(".", 1)[1]) % NODES
        if node in self.cut_off or self.fate() in ("lost", "late"):
            return Unknown("no answer")
        if launch is None or not launch.claimed:
            return Absent()
        if launch.outcome is not None:
            return Ended(Outcome.from_wire(launch.outcome), pushing=launch.launcher_alive)
        if launch.lost:
            return Gone("simulated loss", started=launch.started_at is not None)
        return Running(started=launch.started_at is not None, pushing=launch.launcher_alive)

    def _push(self, launch: SimLaunch) -> None:
        """The launcher reports, again and again until it is answered. Chunks are small, so that offsets matter."""
        if not launch.launcher_alive or launch.done:
            return
        if launch.script_alive:
            launch.log += b"line of the log\n"
        frames: list[tuple[dict[str, Any], bytes]] = []
        if launch.started_at is not None:
            frames.append(({"started": {"at": launch.started_at}}, b""))
        chunk = launch.log[launch.held : launch.held + 24]
        frames.append(({"stream": "log", "offset": launch.held, "size": len(chunk)}, chunk))
        last = launch.outcome is not None and launch.held + len(chunk) == len(launch.log)
        if last:
            frames.append(({"outcome": launch.outcome}, b""))
        fate = self.fate()
        body = encode(frames)
        if launch.node not in self.cut_off:
            if fate in ("late", "repeated"):
                self.later(self.random.uniform(0, 20), lambda: self._arrives(launch, body, last, answered=False))
            if fate in ("fine", "repeated", "unanswered"):
                self._arrives(launch, body, last, answered=fate != "unanswered")
        if not launch.done:
            self.later(self.random.uniform(0.5, 9), lambda: self._push(launch))

    def _arrives(self, launch: SimLaunch, body: bytes, last: bool, answered: bool) -> None:
        if not self.server_alive:
            return
        try:
            answer = self.ingest.receive(launch.id, body)
        except (Killed, ShunterError):
            return
        if answered:
            launch.held = max(launch.held, int(answer["held"].get("log", launch.held)))
            if answer["cancel"]:
                self.on_cancel(launch.id)
            # Done only when the report that carried the outcome was answered.
            launch.done = launch.done or last

    # The story

    async def play(self) -> None:
        self.dispatch.boot()
        for index in range(self.random.randint(2, 6)):
            self.later(self.random.uniform(0, 120), lambda index=index: self._submit(index))  # type: ignore[misc]
        for _ in range(self.random.randint(0, 2)):
            node = self.random.randrange(NODES)
            if self.trouble:
                self.later(self.random.uniform(5, FAULTS_UNTIL), lambda node=node: self.lose_node(node))  # type: ignore[misc]
                start = self.random.uniform(5, 200)
                self.later(start, lambda node=node: self.cut_off.add(node))  # type: ignore[misc]
                self.later(start + self.random.uniform(5, 150), lambda node=node: self.cut_off.discard(node))  # type: ignore[misc]
        await self._round()
        while self.now < QUIET_UNTIL:
            looks = [*self.dispatch.look_at.values(), *self.dispatch._retry_at.values()] if self.server_alive else []
            times = looks + ([self.plan[0][0]] if self.plan else [])
            if not times or (self.now > FAULTS_UNTIL and all(r.is_over for r in self.store.runs.values())):
                break
            self.now = max(self.now, min(times))
            while self.plan and self.plan[0][0] <= self.now:
                heapq.heappop(self.plan)[2]()
            await self._round()

    async def _round(self) -> None:
        for _ in range(20):
            if not self.server_alive:
                return
            self.dispatch.wake.clear()
            try:
                await self.dispatch.round()
            except Killed:
                pass
            tasks, self.dispatch._tasks = list(self.dispatch._tasks), set()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, Killed | ShunterError):
                    raise result
            due = any(at <= self.now for at in self.dispatch.look_at.values())
            if not self.dispatch.dirty and not due:
                return

    def _submit(self, index: int) -> None:
        if not self.server_alive:
            self.later(1.0, lambda: self._submit(index))
            return
        run_id = f"{self.seed:08x}{index:024x}"[-32:]
        nodes = self.random.choice([1, 1, 1, 2, 3])
        run = Run(
            id=run_id, workspace="w", experiment="e", name="r", target="t", status=Status.QUEUED, snapshot_id="0" * 64,
            script="s", arguments=(), config={}, submitted_at=self.now, since=self.now, node_count=nodes,
            max_attempts=self.random.choice([1, 1, 3]),
        )  # fmt: skip
        self.store.add(run, Event(run_id, self.now, "state", Status.QUEUED, "Submitted."))
        self.note(f"{run_id} submitted, {nodes} nodes")
        self.dispatch.submitted(run)
        if self.random.random() < 0.3:
            self.later(self.random.uniform(0, 60), lambda: self._cancel(run_id))

    def _cancel(self, run_id: str) -> None:
        if not self.server_alive:
            return
        self.note(f"{run_id} cancel asked")
        try:
            self.dispatch.cancel(run_id, "the user")
        except Killed:
            pass

    # The promises

    def check(self) -> None:
        for run in self.store.runs.values():
            mine = [x for x in self.launches.values() if x.id.startswith(run.id)]
            self._promise(run.is_over, f"{run.id} is still {run.status} ({run.reason})")
            self._promise(all(x.starts <= 1 for x in mine), f"{run.id}: a launch ran twice")
            self._promise(not any(x.script_alive for x in mine), f"{run.id}: a script is left running")
            self._check_attempts(run, mine)
            kept = {x.id: x for x in self.store.launches(run.id)}
            for launch in mine:
                stored = kept.get(launch.id)
                if launch.outcome and stored and stored.outcome and stored.outcome.kind == launch.outcome["kind"] != "lost":
                    held = self.files.streams.get((launch.id, "log"), b"")
                    self._promise(held == launch.log, f"{launch.id}: the log is not whole")

    def _check_attempts(self, run: Run, mine: list[SimLaunch]) -> None:
        attempts: dict[int, list[SimLaunch]] = {}
        for launch in mine:
            attempts.setdefault(int(launch.id.split(".")[1]), []).append(launch)
        ended = -1.0
        succeeded = False
        for number in sorted(attempts):
            starts = [x.started_at for x in attempts[number] if x.started_at is not None]
            if not starts:
                continue
            self._promise(not succeeded, f"{run.id}: attempt {number} started after a success")
            alive_until = [x.ended_at for x in attempts[number] if x.ended_at is not None]
            self._promise(min(starts) >= ended, f"{run.id}: attempt {number} overlaps the one before")
            ended = max([ended, *alive_until])
            good = [x.outcome is not None and x.outcome["kind"] == "completed" for x in attempts[number]]
            succeeded = len(good) == run.node_count and all(good)
        self._promise(succeeded == (run.status == Status.COMPLETED), f"{run.id} is {run.status}, success was {succeeded}")
        if run.status == Status.CANCELED:
            self._promise(run.cancel_requested, f"{run.id} is Canceled though nobody asked")

    def _promise(self, kept: bool, words: str) -> None:
        if not kept:
            raise BrokenPromise(f"seed {self.seed}: {words}\n" + "\n".join(self.history[-60:]))


async def _many(seeds: Sequence[int], plant: str) -> None:
    for seed in seeds:
        world = World(seed, plant)
        await world.play()
        world.check()


def simulate(seeds: Sequence[int], plant: str = "") -> None:
    """Play these stories and check them. Raises BrokenPromise with the story of the first that fails."""
    logging.getLogger("shunter.dispatch").setLevel(logging.CRITICAL)
    asyncio.run(_many(seeds, plant))


__all__ = ["PLANTS", "BrokenPromise", "World", "simulate"]
