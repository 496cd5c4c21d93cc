"""Where runs are submitted. As `node.py` a bare ASGI callable: with the router, a submit would cost half as much again."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shunter.errors import ServerError, ShunterError, UsageError
from shunter.server.api.context import in_thread, quickly
from shunter.server.api.node import Receive, Send, read, reply
from shunter.server.api.wire import run_wire
from shunter.server.services import runs as service
from shunter.server.services.clusters import FOR_THIS_RUN
from shunter.server.services.parts import Parts

log = logging.getLogger("shunter.server")


class SubmitBody(BaseModel):
    """A submission."""

    model_config = ConfigDict(extra="forbid")

    id: str
    experiment: str
    target: str = "local"
    snapshot_id: str = Field(pattern=r"^[0-9a-f]{64}$")
    script: str
    arguments: list[str] = []
    name: str = ""
    config: dict[str, Any] = {}
    tags: dict[str, str] = {}
    properties: dict[str, Any] = {}
    parent_id: str | None = None
    priority: int = 0


class Submissions:
    """POST /api/v1/workspaces/WORKSPACE/runs: a submission in, the queued run as the answer."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def __call__(self, workspace: str, receive: Receive, send: Send) -> None:
        try:
            asked = read_submission(workspace, await read(receive))
            if asked.config.get("vm_size") or asked.target == FOR_THIS_RUN:
                # A cluster may have to be made for it, which takes longer than the loop can wait.
                run = await in_thread(service.submit_run, self.parts, asked)
            else:
                run = await quickly(self.parts.database, service.submit_run, self.parts, asked)
            await reply(send, 201, run_wire(run))
        except ShunterError as error:
            await reply(send, error.http_status, {"error": error.to_wire()})
        except Exception as error:
            log.exception("a submission failed")
            words = ServerError(f"The server failed: {type(error).__name__}.", hint="Its log tells more.")
            await reply(send, 500, {"error": words.to_wire()})


def read_submission(workspace: str, body: bytes) -> service.Submission:
    try:
        found = SubmitBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["body", *(str(part) for part in first["loc"])])
        raise UsageError(f"The request is wrong at {where}: {first['msg']}.") from error
    return service.Submission(
        workspace=workspace, id=found.id, experiment=found.experiment, target=found.target, snapshot_id=found.snapshot_id,
        script=found.script, arguments=tuple(found.arguments), name=found.name, config=found.config, tags=found.tags,
        properties=found.properties, parent_id=found.parent_id, priority=found.priority,
    )  # fmt: skip
