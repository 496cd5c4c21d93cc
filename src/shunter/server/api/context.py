"""What a route needs from the server: its parts, and a thread for what blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from shunter.server.services.parts import Parts

T = TypeVar("T")

#: Few threads: the database lets one writer in at a time, and a waiting reader costs nothing.
POOL = ThreadPoolExecutor(8, thread_name_prefix="shunter")


def parts_of(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(POOL, function, *args)


Server = Annotated[Parts, Depends(parts_of)]
