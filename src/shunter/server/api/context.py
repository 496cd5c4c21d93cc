"""What a route needs from the server: its parts, and a thread for what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from shunter.errors import DatabaseBusy
from shunter.server.services.parts import Parts
from shunter.server.storage.database import Database

T = TypeVar("T")

#: Few threads: the database lets one writer in at a time, and a waiting reader costs nothing.
POOL = ThreadPoolExecutor(8, thread_name_prefix="shunter")

#: MLflow takes seconds to start: who waits for it must not hold up those above. Threads come when first needed.
MLFLOW_POOL = ThreadPoolExecutor(8, thread_name_prefix="shunter-mlflow")


def parts_of(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(POOL, function, *args)


async def in_mlflow_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(MLFLOW_POOL, function, *args)


async def quickly(database: Database, function: Callable[..., T], *args: Any) -> T:
    """Do a small piece of work at once, in the loop's own thread; in another one where that would have to wait.

    Handing over to a thread and back costs more than most transactions take. The work must be safe to begin again:
    when the database is busy, nothing has been written and it starts over in a thread that can wait.
    """
    if database.is_sqlite:
        try:
            with database.impatient():
                return function(*args)
        except DatabaseBusy:
            pass
    return await in_thread(function, *args)


Server = Annotated[Parts, Depends(parts_of)]
