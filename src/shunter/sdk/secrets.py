"""Secrets of a workspace: `ws.secrets.set("HF_TOKEN", value)`, then `ws.submit(…, secrets=["HF_TOKEN"])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shunter.sdk.client import part

if TYPE_CHECKING:
    from shunter.sdk.workspace import Workspace


class Secrets:
    """Names come and go; values only come. Only a run that was given a secret can read it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def set(self, name: str, value: str) -> dict[str, Any]:
        """Keep a value, sealed; one that is there already is replaced."""
        found: dict[str, Any] = self.workspace.client.call("PUT", f"{self._path}/{part(name)}", {"value": value})
        return found

    def list(self) -> list[dict[str, Any]]:
        """Names and times."""
        found: list[dict[str, Any]] = self.workspace.client.get(self._path)
        return found

    def delete(self, name: str) -> None:
        self.workspace.client.call("DELETE", f"{self._path}/{part(name)}")

    @property
    def _path(self) -> str:
        return f"{self.workspace.path}/secrets"
