"""What callers may ask about secrets: set, list, delete. Only a run that was given one can read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shunter.errors import AuthError, NameInvalid, ShunterError, UsageError
from shunter.model.run import Run
from shunter.server.collect.masking import SHORTEST, Masker
from shunter.server.storage.secrets import Secrets

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_\-.]{0,126}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST = 64 << 10


def set_secret(parts: Parts, workspace: str, name: str, value: str) -> dict[str, Any]:
    parts.workspaces.check(workspace)
    if not _NAME.fullmatch(name):
        raise NameInvalid(
            f"{name!r} cannot be the name of a secret.", hint="Letters, digits, '_', '-' and '.', at most 127."
        )
    if not value or len(value.encode("utf-8", "surrogateescape")) > LONGEST or "\0" in value:
        raise UsageError(f"{name}: a secret has between 1 and {LONGEST} bytes, none of them NUL.")
    parts.context.maskers.remember(workspace, name)
    new = parts.context.secrets.set(workspace, name, value, parts.clock())
    short = len(value) < SHORTEST
    return {
        "name": name,
        "new": new,
        "warning": f"Shorter than {SHORTEST} characters: logs cannot hide it." if short else "",
    }


def list_secrets(parts: Parts, workspace: str) -> list[dict[str, Any]]:
    parts.workspaces.check(workspace)
    return parts.context.secrets.list(workspace)


def delete_secret(parts: Parts, workspace: str, name: str) -> None:
    parts.context.maskers.remember(workspace, name)
    parts.context.secrets.delete(workspace, name)


def secret_for_run(parts: Parts, run_id: str, name: str) -> str:
    """The value for a script that asks for it: only what its run was given."""
    run = parts.runs.get(run_id)
    given = given_secrets(run.config)
    if name not in given.values():
        raise AuthError(f"The secret {name!r} was not given to this run.", hint=f"Submit it with `--secret {name}`.")
    return parts.context.secrets.get(run.workspace, name)


def environment_for_run(parts: Parts, run_id: str) -> dict[str, str]:
    """The environment variables that carry the run's secrets."""
    run = parts.runs.get(run_id)
    return {
        variable: parts.context.secrets.get(run.workspace, name) for variable, name in given_secrets(run.config).items()
    }


def given_secrets(config: Mapping[str, Any]) -> dict[str, str]:
    """Environment variable → secret, from what was asked at submit: `["NAME", "VARIABLE=NAME"]`."""
    found: dict[str, str] = {}
    for asked in config.get("secrets") or ():
        variable, _, name = str(asked).rpartition("=")
        found[variable or re.sub(r"[^A-Za-z0-9_]", "_", name)] = name
    return found


def check_secrets(parts: Parts, workspace: str, config: Mapping[str, Any]) -> None:
    """Refuse a submission that asks for secrets that are not there."""
    asked = config.get("secrets") or []
    if not isinstance(asked, list) or not all(isinstance(one, str) for one in asked):
        raise UsageError("`secrets` is a list of names.", hint="As in --secret NAME, or --secret VARIABLE=NAME.")
    if not asked:
        return
    given = given_secrets(config)
    for variable in given:
        if not _VARIABLE.fullmatch(variable) or variable.startswith("SHUNTER_"):
            raise NameInvalid(f"{variable!r} cannot be the name of an environment variable for a secret.")
    parts.context.secrets.check(workspace, list(given.values()))


class Maskers:
    """The masker of each run that was given secrets; None for all others, at the cost of one look."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self._known: dict[str, Masker] = {}
        self._older: dict[tuple[str, str], set[str]] = {}

    def of(self, run: Run) -> Masker | None:
        if not run.config.get("secrets"):
            return None
        found = self._known.get(run.id)
        if found is None:
            values: list[str] = []
            for name in given_secrets(run.config).values():
                values.extend(self._older.get((run.workspace, name), ()))
                try:
                    values.append(self.secrets.get(run.workspace, name))
                except ShunterError:
                    continue  # deleted since: there is nothing left to compare with
            found = self._known[run.id] = Masker(values)
            while len(self._known) > 1000:
                self._known.pop(next(iter(self._known)))
        return found

    def remember(self, workspace: str, name: str) -> None:
        """A value is about to change. Runs that are under way may still say the old one: both are hidden."""
        try:
            self._older.setdefault((workspace, name), set()).add(self.secrets.get(workspace, name))
        except ShunterError:
            pass
        self._known.clear()
