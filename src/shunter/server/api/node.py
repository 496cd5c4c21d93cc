"""Where launchers report. The door has seen to it that the token is the one of this very run.

Every run calls here at least twice, so this is a bare ASGI callable: the router would cost more than the work.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from shunter.errors import ServerError, ShunterError, UsageError
from shunter.server.api.context import in_thread, quickly
from shunter.server.collect.ingest import MOST_BYTES, Ingest
from shunter.server.storage.database import Database

log = logging.getLogger("shunter.server")

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


#: Up to this size a report is taken in at once; a larger one is written in a thread, so that others are answered.
SMALL_BYTES = 1 << 16


class Reports:
    """POST /api/v1/node/LAUNCH: one report in, what we hold as the answer."""

    def __init__(self, ingest: Ingest, database: Database) -> None:
        self.ingest = ingest
        self.database = database

    async def __call__(self, launch_id: str, receive: Receive, send: Send) -> None:
        try:
            body = await read(receive)
            if len(body) <= SMALL_BYTES:
                answer = await quickly(self.database, self.ingest.receive, launch_id, body)
            else:
                answer = await in_thread(self.ingest.receive, launch_id, body)
            await reply(send, 200, answer)
        except ShunterError as error:
            await reply(send, error.http_status, {"error": error.to_wire()})
        except Exception:
            log.exception("launch %s: a report failed", launch_id)
            await reply(send, 500, {"error": ServerError("The server failed.", hint="Its log tells more.").to_wire()})


async def reply(send: Send, status: int, value: Any) -> None:
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read(receive: Receive) -> bytes:
    """The whole body of a call."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise UsageError("The call broke off.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise UsageError(f"A call may have at most {MOST_BYTES} bytes.")
        if not message.get("more_body"):
            return b"".join(parts)
