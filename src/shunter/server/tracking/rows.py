"""A run and its points as rows of MLflow's tables. Pure."""

from __future__ import annotations

import math
from typing import Any

from shunter.model.run import Run, Status
from shunter.node import mlflow_words as words
from shunter.server.services.children import PARAM
from shunter.server.storage.metrics import Metric, Points

LARGEST = 1.7976931348623157e308
MAX_KEY, MAX_VALUE = 250, 8000

_STATUS = {
    Status.NOT_STARTED: "SCHEDULED", Status.QUEUED: "SCHEDULED", Status.PROVISIONING: "SCHEDULED",
    Status.PREPARING: "SCHEDULED", Status.STARTING: "SCHEDULED", Status.COMPLETED: "FINISHED",
    Status.FAILED: "FAILED", Status.CANCELED: "KILLED",
}  # fmt: skip


def status_of(run: Run) -> str:
    return _STATUS.get(run.status, "RUNNING")


def experiment_row(run: Run) -> tuple[Any, ...]:
    number = words.experiment_id(run.workspace, run.experiment)
    at = _ms(run.submitted_at)
    name = words.experiment_name(run.workspace, run.experiment)
    return int(number), name, f"mlflow-artifacts:/{words.ARTIFACTS}/{number}", at, at


def run_row(run: Run) -> tuple[Any, ...]:
    number = int(words.experiment_id(run.workspace, run.experiment))
    user = str(run.tags.get("mlflow.user", ""))[:256]
    return (
        run.id, run.name, run.script[:500], user, status_of(run), _ms(run.started_at or run.submitted_at),
        _ms(run.ended_at) if run.ended_at else None, words.artifact_uri(run.id), number,
    )  # fmt: skip


def tags_of(run: Run) -> dict[str, str]:
    """The run's own tags, and what MLflow's pages and our users look for."""
    found = {key[:MAX_KEY]: str(value)[:MAX_VALUE] for key, value in run.tags.items()}
    found["mlflow.runName"] = run.name
    found.setdefault("mlflow.source.name", run.script[:MAX_VALUE])
    found.setdefault("mlflow.source.type", "PROJECT")
    if run.parent_id:
        found["mlflow.parentRunId"] = run.parent_id
    found["shunter.target"] = run.target
    found["shunter.snapshot_id"] = run.snapshot_id
    found["shunter.status"] = str(run.status)
    return found


def params_of(run: Run) -> dict[str, str]:
    return {
        key[len(PARAM) :][:MAX_KEY]: str(value)[:MAX_VALUE] for key, value in run.properties.items() if key.startswith(PARAM)
    }


def metric_rows(metric: Metric, points: Points, most: int) -> list[tuple[Any, ...]]:
    """(key, value, timestamp, run, step, is_nan): NaN is kept as 0, infinity as the largest number there is."""
    key, run_id = metric.name[:MAX_KEY], metric.run_id
    found = []
    for step, at, value in zip(points.steps[:most], points.times[:most], points.values[:most], strict=True):
        is_nan = math.isnan(value)
        kept = 0.0 if is_nan else value if math.isfinite(value) else math.copysign(LARGEST, value)
        found.append((key, kept, _ms(at), run_id, step, is_nan))
    return found


def latest_of(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The one that MLflow shows as the metric's value: the newest by step, time and value."""
    return max(rows, key=lambda row: (row[4], row[2], row[1]))


def _ms(at: float) -> int:
    return round(at * 1000)
