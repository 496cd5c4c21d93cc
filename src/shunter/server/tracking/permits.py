"""What a run's token reaches in MLflow: its own run and what it creates. Registered models can be read by all runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shunter.errors import AuthError, NotFound
from shunter.node import mlflow_words as words
from shunter.server.tracking.artifacts import model_of, run_of

#: Asks MLflow: (method, path below api/2.0/mlflow, query) → answer.
Ask = Callable[..., dict[str, Any]]

_OPEN = {
    ("GET", "api/3.0/mlflow/server-info"), ("GET", "version"), ("GET", "health"),
    ("GET", "registered-models/get"), ("GET", "registered-models/search"), ("GET", "registered-models/alias"),
    ("POST", "registered-models/get-latest-versions"), ("GET", "registered-models/get-latest-versions"),
    ("GET", "model-versions/get"), ("GET", "model-versions/search"), ("GET", "model-versions/get-download-uri"),
    ("POST", "registered-models/create"),
}  # fmt: skip
#: Of a run: refused unless the run is one of the caller's.
_OF_RUN = {
    ("GET", "runs/get"), ("POST", "runs/update"), ("POST", "runs/log-metric"), ("POST", "runs/log-parameter"),
    ("POST", "runs/set-tag"), ("POST", "runs/delete-tag"), ("POST", "runs/log-batch"), ("POST", "runs/log-model"),
    ("POST", "runs/log-inputs"), ("POST", "runs/outputs"), ("GET", "metrics/get-history"), ("GET", "artifacts/list"),
    ("GET", "metrics/get-history-bulk-interval"),
}  # fmt: skip
#: Of a version: refused unless it was made of one of the caller's runs.
_OF_VERSION = {
    ("POST", "registered-models/alias"), ("POST", "model-versions/set-tag"), ("PATCH", "model-versions/update"),
    ("POST", "model-versions/transition-stage"), ("DELETE", "model-versions/delete-tag"),
}  # fmt: skip


@dataclass(frozen=True)
class Permits:
    """The permits of one run: `family` are the run and those its script made."""

    family: frozenset[str]
    experiment_id: str
    ask: Ask
    #: Where the registered models lie that were made of a run's files.
    registered: Callable[[str], list[str]] = lambda run_id: []

    def check(self, method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> bytes:
        """The body to pass on, narrowed where a search would reach further. Raises AuthError."""
        name = path.removeprefix("api/2.0/mlflow/")
        key = (method, name)
        if key in _OPEN:
            return body
        about: dict[str, Any] = {k: v[0] for k, v in query.items()}
        about.update(_object(body))
        if key in _OF_RUN:
            ids = {str(about[k]) for k in ("run_id", "run_uuid") if about.get(k)} | set(query.get("run_ids", ()))
            self._own(ids)
            return body
        if key == ("POST", "runs/search"):
            return json.dumps(narrowed(about, self.family, self.experiment_id)).encode()
        if key == ("POST", "model-versions/create"):
            self._source(about)
            return body
        if key in _OF_VERSION:
            found = self.ask("GET", "model-versions/get", name=about.get("name"), version=about.get("version"))
            self._own({str(found["model_version"].get("run_id"))})
            return body
        if name == "logged-models" and method == "POST":
            self._own({str(about.get("source_run_id") or "")})
            if str(about.get("experiment_id")) != self.experiment_id:
                raise AuthError("A run reaches only its own experiment.")
            return body
        if name.startswith("logged-models/") and name != "logged-models/search":
            self.model(name.split("/")[1], reading=method == "GET")
            return body
        raise AuthError(f"A run's token does not reach {method} {path}.", hint="Use your own token for this.")

    def artifact(self, method: str, path: str) -> None:
        """Whether an artifact may be read (GET) or written. Raises AuthError."""
        run_id, model_id = run_of(path), model_of(path)
        if run_id is not None:
            if not (method in ("GET", "HEAD") and run_id not in self.family and self._is_registered(run_id, path)):
                self._own({run_id})
        elif model_id is not None:
            self.model(model_id, reading=method == "GET")
        else:
            raise AuthError("A run reaches the artifacts of its own run, and of models.")

    def model(self, model_id: str, *, reading: bool) -> None:
        try:
            info = self.ask("GET", f"logged-models/{model_id}")["model"]["info"]
        except NotFound:
            raise AuthError(f"There is no model {model_id} that this run may use.") from None
        if str(info.get("source_run_id")) in self.family:
            return
        registered = any(tag.get("key") == "mlflow.modelVersions" for tag in info.get("tags") or ())
        if not (reading and registered):
            raise AuthError(f"Model {model_id} belongs to another run.")

    def _is_registered(self, run_id: str, path: str) -> bool:
        path = "/" + path.strip("/")
        if ".." in path.split("/"):
            return False
        return any((path + "/").startswith(place.rstrip("/") + "/") for place in self.registered(run_id))

    def _own(self, ids: set[str]) -> None:
        for run_id in ids or {"(none)"}:
            if run_id not in self.family:
                raise AuthError(f"Run {run_id} is not this run, and not one that it made.", hint="Use your own token for this.")

    def _source(self, about: Mapping[str, Any]) -> None:
        """A version is made of the caller's own files: else another run's could be read through it."""
        source = str(about.get("source") or "")
        if about.get("run_id"):
            self._own({str(about["run_id"])})
        if about.get("model_id"):
            self.model(str(about["model_id"]), reading=False)
        if source.startswith("mlflow-artifacts:/"):
            self.artifact("PUT", source.removeprefix("mlflow-artifacts:").lstrip("/"))
        elif source.startswith("models:/m-"):
            self.model(source.removeprefix("models:/").split("/")[0], reading=False)
        elif source.startswith("runs:/"):
            self._own({source.removeprefix("runs:/").split("/")[0]})
        else:
            raise AuthError(f"A version cannot be made of {source!r} by a run.")


def narrowed(search: Mapping[str, Any], family: frozenset[str], experiment_id: str) -> dict[str, Any]:
    """The same search, among the caller's own runs only. Pure."""
    mine = "attributes.run_id IN (" + ", ".join(f"'{run_id}'" for run_id in sorted(family)) + ")"
    given = str(search.get("filter") or "").strip()
    return {**search, "experiment_ids": [experiment_id], "filter": f"{given} AND {mine}" if given else mine}


def permits_of(run: Any, family: frozenset[str], ask: Ask, registered: Callable[[str], list[str]]) -> Permits:
    return Permits(family | {run.id}, words.experiment_id(run.workspace, run.experiment), ask, registered)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body) if body else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
