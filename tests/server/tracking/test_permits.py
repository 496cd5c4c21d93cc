"""What a run's token reaches in MLflow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shunter.errors import AuthError, NotFound
from shunter.node.mlflow_words import run_folder
from shunter.server.tracking.permits import Permits

MINE, CHILD, OTHER = "a" * 32, "c" * 32, "b" * 32


def ask(method: str, path: str, **query: Any) -> dict[str, Any]:
    models = {"m-1": (MINE, []), "m-2": (OTHER, []), "m-3": (OTHER, [{"key": "mlflow.modelVersions", "value": "[]"}])}
    if path.startswith("logged-models/"):
        if path[14:] not in models:
            raise NotFound("no such model")
        source, tags = models[path[14:]]
        return {"model": {"info": {"source_run_id": source, "tags": tags}}}
    return {"model_version": {"run_id": MINE if query["version"] == "1" else OTHER}}


PERMITS = Permits(frozenset({MINE, CHILD}), "77", ask, lambda run_id: [f"/{run_folder(run_id)}/outputs/model"])


def check(method: str, path: str, body: Any = None, **query: str) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return PERMITS.check(method, "api/2.0/mlflow/" + path, {k: [v] for k, v in query.items()}, data)


@pytest.mark.parametrize(
    ("method", "path", "body", "query"),
    [
        ("GET", "runs/get", None, {"run_id": OTHER}),
        ("GET", "runs/get", None, {"run_id": MINE, "run_uuid": OTHER}),
        ("GET", "runs/get", None, {}),
        ("POST", "runs/log-batch", {"run_id": OTHER}, {}),
        ("POST", "runs/delete", {"run_id": MINE}, {}),
        ("POST", "runs/create", {"experiment_id": "77"}, {}),
        ("GET", "metrics/get-history", None, {"run_id": OTHER}),
        ("POST", "experiments/delete", {"experiment_id": "77"}, {}),
        ("DELETE", "registered-models/delete", {"name": "x"}, {}),
        ("POST", "registered-models/alias", {"name": "x", "version": "2", "alias": "best"}, {}),
        ("POST", "logged-models", {"source_run_id": OTHER, "experiment_id": "77"}, {}),
        ("POST", "logged-models", {"source_run_id": MINE, "experiment_id": "0"}, {}),
        ("GET", "logged-models/m-2", None, {}),
        ("PATCH", "logged-models/m-3", {}, {}),
        ("GET", "logged-models/m-9", None, {}),
        ("POST", "logged-models/search", {"experiment_ids": ["0"]}, {}),
        ("POST", "model-versions/create", {"source": f"mlflow-artifacts:/{run_folder(OTHER)}/x", "run_id": MINE}, {}),
        ("POST", "model-versions/create", {"source": "file:///etc/passwd"}, {}),
        ("POST", "model-versions/create", {"source": "models:/m-2", "run_id": MINE}, {}),
        ("POST", "model-versions/create", {"source": f"runs:/{OTHER}/x", "run_id": MINE}, {}),
    ],
)  # fmt: skip
def test_another_runs_things_are_refused(method: str, path: str, body: Any, query: dict[str, str]) -> None:
    with pytest.raises(AuthError):
        check(method, path, body, **query)


def test_its_own_things_and_registered_models_are_reached() -> None:
    check("GET", "runs/get", run_id=CHILD)
    check("POST", "runs/outputs", {"run_id": MINE, "models": []})
    check("GET", "model-versions/get-download-uri", name="x", version="2")
    check("GET", "logged-models/m-3")
    check("PATCH", "logged-models/m-1", {})
    check("POST", "registered-models/alias", {"name": "x", "version": "1", "alias": "best"})
    check("POST", "model-versions/create", {"source": f"mlflow-artifacts:/{run_folder(MINE)}/model", "run_id": MINE})


def test_of_another_runs_files_those_of_registered_models_are_read_and_no_others() -> None:
    base = run_folder(OTHER)
    PERMITS.artifact("GET", f"{base}/outputs/model")
    PERMITS.artifact("GET", f"{base}/outputs/model/deep/a.bin")
    for method, path in [
        ("PUT", "/outputs/model/a.bin"), ("DELETE", "/outputs/model"), ("GET", "/outputs"), ("GET", "/outputs/model2"),
        ("GET", "/outputs/model/../secret"), ("GET", ""),
    ]:  # fmt: skip
        with pytest.raises(AuthError):
            PERMITS.artifact(method, base + path)


def test_a_search_is_narrowed_to_its_own_runs() -> None:
    body = json.loads(check("POST", "runs/search", {"experiment_ids": ["0"], "filter": "metrics.x > 1"}))
    assert body["experiment_ids"] == ["77"]
    assert body["filter"] == f"metrics.x > 1 AND attributes.run_id IN ('{MINE}', '{CHILD}')"


def test_artifacts_of_other_runs_and_places_are_refused() -> None:
    PERMITS.artifact("PUT", run_folder(CHILD) + "/a")
    PERMITS.artifact("GET", "mlflow/artifacts/5/models/m-3/artifacts/MLmodel")
    for method, path in (
        ("GET", run_folder(OTHER) + "/a"), ("PUT", "mlflow/artifacts/5/models/m-3/artifacts/MLmodel"), ("GET", "token"),
        ("GET", "mlflow/artifacts"), ("GET", ""),
    ):  # fmt: skip
        with pytest.raises(AuthError):
            PERMITS.artifact(method, path)
