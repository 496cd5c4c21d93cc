"""Who may do what: the owner's token reaches everything, a run's token only that run."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from shunter.errors import AuthError


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling: a person (by name), or a run."""

    name: str
    run_id: str | None = None


class Tokens:
    """A run's token is derived from the server's secret: it needs no look-up and outlives a restart."""

    def __init__(self, owner_token: str, secret: str) -> None:
        self._owner = owner_token.encode()
        self._secret = secret.encode()

    def for_run(self, run_id: str) -> str:
        sign = hmac.new(self._secret, f"run:{run_id}".encode(), hashlib.sha256).hexdigest()
        return f"run.{run_id}.{sign}"

    def caller(self, header: str | None) -> Caller:
        """Who sent this Authorization header. Raises AuthError."""
        if not header or not header.startswith("Bearer "):
            raise AuthError("This call carries no token.", hint="Send `Authorization: Bearer TOKEN`; SHUNTER_TOKEN names it.")
        token = header[7:].strip()
        if token.startswith("run."):
            _, _, rest = token.partition(".")
            run_id, _, _ = rest.partition(".")
            if hmac.compare_digest(token.encode(), self.for_run(run_id).encode()):
                return Caller("run", run_id)
        elif hmac.compare_digest(token.encode(), self._owner):
            return Caller("owner")
        raise AuthError("The token is wrong.", hint="Is SHUNTER_TOKEN the one of this server?")
