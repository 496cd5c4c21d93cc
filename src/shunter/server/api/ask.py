"""What a run's script asks through its launcher. The door has seen to it that the token is the one of this very run."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from shunter.errors import AuthError, NotFound
from shunter.model.run import Run, parse_launch_id
from shunter.server.api.context import Server, in_mlflow_thread, in_thread
from shunter.server.api.runs import answer
from shunter.server.services import metrics, models, secrets
from shunter.server.services.parts import Parts

router = APIRouter(prefix="/api/v1/node/{launch_id}")

MOST_CHECKPOINT_BYTES = 32 << 20
MODEL_PIECE_BYTES = 6 << 20


@router.post("/ask/{name}")
async def ask(launch_id: str, name: str, request: Request, server: Server) -> Response:
    found = _ANSWERS.get(name)
    if found is None:
        raise NotFound(f"A script cannot ask for {name!r}.")
    body = await request.json()
    run_id, _, _ = parse_launch_id(launch_id)

    def work() -> Response:
        return answer(found(server, server.runs.get(run_id), body if isinstance(body, dict) else {}))

    return await (in_mlflow_thread(work) if name in _OF_MODELS else in_thread(work))


@router.get("/checkpoint/{sha256}")
async def checkpoint(
    launch_id: str, sha256: str, server: Server, run: str, offset: int = 0, size: int = 1 << 20
) -> Response:
    """A piece of a checkpoint, of the run's own or of the run it was told to go on from."""
    run_id, _, _ = parse_launch_id(launch_id)
    own = await in_thread(server.runs.get, run_id)
    if run not in (run_id, own.config.get("from_checkpoint")):
        raise AuthError("A run reads its own checkpoints, and those of the run it goes on from.")
    data = await in_thread(
        server.context.checkpoints.read, run, sha256, offset, max(1, min(size, MOST_CHECKPOINT_BYTES))
    )
    return Response(data, media_type="application/octet-stream")


def _metrics(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    of = _member(server, run, body)
    name = body.get("name")
    found: Any = (
        metrics.family_metrics(server, of, name) if body.get("recursive") else metrics.metrics_of(server, of, name)
    )
    return {"metrics": metrics.to_wire(found)}


def _files(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    return {"files": [path for path, _, _ in server.files.list(_member(server, run, body))]}


def _secret(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    return {"value": secrets.secret_for_run(server, run.id, str(body.get("name")))}


def _secrets(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    return secrets.environment_for_run(server, run.id)


def _models(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    """Versions of a model, or the newest of each: every run may read what is registered."""
    name, version = body.get("name"), body.get("version")
    if not name:
        return {"models": models.list_models(server, run.workspace)}
    if body.get("all"):
        return {"models": models.versions_of(server, run.workspace, str(name))}
    return {"models": [models.get_model(server, run.workspace, str(name), version)]}


def _model_files(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    name, version = str(body.get("name")), str(body.get("version"))
    found = models.files_of(server, run.workspace, name, version)
    folder = models.get_model(server, run.workspace, name, version)["folder"]
    return {"files": [[path, place.stat().st_size] for path, place in found], "folder": folder}


def _model_file(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    """A piece of a model's file, as text."""
    import base64

    for path, place in models.files_of(server, run.workspace, str(body.get("name")), str(body.get("version"))):
        if path == body.get("path"):
            with place.open("rb") as file:
                file.seek(int(body.get("offset") or 0))
                return {"data": base64.b64encode(file.read(MODEL_PIECE_BYTES)).decode()}
    raise NotFound(f"Model {body.get('name')!r} has no file {body.get('path')!r}.")


def _register_model(server: Parts, run: Run, body: dict[str, Any]) -> Any:
    """Of the files of the run itself, or of one that its script made."""
    of, path, name = _member(server, run, body), str(body.get("path")), str(body.get("name"))
    tags = {str(k): str(v) for k, v in dict(body.get("tags") or {}).items()}
    return {"model": models.register_model(server, run.workspace, of, path, name, tags, str(body.get("description") or ""))}


def _member(server: Parts, run: Run, body: dict[str, Any]) -> str:
    """The run itself, or one that its script made."""
    of = str(body.get("run") or run.id)
    if of != run.id and of not in server.context.says.family(run):
        raise AuthError("A run's script can ask about its own run and its children.")
    return of


#: Those that MLflow answers, which may take seconds.
_OF_MODELS = {
    "models": _models, "model_files": _model_files, "model_file": _model_file, "register_model": _register_model,
}  # fmt: skip
_ANSWERS = {"metrics": _metrics, "files": _files, "secret": _secret, "secrets": _secrets, **_OF_MODELS}
