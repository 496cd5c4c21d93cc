"""MLflow as the rest of the server sees it: one thing, which costs nothing until somebody uses it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shunter.model.run import Run
from shunter.server.tracking import upstream
from shunter.server.tracking.artifacts import Artifacts
from shunter.server.tracking.permits import Permits, permits_of
from shunter.server.tracking.process import MlflowProcess
from shunter.server.tracking.projection import Projection
from shunter.server.tracking.tables import tables_of

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

CODE_SECONDS = 120.0
SESSION_SECONDS = 12 * 3600.0


class Tracking:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        tables = tables_of(parts.database.url, parts.home / "mlflow" / "mlflow.db")
        self.process = MlflowProcess(parts.home, tables)
        self.projection = Projection(parts.runs, parts.context.metrics, tables)
        self.artifacts = Artifacts(parts.home)
        self.sessions = Sessions()

    def call(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> upstream.Reply:
        """Pass a call on to MLflow, which then knows all that we know."""
        self.bring()
        return upstream.call(self.process, method, target, headers, body)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> dict[str, Any]:
        """A call of our own below `api/2.0/mlflow/`."""
        self.bring()
        return upstream.ask(self.process, method, path, body, **query)

    def bring(self) -> None:
        self.process.ready()
        self.projection.bring()

    def permits(self, run: Run) -> Permits:
        return permits_of(run, self.parts.context.says.family(run), self.ask, self._registered)

    def _registered(self, run_id: str) -> list[str]:
        from shunter.server.services.models import places_of

        return places_of(self.parts, run_id)

    def close(self) -> None:
        self.process.stop()


class Sessions:
    """Browsers cannot send our token: a link with a code that works once gives them a session for MLflow's pages."""

    def __init__(self) -> None:
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}

    def code(self) -> str:
        found = secrets.token_urlsafe(24)
        self._codes[found] = time.monotonic() + CODE_SECONDS
        return found

    def redeem(self, code: str) -> str | None:
        """A new session for a code that was not used yet."""
        if self._codes.pop(code, 0.0) < time.monotonic():
            return None
        found = secrets.token_urlsafe(32)
        self._sessions[found] = time.monotonic() + SESSION_SECONDS
        return found

    def is_open(self, session: str) -> bool:
        return self._sessions.get(session, 0.0) > time.monotonic()


def connect(parts: Parts) -> Tracking:
    """Make it, and let it hear of every run that changes."""
    tracking = Tracking(parts)
    parts.runs.on_write = tracking.projection.mark
    parts.context.metrics.on_write = tracking.projection.mark
    return tracking
