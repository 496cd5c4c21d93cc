"""The door: every call passes here, and shows its token. In one place, so that no route can forget it."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from shunter.errors import AuthError, ShunterError
from shunter.server.api.node import Reports, reply
from shunter.server.api.submissions import Submissions
from shunter.server.tokens import Caller, Tokens

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The cookie of a browser on MLflow's pages. It opens these and nothing else.
SESSION = "shunter_mlflow"
_PAGES = "/mlflow/"
_LOGIN = "/mlflow/login"
_SUBMIT = re.compile(r"/api/v1/workspaces/([^/]+)/runs")
_NODE = re.compile(r"/api/v1/node/([0-9a-f]{32})\.\d{1,9}\.\d{1,9}(/.*)?")


class Door:
    """ASGI middleware. A run's token opens only `/api/v1/node/LAUNCH…` of that run; the owner's opens everything else."""

    def __init__(self, app: Asgi, tokens: Tokens, reports: Reports, submissions: Submissions) -> None:
        self.app = app
        self.reports = reports
        self.submissions = submissions
        self.tokens = tokens
        self.is_session: Callable[[str], bool] = lambda session: False
        self.last_call = time.monotonic()
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            scope["caller"] = caller = self._caller(scope)
            match = _NODE.fullmatch(scope["path"])
            if caller.run_id is not None and (match is None or match[1] != caller.run_id):
                raise AuthError("A run's token reaches only that run.", hint="Use your own token for this.")
            if caller.run_id is None and match is not None:
                raise AuthError("Only a run's own token can report for it.")
        except ShunterError as error:
            await reply(send, error.http_status, {"error": error.to_wire()})
            return
        if caller.run_id is None:
            self.last_call = time.monotonic()
        self.under_way += 1
        try:
            if match is not None and match[2] is None and scope["method"] == "POST":
                await self.reports(scope["path"].rsplit("/", 1)[1], receive, send)
            elif scope["method"] == "POST" and (where := _SUBMIT.fullmatch(scope["path"])) is not None:
                await self.submissions(where[1], receive, send)
            else:
                await self.app(scope, receive, send)
        finally:
            self.under_way -= 1
            if caller.run_id is None:
                self.last_call = time.monotonic()

    def _caller(self, scope: Scope) -> Caller:
        header = _header(scope, b"authorization")
        if header is None and scope["path"].startswith(_PAGES) and (scope["path"] == _LOGIN or self._is_browser(scope)):
            return Caller("browser")
        return self.tokens.caller(header)

    def _is_browser(self, scope: Scope) -> bool:
        """A session of ours; and when it changes something, from a page of ours: cookies do not tell ports apart."""
        cookies = dict(c.strip().partition("=")[::2] for c in (_header(scope, b"cookie") or "").split(";"))
        if not self.is_session(cookies.get(SESSION, "")):
            return False
        origin = (_header(scope, b"origin") or "").partition("://")[2]
        return scope["method"] in ("GET", "HEAD") or (origin != "" and origin == _header(scope, b"host"))


def _header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return None
