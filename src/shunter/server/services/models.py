"""Registered models: what became of a run's files. MLflow's registry keeps them; here they get their run's story."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shunter.errors import Conflict, NotFound, UsageError, nearest
from shunter.model.run import Run
from shunter.node.mlflow_words import ARTIFACTS, artifact_uri
from shunter.server.services.parts import Parts

#: A run's property that says that a version is made of its files: such a run is not deleted.
HELD = "model."
_OURS = "shunter."


def register_model(
    parts: Parts, workspace: str, run_id: str | None, path: str, name: str, tags: Mapping[str, str], description: str = "",
    aliases: tuple[str, ...] = (), upload: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A new version of the model `name`, made of the files of a run at `path` (a folder or a file), or of the model
    that the script logged under that name; or of files that were uploaded for it."""
    full = global_name(workspace, name)
    if (run_id is None) == (upload is None):
        raise UsageError("A model is made of the files of a run, or of an upload: say one of them.")
    run = parts.runs.get(run_id) if run_id is not None else None
    source, model_id = _source(parts, run, path) if run is not None else _uploaded(parts, name, str(upload), path)
    try:
        parts.tracking.ask("GET", "registered-models/get", name=full)
    except NotFound:
        about = {"name": full, "tags": [{"key": _OURS + "workspace", "value": workspace}]}
        parts.tracking.ask("POST", "registered-models/create", about)
    told = story(parts, run) if run is not None else {_OURS + "upload": model_id}
    given = {**told, **{str(k): str(v) for k, v in tags.items()}}
    body: dict[str, Any] = {
        "name": full, "source": source, "description": description,
        "tags": [{"key": k, "value": v} for k, v in given.items()],
    }  # fmt: skip
    if run is not None:
        body["run_id"] = run.id
    if model_id:
        body["model_id"] = model_id
    version = parts.tracking.ask("POST", "model-versions/create", body)["model_version"]
    hold(parts, version)
    for alias in aliases:
        wanted = {"name": full, "alias": alias, "version": version["version"]}
        parts.tracking.ask("POST", "registered-models/alias", wanted)
    return get_model(parts, workspace, name, version["version"])


def upload_place(upload: str, path: str = "") -> str:
    """Where the files of a model lie that no run made."""
    if not re.fullmatch("[0-9a-f]{32}", upload):
        raise UsageError(f"{upload!r} cannot be the id of an upload: 32 hex digits.")
    return f"{ARTIFACTS}/uploads/{upload}/{path}".rstrip("/")


def list_models(parts: Parts, workspace: str) -> list[dict[str, Any]]:
    """The newest version of each model."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = parts.tracking.ask("GET", "registered-models/search", max_results=200, page_token=token)
        for model in page.get("registered_models") or ():
            if workspace_of(model) == workspace:
                latest = _newest(parts, model["name"])
                found.append(_wire(parts, workspace, model, latest[0]) if latest else _empty(workspace, model))
        token = page.get("next_page_token") or ""
        if not token:
            return found


def versions_of(parts: Parts, workspace: str, name: str) -> list[dict[str, Any]]:
    """All versions, the newest first."""
    model = _model(parts, workspace, name)
    return [_wire(parts, workspace, model, version) for version in _newest(parts, model["name"])]


def get_model(parts: Parts, workspace: str, name: str, version: str | None = None) -> dict[str, Any]:
    """A version by its number or alias; the newest when neither is given."""
    model = _model(parts, workspace, name)
    found = _newest(parts, model["name"])
    if version is not None:
        alias = {a["alias"]: str(a["version"]) for a in model.get("aliases") or ()}
        wanted = alias.get(version, version)
        found = [v for v in found if str(v["version"]) == wanted]
    if not found:
        what = f"version {version!r}" if version is not None else "version"
        raise NotFound(f"Model {name!r} has no {what}.", hint=f"`shunter model show {name}` lists what there is.")
    return _wire(parts, workspace, model, found[0])


def files_of(parts: Parts, workspace: str, name: str, version: str | None) -> list[tuple[str, Path]]:
    """The files of a version: relative path, and where each lies."""
    found = get_model(parts, workspace, name, version)
    root = parts.tracking.artifacts.place(_place(parts, found))
    if root.is_file():
        return [(root.name, root)]
    return [(p.relative_to(root).as_posix(), p) for p in sorted(root.rglob("*")) if p.is_file() and not p.is_symlink()]


def delete_model(parts: Parts, workspace: str, name: str, version: str | None = None) -> None:
    """Delete a version, or the model with all of them. The runs they were made of stay, and may then be deleted."""
    found = versions_of(parts, workspace, name)
    full = global_name(workspace, name)
    if version is not None:
        one = get_model(parts, workspace, name, version)
        parts.tracking.ask("DELETE", "model-versions/delete", {"name": full, "version": one["version"]})
        found = [one]
    else:
        parts.tracking.ask("DELETE", "registered-models/delete", {"name": full})
    for one in found:
        _let_go(parts, one["run_id"], full, one["version"])
        if one["upload"]:
            place = _place(parts, {"source": "models:/" + one["upload"]})
            parts.tracking.ask("DELETE", "logged-models/" + one["upload"])
            parts.tracking.artifacts.delete(place)


def hold(parts: Parts, version: Mapping[str, Any]) -> None:
    """A version was made (by us or by an MLflow client): its run keeps its files as long as it is there."""
    run_id = str(version.get("run_id") or "")
    if run_id and parts.tracking.projection.is_known(run_id):
        properties = dict(parts.runs.get(run_id).properties)
        key = f"{HELD}{version['name']}:{version['version']}"
        parts.runs.change(run_id, properties={**properties, key: str(version.get("source", ""))})


def places_of(parts: Parts, run_id: str) -> list[str]:
    """Where the versions lie that are made of a run's files: these can be read by all."""
    if not parts.tracking.projection.is_known(run_id):
        return []
    held = (str(v) for k, v in parts.runs.get(run_id).properties.items() if k.startswith(HELD))
    return ["/" + _place(parts, {"source": v}) for v in held if v.startswith(("mlflow-artifacts:/", "runs:/"))]


