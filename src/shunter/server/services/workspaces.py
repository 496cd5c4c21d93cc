"""What callers may ask about workspaces."""

from __future__ import annotations

from typing import Any

from shunter.errors import AlreadyExists
from shunter.model.compute import Compute
from shunter.model.names import check_title
from shunter.server.services.parts import Parts
from shunter.server.storage.computes import Computes


def create_workspace(parts: Parts, name: str, exist_ok: bool = False) -> dict[str, Any]:
    """A new workspace, with this machine as its first target."""
    check_title("workspace", name)
    now = parts.clock()
    parts.workspaces.add(name, now, exist_ok)
    add_local_target(parts.computes, name, now)
    return parts.workspaces.get(name)


def add_local_target(computes: Computes, workspace: str, now: float) -> None:
    try:
        computes.add(Compute("local", workspace, "local", {}, now))
    except AlreadyExists:
        pass
