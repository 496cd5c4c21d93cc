"""Compute targets: created or attached, then used by name. Generic over their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shunter.sdk.client import part

if TYPE_CHECKING:
    from shunter.sdk.workspace import Workspace


class Compute:
    """A compute target as of the last look."""

    def __init__(self, workspace: Workspace, data: dict[str, Any]) -> None:
        self.workspace = workspace
        self.data = data

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def state(self) -> str:
        return str(self.data["state"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.data["config"])

    @property
    def path(self) -> str:
        return f"{self.workspace.path}/computes/{part(self.name)}"

    def show(self) -> dict[str, Any]:
        """All about it: options, hardware, room, who runs there."""
        found: dict[str, Any] = self.workspace.client.get(self.path)
        return found

    def probe(self) -> Compute:
        """Reach out to it and look at its hardware."""
        self.data = self.workspace.client.post(self.path + "/probe")
        return self

    def update(self, **config: Any) -> Compute:
        self.data = self.workspace.client.call("PATCH", self.path, {"config": config})
        return self

    def delete(self) -> None:
        """Delete or detach it. Refused while runs are there."""
        self.workspace.client.call("DELETE", self.path)

    detach = delete

    def __repr__(self) -> str:
        return f"Compute({self.name!r}, kind={self.kind!r}, {self.state})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        return html_table({k: self.data[k] for k in ("name", "kind", "state", "config", "facts")})


class Computes:
    """The compute targets of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._path = f"{workspace.path}/computes"

    def create(self, name: str, kind: str, tags: Mapping[str, str] | None = None, **config: Any) -> Compute:
        """Create (or attach) a target; `config` are the options of its kind."""
        body = {"name": name, "kind": kind, "config": config, "tags": dict(tags or {})}
        return Compute(self.workspace, self.workspace.client.post(self._path, body))

    attach = create

    def get(self, name: str) -> Compute:
        return Compute(self.workspace, self.workspace.client.get(f"{self._path}/{part(name)}"))

    def list(self) -> Sequence[Compute]:
        return [Compute(self.workspace, data) for data in self.workspace.client.get(self._path)]

    def kinds(self) -> Sequence[dict[str, Any]]:
        """What kinds of targets this server knows, and their options."""
        found: list[dict[str, Any]] = self.workspace.client.get("/api/v1/kinds")
        return found
