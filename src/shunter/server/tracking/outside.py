"""What a client of MLflow says from outside about a run of ours: it is our run's too, once MLflow has taken it."""

from __future__ import annotations

import json
from typing import Any

from shunter.node.mlflow_lines import line, metric_lines
from shunter.server.services.parts import Parts
from shunter.server.services.runs import tag_run

CALLS = ("log-metric", "log-parameter", "log-batch", "set-tag", "delete-tag")


def take(parts: Parts, call: str, body: bytes, by_owner: bool) -> None:
    """A script's own points and parameters come by its stream, so only its tags are taken here."""
    about = json.loads(body)
    run_id = str(about.get("run_id") or about.get("run_uuid") or "")
    if not parts.tracking.projection.is_known(run_id):
        return
    part = {"log-metric": "metrics", "log-parameter": "params", "set-tag": "tags", "delete-tag": "tags"}.get(call)
    said: dict[str, Any] = {part: [about]} if part else about
    # What MLflow says to itself stays there.
    tags = {key: value for key, value in _pairs(said.get("tags")).items() if not key.startswith(("mlflow.", "shunter."))}
    if tags and call == "delete-tag":
        tag_run(parts, run_id, {}, tuple(tags))
    elif tags:
        tag_run(parts, run_id, tags)
    if by_owner:
        lines = metric_lines(said.get("metrics") or [], {})
        if params := _pairs(said.get("params")):
            lines.append(line("params", params, {}))
        if lines:
            parts.context.points.hear(parts.runs.get(run_id), ("\n".join(lines) + "\n").encode())


def _pairs(found: Any) -> dict[str, str]:
    return {str(one["key"]): str(one.get("value") or "") for one in found or ()}
