"""Values as they go over the wire."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from shunter.model.compute import Compute
from shunter.model.run import Event, Run
from shunter.server.dispatch.explain import Why
from shunter.server.services.notify import shown as shown_notice
from shunter.server.vault import shown


def time_text(at: float | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_wire(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "alias": run.alias,
        "name": run.name,
        "number": run.number,
        "workspace": run.workspace,
        "experiment": run.experiment,
        "status": str(run.status),
        "target": run.target,
        "node_count": run.node_count,
        "snapshot_id": run.snapshot_id,
        "script": run.script,
        "arguments": list(run.arguments),
        "exit_code": run.exit_code,
        "submitted_at": time_text(run.submitted_at),
        "started_at": time_text(run.started_at),
        "ended_at": time_text(run.ended_at),
        "since": time_text(run.since),
        "deadline_at": time_text(run.deadline_at),
        "attempts": run.attempt,
        "reason": run.reason,
        "error": {"code": run.error.code, "message": run.error.message, "hint": run.error.hint} if run.error else None,
        "tags": dict(run.tags),
        "properties": dict(run.properties),
        "parent_id": run.parent_id,
        "config": {k: _shown(k, v) for k, v in run.config.items() if k != "secrets"},
        "usage": dict(run.usage),
        "cost": run.usage.get("cost"),
        "version": run.version,
    }


def _shown(name: str, value: Any) -> Any:
    """A webhook's address is often its secret: only its host is shown."""
    return [shown_notice(target) for target in value] if name == "notify" and isinstance(value, list) else value


def event_wire(event: Event) -> dict[str, Any]:
    return {
        "at": time_text(event.at),
        "kind": event.kind,
        "status": str(event.status),
        "reason": event.reason,
        "data": dict(event.data),
    }


def why_wire(why: Why) -> dict[str, Any]:
    return {
        "status": str(why.status),
        "since": time_text(why.since),
        "owner": why.owner,
        "deadline_at": time_text(why.deadline_at),
        "reasons": list(why.reasons),
        "can_start": why.can_start,
        "would_help": list(why.would_help),
    }


def compute_wire(compute: Compute) -> dict[str, Any]:
    return {
        "name": compute.name,
        "kind": compute.kind,
        "workspace": compute.workspace,
        "state": compute.state,
        "reason": compute.reason,
        "config": shown(compute.config),
        "facts": dict(compute.facts),
        "tags": dict(compute.tags),
        "created_at": time_text(compute.created_at),
    }
