"""The loop goes on after whatever fails once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from shunter.errors import DatabaseBusy
from shunter.model.run import Run, Status
from shunter.server.dispatch import loop
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.dispatch.moves import note
from shunter.testing.crowd import Crowd
from shunter.testing.runs import MemoryRuns

RUN = Run("a" * 32, "w", "e", "n", "crowd", Status.QUEUED, "s", "t.py", (), {}, 1.0, 1.0, slots=2)


class Busy:
    """A database that is locked the first times it is asked for something."""

    def __init__(self, times: int) -> None:
        self.times = times

    async def call(self, function: Callable[[], Any]) -> Any:
        if self.times:
            self.times -= 1
            raise DatabaseBusy
        return function()


class Shy(Crowd):
    """A target that cannot be made ready the first time, for a reason that nobody thought of."""

    is_ready = False

    async def make_ready(self) -> None:
        if not self.count:
            self.count = 1
            raise KeyError("surprise")
        self.is_ready = True


async def run_until(dispatcher: Dispatcher, condition: Callable[[], object]) -> None:
    task = asyncio.create_task(dispatcher.run_forever())
    try:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await dispatcher.settle()


def dispatcher_on(target: Crowd, call: Callable[[Callable[[], Any]], Awaitable[Any]] | None) -> Dispatcher:
    store = MemoryRuns()
    store.add(RUN, note(RUN, 1.0, "submitted", ""))
    return Dispatcher(store, target, target, cast("Any", target), clock=time.time, call=call)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGAIN_SECONDS", "READY_SECONDS", "FIRST_LOOK_SECONDS", "LOOK_SECONDS", "CANCEL_LOOK_SECONDS"):
        monkeypatch.setattr(loop, name, 0.05)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_database_that_was_locked_delays_a_queue_and_does_not_stop_it(times: int) -> None:
    dispatcher = dispatcher_on(Crowd(1), Busy(times).call)
    asyncio.run(run_until(dispatcher, lambda: dispatcher.store.get(RUN.id).status == Status.PROVISIONING))


def test_a_run_is_looked_at_again_though_the_database_was_locked_at_the_first_look() -> None:
    busy = Busy(0)
    dispatcher = dispatcher_on(Crowd(1), busy.call)
    asyncio.run(run_until(dispatcher, lambda: RUN.id in dispatcher.look_at))
    busy.times = 1
    asyncio.run(dispatcher._look([RUN.id]))
    assert RUN.id in dispatcher.look_at


def test_a_target_that_could_not_be_made_ready_is_tried_again_whatever_the_reason() -> None:
    shy = Shy(0)
    dispatcher = dispatcher_on(shy, None)
    asyncio.run(run_until(dispatcher, lambda: dispatcher.store.get(RUN.id).status == Status.PROVISIONING))
