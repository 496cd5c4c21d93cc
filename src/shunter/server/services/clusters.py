"""Targets whose nodes come and go: created with progress, resized, deleted, and made for one run.

What is begun here is written down first (`Creating`, `Deleting`); the next server goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from shunter.drivers.base import NodeState, Scaling
from shunter.drivers.registry import FOR_ONE_RUN, driver_class
from shunter.errors import DriverError, NotFound, ShunterError, StaleState, UsageError
from shunter.model.compute import Compute
from shunter.model.run import Run, Status

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts
    from shunter.server.services.runs import Submission

log = logging.getLogger("shunter.clusters")

CREATING, DELETING, SUCCEEDED, FAILED = "Creating", "Deleting", "Succeeded", "Failed"
#: The target that stands for "make one for this run", as the first SDK's run configurations name it.
FOR_THIS_RUN = "amlcompute"
#: Between two tries to give a cluster back: at first, and at most.
AGAIN_SECONDS, MOST_SECONDS = 1.0, 60.0

Say = Callable[[dict[str, Any]], None]
T = TypeVar("T")


def connect(parts: Parts) -> Clusters:
    """The service, told of every run that moves."""
    clusters = Clusters(parts)
    before = parts.dispatch.on_change

    def on_change(run: Run) -> None:
        before(run)
        clusters.on_change(run)

    parts.dispatch.on_change = on_change
    return clusters


class Clusters:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """On boot: whatever was begun is gone on with, and clusters whose run is over go."""
        self._loop = loop
        self._do(self._resume())

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Created, changed, deleted.

    async def bring_up(self, compute: Compute, say: Say) -> Compute:
        """Have what must always be there, telling each change. Goes on when the caller is gone."""
        driver = self.parts.targets.driver(compute.workspace, compute.name)
        if not isinstance(driver, Scaling) or not compute.config.get("min_nodes"):
            return compute
        await self._call(self._set_state, compute.workspace, compute.name, CREATING, "Its nodes are coming up.")
        task = self._do(self._start(compute.workspace, compute.name))
        told = ""
        while not task.done():
            await asyncio.wait([task], timeout=0.5)
            words = ", ".join(f"{count} {state}" for state, count in _counts(await driver.nodes()).items() if count)
            if words != told:
                told = words
                say({"check": "nodes", "verdict": "ok", "message": words, "hint": ""})
        found = await self._call(self.parts.computes.get, compute.workspace, compute.name)
        if found.state == FAILED:
            raise DriverError(f"{compute.name}: {found.reason}", hint=f"`shunter compute delete {compute.name}` takes it away.")
        return found

    def begin(self, compute: Compute) -> None:
        self._do(self._start(compute.workspace, compute.name))

    async def apply(self, workspace: str, name: str) -> None:
        driver = self.parts.targets.driver(workspace, name)
        if isinstance(driver, Scaling):
            await driver.apply()

    async def give_back(self, workspace: str, name: str) -> None:
        """Everything that a target holds, before it is forgotten. Nothing to do for a target without nodes of its own."""
        try:
            driver = self.parts.targets.driver(workspace, name)
        except ShunterError:
            return  # its kind cannot be loaded here; the row must still go
        if isinstance(driver, Scaling):
            await self._call(self._set_state, workspace, name, DELETING, "Its nodes are being given back.")
            await driver.remove()

    async def status(self, workspace: str, name: str) -> dict[str, Any]:
        """Nodes by state and one by one; empty for a target without nodes of its own."""
        driver = self.parts.targets.driver(workspace, name)
        if not isinstance(driver, Scaling):
            return {}
        nodes = await driver.nodes()
        return {"node_counts": _counts(nodes), "nodes": [_node_wire(node) for node in nodes]}

    # Made for one run.

    def for_one_run(self, asked: Submission) -> tuple[Submission, Compute | None]:
        """A submission that names a size instead of a target, with the target made for it. Called in a thread."""
        size = asked.config.get("vm_size")
        if asked.target != FOR_THIS_RUN and not (size and asked.target == "local"):
            return asked, None
        if not size:
            raise UsageError(f"{FOR_THIS_RUN!r} makes a cluster for this run, and needs to know its size.", hint="Say --vm-size.")
        from shunter.server.services.computes import check_config

        nodes = int(asked.config.get("node_count") or 1)
        config: Mapping[str, Any] = check_config(
            FOR_ONE_RUN, {"vm_size": size, "max_nodes": nodes, "idle_seconds_before_scaledown": 1, "only_run": asked.id}
        )
        name, tags = f"run-{asked.id[:12]}", {"run": asked.id}
        compute = Compute(name, asked.workspace, FOR_ONE_RUN, config, self.parts.clock(), tags=tags)
        driver = driver_class(FOR_ONE_RUN)(compute, self.parts.targets.home)
        assert isinstance(driver, Scaling)
        compute = compute.evolve(facts=driver.facts().to_wire())
        try:
            self.parts.computes.add(compute)
        except ShunterError:  # submitted before: the same again is fine
            compute = self.parts.computes.get(compute.workspace, compute.name)
        return replace(asked, target=compute.name), compute

    def forget(self, compute: Compute) -> None:
        """Its run was refused."""
        self.parts.computes.delete(compute.workspace, compute.name)
        self.parts.targets.removed(compute.workspace, compute.name)

    def on_change(self, run: Run) -> None:
        """A run moved: its room is given on, and the cluster that was made for it goes with it. Called from any thread."""
        if self._loop is None:
            return
        if run.status == Status.COMPLETED:
            self._loop.call_soon_threadsafe(self._completed, run)
        if run.is_over and run.target == f"run-{run.id[:12]}":
            self._loop.call_soon_threadsafe(lambda: self._do(self._delete(run.workspace, run.target)))

    # Below.

    def _completed(self, run: Run) -> None:
        """Drivers that hear of it late from their nodes are told."""
        try:
            driver = self.parts.targets.driver(run.workspace, run.target)
        except ShunterError:
            return  # deleted meanwhile
        if isinstance(driver, Scaling) and not getattr(driver, "shares_disk", False) and hasattr(driver, "completed"):
            self._do(driver.completed(run.id, run.attempt))

    async def _start(self, workspace: str, name: str) -> None:
        driver = self.parts.targets.driver(workspace, name)
        assert isinstance(driver, Scaling)
        try:
            await driver.start()
            await self._call(self._set_state, workspace, name, SUCCEEDED, "")
        except (ShunterError, OSError) as error:
            words = error.message if isinstance(error, ShunterError) else str(error)
            await self._call(self._set_state, workspace, name, FAILED, words)
        self.parts.dispatch.queue_changed(workspace, name)

    async def _delete(self, workspace: str, name: str) -> None:
        pause = AGAIN_SECONDS
        while True:
            try:
                await self.give_back(workspace, name)
                break
            except NotFound:
                return
            except (ShunterError, OSError):  # a cluster that nobody wants must not stay because of one bad moment
                log.exception("%s could not be given back; trying again in %.0f s", name, pause)
                await asyncio.sleep(pause)
                pause = min(pause * 2, MOST_SECONDS)
        await self._call(self.parts.computes.delete, workspace, name)
        self.parts.targets.removed(workspace, name)

    async def _resume(self) -> None:
        for compute in await self._call(self.parts.computes.list):
            try:
                await self._resume_one(compute)
            except Exception:
                log.exception("%s could not be looked after", compute.name)

    async def _resume_one(self, compute: Compute) -> None:
        only = compute.config.get("only_run")
        if compute.state == DELETING or (only and await self._call(self._is_over, str(only))):
            self._do(self._delete(compute.workspace, compute.name))  # one that takes long keeps no other waiting
        elif compute.state == CREATING or compute.config.get("min_nodes"):
            self.begin(compute)

    def _is_over(self, run_id: str) -> bool:
        try:
            return self.parts.runs.get(run_id).is_over
        except NotFound:
            return True

    def _set_state(self, workspace: str, name: str, state: str, reason: str) -> None:
        for _ in range(3):
            try:
                compute = self.parts.computes.get(workspace, name)
                if (compute.state, compute.reason) != (state, reason):
                    self.parts.computes.update(compute.evolve(state=state, reason=reason))
                return
            except StaleState:
                continue

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        """In a thread: it touches the database."""
        found: T = await self.parts.dispatch.call(lambda: function(*args))
        return found

    def _do(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("looking after a cluster failed", exc_info=task.exception())


def _node_wire(node: NodeState) -> dict[str, Any]:
    from shunter.server.api.wire import time_text

    return {**node.to_wire(), "asked_at": time_text(node.asked_at), "ended_at": time_text(node.ended_at)}


def _counts(nodes: Sequence[NodeState]) -> dict[str, int]:
    counts = dict.fromkeys(("idle", "running", "preparing", "leaving", "preempted", "unusable"), 0)
    for node in nodes:
        counts[node.state] += 1
    return counts