def check_not_held(parts: Parts, run: Run) -> None:
    """Raises Conflict for a run that a registered model is made of, itself or through a child that goes with it."""
    for child in parts.runs.list(run.workspace, parent_id=run.id, limit=10_000):
        if child.config.get("made_by_script"):
            check_not_held(parts, child)
    for key in run.properties:
        if not key.startswith(HELD):
            continue
        name, _, version = key[len(HELD) :].rpartition(":")
        try:
            parts.tracking.ask("GET", "model-versions/get", name=name, version=version)
        except NotFound:
            continue  # deleted by a client of MLflow
        raise Conflict(
            f"Model {name}:{version} is made of run {run.id[:8]}.",
            hint=f"Delete the model first: `shunter model delete {name} --version {version}`.",
        )


def story(parts: Parts, run: Run) -> dict[str, str]:
    """What a version says of its run, also when somebody reads it elsewhere."""
    environment = run.properties.get("environment") or {}
    found = {
        _OURS + "experiment": run.experiment, _OURS + "snapshot_id": run.snapshot_id,
        _OURS + "environment_lock": str(environment.get("lock") or "") if isinstance(environment, dict) else "",
        _OURS + "metrics": json.dumps(parts.context.metrics.latest([run.id])[run.id])[:5000],
    }  # fmt: skip
    return {k: v for k, v in found.items() if v}


def global_name(workspace: str, name: str) -> str:
    """MLflow's registry knows no workspaces: names of all but the default one carry theirs."""
    if not name or any(c in name for c in "/:\0") or len(name) > 200:
        raise UsageError(f"{name!r} cannot be the name of a model.", hint="Use letters, digits, '-', '_' and blanks.")
    return name if workspace == "default" else f"{workspace}.{name}"


def workspace_of(model: Mapping[str, Any]) -> str:
    return next((t["value"] for t in model.get("tags") or () if t["key"] == _OURS + "workspace"), "default")


def _source(parts: Parts, run: Run, path: str) -> tuple[str, str]:
    clean = posixpath.normpath(path.strip("/"))
    place = parts.files.of(run.id) / "files" / clean
    if clean not in (".", "..") and not clean.startswith("../") and place.exists():
        return artifact_uri(run.id) + "/" + clean, ""
    for model in parts.tracking.ask("GET", "runs/get", run_id=run.id)["run"].get("outputs", {}).get("model_outputs", ()):
        info = parts.tracking.ask("GET", f"logged-models/{model['model_id']}")["model"]["info"]
        if path in (info["name"], info["model_id"]):
            return str(info["artifact_uri"]), str(info["model_id"])
    known = sorted({p.split("/")[0] for p, _, _ in parts.files.list(run.id)} | {p for p, _, _ in parts.files.list(run.id)})
    raise NotFound(f"Run {run.id[:8]} has no file, folder or logged model {path!r}.", hint=nearest(path, known))


