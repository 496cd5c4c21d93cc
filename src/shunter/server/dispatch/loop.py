"""The thin loop: load → decide → guarded apply → act. Everything it must not forget is in the database before it acts."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from shunter.drivers.base import Driver, Gone, Scaling, Unknown
from shunter.errors import (
    BlobCorrupt,
    ConfigError,
    DatabaseBusy,
    EnvironmentInvalid,
    NotFound,
    ShunterError,
    StaleState,
    UsageError,
)  # fmt: skip
from shunter.model.run import OVER, Launch, LaunchState, Outcome, Run, Status, parse_launch_id
from shunter.server.dispatch import reconcile
from shunter.server.dispatch.moves import note
from shunter.server.dispatch.partners import Fetcher, Orders, Targets
from shunter.server.dispatch.place import Pool, Start, begin_attempt, choose, gpus_of
from shunter.server.dispatch.reconcile import CancelOnNode, Change, FetchHome, LaunchAgain
from shunter.server.storage.runs import RunStore

log = logging.getLogger("shunter.dispatch")

T = TypeVar("T")
Key = tuple[str, str]

#: How soon a launch is looked at after its intent, and how often a quiet one after that.
FIRST_LOOK_SECONDS = 3.0
LOOK_SECONDS = 12.0
CANCEL_LOOK_SECONDS = 2.0
#: A launch that cannot be put together for one of these reasons never can.
HOPELESS = (EnvironmentInvalid, UsageError, ConfigError, BlobCorrupt)
#: A target that could not be reached is tried again so soon.
READY_SECONDS = 3.0
#: A round that failed, for a reason that may pass, is tried again so soon.
AGAIN_SECONDS = 0.5


class Dispatcher:
    """Owns the states of all runs that are queued or placed.

    `call` runs a function that touches the database (in a thread, in the real server). All else it knows is a cache:
    a new Dispatcher on the same store goes on where a killed one stopped.
    """

    def __init__(
        self,
        store: RunStore,
        targets: Targets,
        orders: Orders,
        fetcher: Fetcher,
        *,
        clock: Callable[[], float],
        call: Callable[[Callable[[], T]], Awaitable[T]] | None = None,
        on_change: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self.store = store
        self.targets = targets
        self.orders = orders
        self.fetcher = fetcher
        self.clock = clock
        self.call: Callable[[Callable[[], Any]], Awaitable[Any]] = call or _inline
        self.on_change = on_change
        #: What must be made before a run is launched, in words (empty: nothing), and the making of it.
        self.needs: Callable[[Run], str] = lambda run: ""
        self.prepare: Callable[[Run], Awaitable[None]] | None = None
        self.heard: dict[str, float] = {}
        self.look_at: dict[str, float] = {}
        self.dirty: dict[Key, None] = {}
        self.wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._known: dict[str, tuple[Run, list[Launch]]] = {}
        self._problems: dict[Key, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry_at: dict[Key, float] = {}
        self._being_readied: set[Key] = set()
        self._full: set[Key] = set()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop that rounds run in: others may then tell us things from their threads."""
        self._loop = loop

    # What others tell dispatch.

    def submitted(self, run: Run) -> None:
        """A run was queued. On a target that is full nothing follows from that: the next slot that becomes free does."""
        if (run.workspace, run.target) not in self._full:
            self.queue_changed(run.workspace, run.target)

    def queue_changed(self, workspace: str, target: str) -> None:
        """A slot became free there, or something else that may let a queued run start."""
        self.dirty[(workspace, target)] = None
        self._wake()

    def _wake(self) -> None:
        if self._loop is None:
            self.wake.set()
        else:
            self._loop.call_soon_threadsafe(self.wake.set)

    def problem_of(self, workspace: str, target: str) -> str:
        return self._problems.get((workspace, target), "")

    def boot(self) -> None:
        """Every unfinished intent is looked at: nothing depends on a message that was seen by a server that is gone."""
        now = self.clock()
        for run in self.store.placed():
            self._remember(run, self.store.launches(run.id))
            self.look_at[run.id] = now
        for key in self.store.queues():
            self.dirty[key] = None
        self._wake()

    def hear(self, launch_id: str, decide: Callable[[Run, Launch, list[Launch]], Change]) -> Run:
        """A node reports: decide on it and write that down. Returns the run as it is now. Called in a thread."""
        self.heard[launch_id] = self.clock()
        decided: list[Change] = []

        def remembered(run: Run, launch: Launch, members: list[Launch]) -> Change:
            decided.append(decide(run, launch, members))
            return decided[-1]

        run = self._decide(launch_id, remembered)
        if decided and decided[-1].actions:
            # A gang's other members are to be stopped: the loop asks their target at once.
            self.look_at[run.id] = self.clock()
            self._wake()
        return run

    def _decide(self, launch_id: str, decide: Callable[[Run, Launch, list[Launch]], Change]) -> Run:
        run_id, attempt, index = parse_launch_id(launch_id)
        for last in (False, True):
            run, launches = self._load(run_id, fresh=last)
            mine = next((m for m in launches if m.attempt == attempt and m.node_index == index), None)
            if mine is None:
                if last:
                    raise StaleState(f"Launch {launch_id} was never intended.")
                continue
            change = decide(run, mine, [m for m in launches if m.attempt == attempt])
            if change.is_nothing:
                return run
            try:
                return self._write(run, launches, change)
            except StaleState:
                if last:
                    raise
        raise AssertionError

    def cancel(self, run_id: str, by: str) -> Run:
        """Write down that a run is to be canceled; the loop sees to it."""
        for last in (False, False, True):
            run, launches = self._load(run_id, fresh=True)
            change = reconcile.request_cancel(run, launches, by, self.clock())
            try:
                if change.run is not None:
                    run = self._write(run, launches, change)
                if change.actions:
                    self.look_at[run_id] = self.clock()
                    self._wake()
                return run
            except StaleState:
                if last:
                    raise
        raise AssertionError

    def forget(self, run_id: str) -> None:
        """Somebody else moves this run: what is remembered of it may be old."""
        self._known.pop(run_id, None)

    def current(self, run_id: str) -> tuple[Run, list[Launch]]:
        return self._load(run_id)

    # The loop.

    async def run_forever(self) -> None:
        while not await self._succeeds(self.call(self.boot), "boot"):
            pass
        while True:
            timeout = self._next_look()
            try:
                await asyncio.wait_for(self.wake.wait(), timeout)
            except TimeoutError:
                pass
            self.wake.clear()
            if not await self._succeeds(self.round(), "round"):
                self.wake.set()  # what it left undone is still there, and nobody else may come to wake us

    async def _succeeds(self, work: Awaitable[object], what: str) -> bool:
        try:
            await work
            return True
        except Exception:
            log.exception("a dispatch %s failed; trying again", what)
            await asyncio.sleep(AGAIN_SECONDS)
            return False

    async def round(self) -> None:
        """One round: start what can start, look at what is due."""
        now = self.clock()
        for key in [k for k, at in self._retry_at.items() if at <= now]:
            del self._retry_at[key]
            self.dirty[key] = None
        for key in list(self.dirty):
            self.dirty.pop(key, None)
            try:
                await self._place(key)
            except Exception:
                self.dirty[key] = None  # a locked database, say: its queue must not wait for the next who submits
                raise
        due = [run_id for run_id, at in list(self.look_at.items()) if at <= now]  # reports change it in their threads
        if due:
            await self._look(due)

    async def settle(self) -> None:
        """Wait for the actions that rounds have begun. For tests."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _next_look(self) -> float | None:
        times = [*self.look_at.values(), *self._retry_at.values()]
        return max(0.0, min(times) - self.clock()) if times else None

    async def _place(self, key: Key) -> None:
        workspace, target = key
        try:
            driver = self.targets.driver(workspace, target)
            self._problems.pop(key, None)
        except ShunterError as error:
            self._problems[key] = f"{target}: {error.message}"
            self._retry_at[key] = self.clock() + LOOK_SECONDS
            return
        if not getattr(driver, "is_ready", True):
            if key not in self._being_readied:
                self._being_readied.add(key)
                self._do(self._make_ready(key, driver))
            return
        starts: list[Start] = await self.call(lambda: self._begin(key, driver))
        for start in starts:
            self.on_change(start.run)
            self._do(self._launch_all(driver, start.run, start.launches))

    async def _make_ready(self, key: Key, driver: Any) -> None:
        """Reach a target before anything is placed on it: a run is not given to a machine that is switched off."""
        try:
            await driver.make_ready()
            self.queue_changed(*key)
        except (ShunterError, OSError) as error:
            self._not_ready(key, error.message if isinstance(error, ShunterError) else f"{key[1]}: {error}")
        except Exception as error:
            log.exception("%s could not be made ready; trying again", key[1])
            self._not_ready(key, f"{key[1]}: {type(error).__name__}: {error}")
        finally:
            self._being_readied.discard(key)

    def _not_ready(self, key: Key, why: str) -> None:
        self._problems[key] = why
        self._retry_at[key] = self.clock() + READY_SECONDS
        self._wake()

    def _begin(self, key: Key, driver: Driver) -> list[Start]:
        """Load the head of one queue, decide, write the intents. In one call of the database's thread."""
        self._full.discard(key)  # whoever is told that it is full was told before this look, or is told after it
        capacity, in_use = driver.capacity(), self.store.slots_in_use(*key)
        gpus = sum(gpus_of(self._load(run_id)[0]) for run_id, _ in in_use) if capacity.gpus else 0
        pool = Pool(capacity, in_use, gpus)
        if pool.free <= 0:
            self._full.add(key)
            return []
        now = self.clock()
        begun: list[Start] = []
        for run in choose(self.store.queued(*key, limit=min(pool.free, 64)), pool):
            provision = f"Nodes of {run.target} are being found for it." if isinstance(driver, Scaling) else ""
            start = begin_attempt(
                run, now, lambda launch_id: _handle(driver, launch_id), self.needs(run),
                provision=provision, price_per_hour=capacity.price_per_hour,
            )  # fmt: skip
            try:
                written = self.store.apply(start.run, start.before, start.launches, start.events)
            except StaleState:
                self.dirty[key] = None
                continue
            except DatabaseBusy:
                if not begun:
                    raise
                # Those that are written must be launched; the rest of the queue comes in the next round.
                self.queue_changed(*key)
                break
            old = [m for m in self._known.get(run.id, (run, []))[1] if m.attempt != written.attempt] if run.attempt else []
            self._remember(written, [*old, *start.launches])
            self.look_at[run.id] = now + FIRST_LOOK_SECONDS
            begun.append(Start(written, run, start.launches, start.events))
        return begun

    async def _launch_all(self, driver: Driver, run: Run, launches: Iterable[Launch]) -> None:
        for launch in launches:
            await self._launch(driver, run, launch)

    async def _launch(self, driver: Driver, run: Run, launch: Launch) -> None:
        try:
            if self.prepare is not None:
                await self.prepare(run)
            order = await self.call(lambda: self.orders.order(run, launch))
        except HOPELESS as error:
            # It would fail again, and nothing was sent yet: the run is over, with the reason.
            failed = Outcome("failed", code=error.code, message=error.message, hint=error.hint)
            await self.call(lambda: self.on_outcome(launch.id, failed))
            return
        except (ShunterError, OSError) as error:
            await self._not_launched(run, error)
            return
        try:
            handle = await driver.launch(order)
        except (ShunterError, OSError) as error:
            await self._not_launched(run, error)
            return
        self.heard[launch.id] = max(self.heard.get(launch.id, 0.0), self.clock())
        if handle != launch.handle:
            await self.call(lambda: self._save_handle(launch.id, handle))

    async def _not_launched(self, run: Run, error: Exception) -> None:
        words = error.message if isinstance(error, ShunterError) else str(error)
        log.warning("run %s: launch failed, will be looked at again: %s", run.id, words)
        await self.call(lambda: self._note(run.id, "launch_failed", words))

    def _save_handle(self, launch_id: str, handle: Mapping[str, Any]) -> None:
        def decide(run: Run, launch: Launch, _: Sequence[Launch]) -> Change:
            return Change(run, (launch.evolve(handle=handle),))

        self._decide(launch_id, decide)

    async def _look(self, run_ids: Sequence[str]) -> None:
        """Ask the targets about runs that are due, many at a time, and act on what they say."""
        now = self.clock()
        by_target: dict[Key, list[tuple[Run, Launch]]] = defaultdict(list)
        for run_id in run_ids:
            try:
                run, launches = await self.call(partial(self._load, run_id, fresh=True))
            except NotFound:
                self._forget(run_id)
                continue
            except ShunterError as error:  # a locked database: nobody else would look at this run again
                log.warning("run %s could not be looked at: %s", run_id, error)
                self.look_at[run_id] = now + CANCEL_LOOK_SECONDS
                continue
            if run.is_over or run.status == Status.QUEUED:
                self._forget(run_id)
                continue
            soon = run.cancel_requested or run.status == Status.PROVISIONING  # somebody waits for what changes here
            self.look_at[run_id] = now + (CANCEL_LOOK_SECONDS if soon else LOOK_SECONDS)
            for launch in launches:
                if launch.attempt == run.attempt and not launch.is_over and self._is_due(run, launch, now):
                    by_target[(run.workspace, run.target)].append((run, launch))
        for key, pairs in by_target.items():
            self._do(self._look_at_target(key, pairs))

    def _is_due(self, run: Run, launch: Launch, now: float) -> bool:
        """A launch that spoke lately is alive: nobody needs to be asked."""
        if run.cancel_requested or run.status in (Status.NOT_RESPONDING, Status.FINALIZING):
            return True
        return now - self.heard.get(launch.id, 0.0) >= LOOK_SECONDS or launch.state == LaunchState.INTENDED

    async def _look_at_target(self, key: Key, pairs: Sequence[tuple[Run, Launch]]) -> None:
        try:
            driver = self.targets.driver(*key)
            signs = await driver.poll([launch.handle for _, launch in pairs])
        except (ShunterError, OSError) as error:
            driver = None
            signs = [Unknown(str(error))] * len(pairs)
        for (run, launch), sign in zip(pairs, signs, strict=True):
            if driver is not None and isinstance(sign, Gone) and sign.started:
                await self._save(driver, run, launch)
            silent = self.clock() - max(self.heard.get(launch.id, 0.0), launch.intended_at)
            actions: list[reconcile.Action] = []

            def decide(run: Run, launch: Launch, members: list[Launch], sign: Any = sign, silent: float = silent,
                       actions: list[reconcile.Action] = actions) -> Change:  # fmt: skip
                change = reconcile.on_sign(run, launch, members, sign, silent, self.clock())
                actions[:] = change.actions
                return change

            try:
                run = await self.call(partial(self._decide, launch.id, decide))
            except ShunterError as error:
                log.warning("run %s: %s", launch.run_id, error)
                continue
            if driver is not None:
                for action in actions:
                    await self._act(driver, run, action)

    async def _save(self, driver: Driver, run: Run, launch: Launch) -> None:
        """Nobody will push what a lost launch left on its node: log and outputs are brought home, if they can be."""
        try:
            await self.fetcher.fetch(driver, run, launch)
        except (ShunterError, OSError) as error:
            log.warning("run %s: what it left could not be fetched: %s", run.id, error)

    async def _act(self, driver: Driver, run: Run, action: reconcile.Action) -> None:
        try:
            match action:
                case LaunchAgain(launch=launch):
                    self._do(self._launch(driver, run, launch))  # it may take as long as a node takes to come up
                case CancelOnNode(launch=launch):
                    await driver.cancel(launch.handle)
                case FetchHome(launch=launch, outcome=outcome):
                    await self.fetcher.fetch(driver, run, launch)
                    await self.call(lambda: self.on_outcome(launch.id, outcome))
        except (ShunterError, OSError) as error:
            log.warning("run %s: %s: %s", run.id, type(action).__name__, error)

    def on_outcome(self, launch_id: str, outcome: Outcome) -> Run:
        """The outcome that was found on the node."""
        return self._decide(
            launch_id, lambda run, mine, gang: reconcile.on_outcome(run, mine, gang, outcome, self.clock())
        )

    # The cache, and writing through it.

    def _load(self, run_id: str, fresh: bool = False) -> tuple[Run, list[Launch]]:
        known = None if fresh else self._known.get(run_id)
        if known is None:
            known = (self.store.get(run_id), self.store.launches(run_id))
            if not known[0].is_over:
                self._known[run_id] = known
        return known

    def _remember(self, run: Run, launches: list[Launch]) -> None:
        self._known[run.id] = (run, launches)

    def _write(self, run: Run, launches: list[Launch], change: Change) -> Run:
        try:
            written = self.store.apply(change.run or run, run, change.launches, change.events)
        except StaleState:
            self._known.pop(run.id, None)
            raise
        changed = {m.id: m for m in change.launches}
        now_launches = [changed.pop(m.id, m) for m in launches] + list(changed.values())
        if written.is_over:
            self._forget(run.id)
        else:
            self._remember(written, now_launches)
        if written.status != run.status:
            self.on_change(written)
            if written.status in OVER or written.status == Status.QUEUED:
                self.queue_changed(run.workspace, run.target)
        return written

    def _note(self, run_id: str, kind: str, words: str) -> None:
        run, launches = self._load(run_id, fresh=True)
        if run.is_over or run.reason == words:
            return
        try:
            self._write(run, launches, Change(run.evolve(reason=words), (), (note(run, self.clock(), kind, words),)))
        except StaleState:
            pass

    def _forget(self, run_id: str) -> None:
        known = self._known.pop(run_id, None)
        self.look_at.pop(run_id, None)
        for launch in known[1] if known else []:
            self.heard.pop(launch.id, None)

    def _do(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("dispatch action failed", exc_info=task.exception())


def _handle(driver: Driver, launch_id: str) -> Mapping[str, Any]:
    """The handle as far as it is known before the launch; a driver that needs more returns it from `launch`."""
    return {"launch": launch_id}


async def _inline(function: Callable[[], T]) -> T:
    return function()
