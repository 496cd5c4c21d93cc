"""MLflow through our address: for its clients and browsers below /mlflow, for runs below their own launch."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse

from shunter.errors import AuthError, NotFound, ShunterError, UsageError
from shunter.model.run import parse_launch_id
from shunter.node.mlflow_words import refusal
from shunter.server.api.context import Server, in_mlflow_thread, in_thread
from shunter.server.api.door import SESSION
from shunter.server.services.parts import Parts
from shunter.server.tracking import outside
from shunter.server.tracking.permits import Permits

router = APIRouter()

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
MOST_BODY_BYTES = 64 << 20
_FILES = ("api/2.0/mlflow-artifacts/artifacts", "ajax-api/2.0/mlflow-artifacts/artifacts")
_CREATES_EXPERIMENT = ("api/2.0/mlflow/experiments/create", "ajax-api/2.0/mlflow/experiments/create")
_CODES = {404: "RESOURCE_DOES_NOT_EXIST", 401: "PERMISSION_DENIED", 503: "TEMPORARILY_UNAVAILABLE"}


@router.post("/api/v1/mlflow/link")
async def link(server: Server) -> dict[str, Any]:
    """A link that opens MLflow's pages in a browser. It works once, and soon."""
    return {"path": "/mlflow/login?code=" + server.tracking.sessions.code()}


@router.get("/mlflow/login")
async def login(server: Server, code: str = "") -> Response:
    session = server.tracking.sessions.redeem(code)
    if session is None:
        raise AuthError("This link was used already, or is too old.", hint="`shunter model ui` makes a new one.")
    answer = RedirectResponse("/mlflow/", 303)
    answer.set_cookie(SESSION, session, httponly=True, samesite="strict", path="/mlflow")
    return answer


@router.api_route("/mlflow/{path:path}", methods=METHODS, include_in_schema=False)
async def for_owner(path: str, request: Request, server: Server) -> Response:
    return await _answer(server, request, path, "/mlflow/", None)


@router.api_route("/api/v1/node/{launch_id}/mlflow/{path:path}", methods=METHODS, include_in_schema=False)
async def for_run(launch_id: str, path: str, request: Request, server: Server) -> Response:
    """The door has seen to it that the token is the one of this very run."""
    run_id, _, _ = parse_launch_id(launch_id)
    try:
        run = await in_thread(server.runs.get, run_id)
        permits = await in_thread(server.tracking.permits, run)
        return await _answer(server, request, path, f"/api/v1/node/{launch_id}/mlflow/", permits)
    except ShunterError as error:
        return _refused(error)


async def _answer(server: Parts, request: Request, path: str, prefix: str, permits: Permits | None) -> Response:
    try:
        files = next((f for f in _FILES if path == f or path.startswith(f + "/")), None)
        if files is not None:
            return await _artifact(server, request, path[len(files) :].strip("/"), permits)
        body = await _body(request)
        if permits is not None:
            query = parse_qs(request.url.query)
            body = await in_mlflow_thread(permits.check, request.method, path, query, body)
        elif path in _CREATES_EXPERIMENT:
            body = _without_place(body)
        raw = request.scope.get("raw_path") or request.url.path.encode()
        target = "/" + raw.decode("latin-1")[len(prefix) :] + ("?" + request.url.query if request.url.query else "")
        return await _pass_on(server, request, path, target, body, by_owner=permits is None)
    except ShunterError as error:
        return _refused(error)


async def _pass_on(server: Parts, request: Request, path: str, target: str, body: bytes, by_owner: bool) -> Response:
    headers = dict(request.headers)
    reply = await in_mlflow_thread(server.tracking.call, request.method, target, headers, body)
    kind = next((v for k, v in reply.headers if k.lower() == "content-type"), "")
    if "json" not in kind:
        return StreamingResponse(reply.pieces, reply.status, dict(reply.headers))
    data = await in_mlflow_thread(reply.body)
    if reply.status == 200 and path.endswith("mlflow/model-versions/create"):
        await in_mlflow_thread(_hold_files, server, data)
    call = path.rpartition("mlflow/runs/")[2]
    if reply.status == 200 and call in outside.CALLS:
        await in_mlflow_thread(outside.take, server, call, body, by_owner)
    return Response(data, reply.status, dict(reply.headers))


async def _artifact(server: Parts, request: Request, path: str, permits: Permits | None) -> Response:
    artifacts = server.tracking.artifacts
    if not path and request.method == "GET":
        path = request.query_params.get("path", "")
        if permits is not None:
            await in_mlflow_thread(permits.artifact, "GET", path)
        return Response(json.dumps(await in_thread(artifacts.list, path)), media_type="application/json")
    if permits is not None:
        await in_mlflow_thread(permits.artifact, request.method, path)
    if request.method in ("GET", "HEAD"):
        return FileResponse(await in_thread(artifacts.file, path), media_type="application/octet-stream")
    if request.method == "PUT":
        await artifacts.put(path, request.stream())
    elif request.method == "DELETE":
        await in_thread(artifacts.delete, path)
    else:
        raise NotFound(f"{request.method} is not for artifacts.")
    return Response(b"{}", media_type="application/json")


async def _body(request: Request) -> bytes:
    if int(request.headers.get("content-length") or 0) > MOST_BODY_BYTES:
        raise UsageError(f"A call may have at most {MOST_BODY_BYTES} bytes.")
    return await request.body()


def _without_place(body: bytes) -> bytes:
    """Experiments keep their files where we say: a place of the caller's choice could be any folder of ours."""
    try:
        found = json.loads(body)
        found.pop("artifact_location", None)
    except (ValueError, AttributeError):
        return body
    return json.dumps(found).encode()


def _hold_files(server: Parts, data: bytes) -> None:
    from shunter.server.services.models import hold

    hold(server, json.loads(data)["model_version"])


def _refused(error: ShunterError) -> Response:
    """As MLflow's own clients understand it."""
    words = error.message + (" " + error.hint if error.hint else "")
    status = 403 if isinstance(error, AuthError) else error.http_status
    code = _CODES.get(error.http_status, "INVALID_PARAMETER_VALUE" if status < 500 else "INTERNAL_ERROR")
    return Response(refusal(words, code), status, media_type="application/json")