def _uploaded(parts: Parts, name: str, upload: str, path: str) -> tuple[str, str]:
    """MLflow makes versions of what a run or a logged model holds: these files become a logged model."""
    aside = parts.tracking.artifacts.place(upload_place(upload))
    inner = posixpath.normpath(path.strip("/"))
    if not parts.tracking.artifacts.place(upload_place(upload, inner)).exists():
        raise NotFound(f"Nothing was uploaded at {path!r}.")
    made = parts.tracking.ask("POST", "logged-models", {"experiment_id": "0", "name": re.sub(r"[/:.%\"']", "-", name)})
    info = made["model"]["info"]
    place = parts.tracking.artifacts.place(_place(parts, {"source": info["artifact_uri"]}))
    place.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(place)
    ready = {"model_id": info["model_id"], "status": "LOGGED_MODEL_READY"}
    parts.tracking.ask("PATCH", "logged-models/" + info["model_id"], ready)
    return f"{info['artifact_uri']}/{inner}", str(info["model_id"])


def _model(parts: Parts, workspace: str, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parts.tracking.ask("GET", "registered-models/get", name=global_name(workspace, name))
    except NotFound:
        names = [m["name"] for m in list_models(parts, workspace)]
        raise NotFound(f"There is no model {name!r}.", hint=nearest(name, names)) from None
    model: dict[str, Any] = found["registered_model"]
    return model


def _newest(parts: Parts, full: str) -> list[dict[str, Any]]:
    quoted = "name='" + full.replace("'", "''") + "'"
    found = parts.tracking.ask("GET", "model-versions/search", filter=quoted, max_results=1000).get("model_versions") or []
    return sorted(found, key=lambda v: -int(v["version"]))


def _wire(parts: Parts, workspace: str, model: Mapping[str, Any], version: Mapping[str, Any]) -> dict[str, Any]:
    tags = {t["key"]: t.get("value", "") for t in version.get("tags") or ()}
    number = str(version["version"])
    story_ = {k[len(_OURS) :]: v for k, v in tags.items() if k.startswith(_OURS)}
    return {
        "name": _local_name(workspace, model), "version": number, "run_id": version.get("run_id") or None,
        "description": version.get("description", ""), "source": version.get("source", ""),
        "created_at": int(version["creation_timestamp"]) / 1000.0,
        "aliases": [a["alias"] for a in model.get("aliases") or () if str(a["version"]) == number],
        "tags": {k: v for k, v in tags.items() if not k.startswith(_OURS)},
        "snapshot_id": story_.get("snapshot_id"), "environment_lock": story_.get("environment_lock"),
        "experiment": story_.get("experiment"), "metrics": json.loads(story_.get("metrics") or "{}"),
        "uri": f"models:/{model['name']}/{number}", "upload": story_.get("upload"),
        "folder": _folder(parts, version),
    }  # fmt: skip


def _folder(parts: Parts, version: Mapping[str, Any]) -> str:
    """The name of the folder that a version was made of; "" for a file, and for a model that MLflow logged."""
    source = str(version.get("source") or "").rstrip("/")
    if source.startswith("models:/") or re.search("/models/m-[0-9a-f]+/artifacts$", source):
        return ""
    try:
        place = parts.tracking.artifacts.place(_place(parts, {"source": source}))
    except NotFound:
        return ""
    return place.name if place.is_dir() else ""


def _empty(workspace: str, model: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": _local_name(workspace, model), "version": None, "run_id": None, "aliases": [], "tags": {}, "metrics": {},
            "created_at": int(model["creation_timestamp"]) / 1000.0, "uri": None}  # fmt: skip


def _local_name(workspace: str, model: Mapping[str, Any]) -> str:
    return str(model["name"]) if workspace == "default" else str(model["name"]).removeprefix(workspace + ".")


def _place(parts: Parts, found: Mapping[str, Any]) -> str:
    source = str(found["source"])
    if source.startswith("models:/"):
        info = parts.tracking.ask("GET", "logged-models/" + source.removeprefix("models:/").split("/")[0])["model"]["info"]
        source = str(info["artifact_uri"])
    if source.startswith("runs:/"):
        run_id, _, path = source.removeprefix("runs:/").partition("/")
        source = artifact_uri(run_id) + "/" + path
    return source.removeprefix("mlflow-artifacts:").lstrip("/")


def _let_go(parts: Parts, run_id: str | None, full: str, version: str) -> None:
    if run_id and parts.tracking.projection.is_known(run_id):
        key = f"{HELD}{full}:{version}"
        properties = {k: v for k, v in parts.runs.get(run_id).properties.items() if k != key}
        parts.runs.change(run_id, properties=properties)
