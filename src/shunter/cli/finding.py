"""Finding the workspace, a run by a part of its id, and what the shell's Tab key may offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace


def workspace() -> Workspace:
    """The workspace that commands work in: the one that a `.shunter/config.json` names, else the default."""
    from shunter.sdk.workspace import Workspace

    return Workspace.from_config()


def find_run(run_id: str) -> Run:
    """A run by its id, the beginning of it, or its name."""
    return workspace().run(run_id)


def complete_runs(incomplete: str) -> list[tuple[str, str]]:
    """The newest runs, for the shell's Tab key. Never starts a server, never complains."""
    found = [run for run in _ask("runs", limit=50) if run["id"].startswith(incomplete)]
    return [(run["id"][:8], f"{run['name']} {run['status']}") for run in found]


def complete_targets(incomplete: str) -> list[tuple[str, str]]:
    return [(c["name"], c["kind"]) for c in _ask("computes") if c["name"].startswith(incomplete)]


def complete_experiments(incomplete: str) -> list[str]:
    return [e["name"] for e in _ask("experiments") if e["name"].startswith(incomplete)]


def _ask(what: str, **query: Any) -> list[dict[str, Any]]:
    try:
        from shunter.sdk.connect import connect

        found: list[dict[str, Any]] = connect(start=False).get(f"/api/v1/workspaces/default/{what}", **query)
        return found
    except Exception:
        return []
