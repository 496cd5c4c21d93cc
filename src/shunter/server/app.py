"""Puts the parts together: opens the stores, makes dispatch and collect, mounts the routers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from shunter import __version__
from shunter.drivers.base import Home, Scaling
from shunter.errors import NotFound, ServerError, ShunterError, UsageError
from shunter.home import HomeFolder
from shunter.model.run import Launch, Run
from shunter.node import contract
from shunter.server.api import (
    ask,
    compare,
    computes,
    environments,
    inputs,
    metrics,
    mlflow,
    models,
    runs,
    secrets,
    shells,
    sizes,
    snapshots,
    workspaces,
)
from shunter.server.api.context import in_thread, quickly
from shunter.server.api.door import Door
from shunter.server.api.node import Reports
from shunter.server.api.submissions import Submissions
from shunter.server.collect.ingest import Ingest
from shunter.server.collect.streams import Handlers
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.services.clusters import connect as connect_clusters
from shunter.server.services.context import connect
from shunter.server.services.environments import connect as connect_environments
from shunter.server.services.orders import Orders
from shunter.server.services.parts import Parts, Targets
from shunter.server.services.workspaces import add_local_target
from shunter.server.signals import Signals
from shunter.server.storage.blobs.files import FileBlobs
from shunter.server.storage.blobs.index import SqlBlobIndex
from shunter.server.storage.computes import Computes
from shunter.server.storage.database import Database, sqlite_url
from shunter.server.storage.files import RunFiles
from shunter.server.storage.runs import SqlRuns
from shunter.server.storage.snapshots import Snapshots
from shunter.server.storage.workspaces import DEFAULT, Experiments, Workspaces
from shunter.server.tokens import Tokens
from shunter.server.vault import Vault

log = logging.getLogger("shunter.server")


def build(home: HomeFolder, url: str, database_url: str | None = None, clock: Callable[[], float] = time.time) -> Parts:
    """The parts of a server whose things lie in `home` and which is reached at `url`."""
    home.make()
    database = Database.open(database_url or sqlite_url(home.path / "shunter.db"))
    tokens = Tokens(home.read_or_make(home.token_file), home.read_or_make(home.secret_file))
    way_home = Home(url, str(home.endpoint_file))
    computes_store, runs_store = Computes(database), SqlRuns(database)
    snapshots_store = Snapshots(database)
    blobs = FileBlobs(home.path / "blobs", SqlBlobIndex(database))
    files = RunFiles(home.path / "runs")
    vault = Vault(home.path)
    targets = Targets(computes_store, way_home, vault)
    signals = Signals()
    ingest = Ingest(
        files, Handlers(), clock,
        on_stream=lambda run_id: signals.fire(run_id + "/log"),
        node_folder=lambda run, launch: _shared_folder(home.path, targets, run, launch),
    )  # fmt: skip
    orders = Orders(snapshots_store, blobs, tokens, way_home)
    dispatch = Dispatcher(
        runs_store, targets, orders, ingest,
        clock=clock, call=partial(quickly, database), on_change=lambda run: signals.fire(run.id),
    )  # fmt: skip
    ingest.dispatch = dispatch
    workspaces_store = Workspaces(database)
    workspaces_store.add(DEFAULT, clock(), exist_ok=True)
    add_local_target(computes_store, DEFAULT, clock())
    info = {
        "url": url, "version": __version__, "database": database.engine.url.render_as_string(),
        "home": str(home.path), "started_at": clock(),
    }  # fmt: skip
    parts = Parts(
        home=home.path, tokens=tokens, database=database, workspaces=workspaces_store,
        experiments=Experiments(database), computes=computes_store, snapshots=snapshots_store, blobs=blobs,
        runs=runs_store, files=files, signals=signals, ingest=ingest, targets=targets, dispatch=dispatch,
        orders=orders, vault=vault, clock=clock, info=info,
    )  # fmt: skip
    parts.context = connect(parts)
    parts.environments = connect_environments(parts)
    parts.clusters = connect_clusters(parts)
    return parts


def create_app(parts: Parts) -> Door:
    """The ASGI application: routers behind the door."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        parts.signals.attach(loop)
        parts.dispatch.attach(loop)
        parts.targets.attach(loop)
        parts.targets.on_up = parts.dispatch.queue_changed
        parts.targets.keep_all()
        parts.clusters.attach(loop)
        task = asyncio.create_task(parts.dispatch.run_forever())
        yield
        task.cancel()
        if parts.uses_tracking:
            await in_thread(parts.tracking.close)
        await parts.clusters.close()
        await parts.targets.close()
        parts.database.close()

    app = FastAPI(title="Shunter", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.parts = parts
    for module in (
        runs, ask, snapshots, computes, sizes, workspaces, metrics, secrets, inputs, compare, environments, shells,
        models, mlflow,
    ):  # fmt: skip
        app.include_router(module.router)
    app.add_exception_handler(ShunterError, _on_our_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_any_error)
    door = Door(app, parts.tokens, Reports(parts.ingest, parts.database), Submissions(parts))
    door.is_session = lambda session: parts.uses_tracking and parts.tracking.sessions.is_open(session)
    return door


def _shared_folder(home: Path, targets: Targets, run: Run, launch: Launch) -> Path | None:
    """The launch's folder when its node shares our disk, so that files can be moved instead of sent."""
    driver = targets.driver(run.workspace, run.target)
    if not getattr(driver, "shares_disk", False):
        return None
    if isinstance(driver, Scaling):
        return driver.shared_folder(launch.id, launch.node or str(launch.handle.get("node") or ""))
    return home / "node" / contract.LAUNCHES / launch.id


async def _on_our_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ShunterError)
    return runs.answer({"error": error.to_wire()}, error.http_status)


async def _on_bad_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return await _on_our_error(_, UsageError(f"The request is wrong at {where}: {first['msg']}."))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return await _on_our_error(request, NotFound(f"There is nothing at {request.url.path}."))
    wire = {"code": "http", "message": str(error.detail), "hint": ""}
    return runs.answer({"error": wire}, error.status_code)


async def _on_any_error(request: Request, error: Exception) -> Response:
    log.exception("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _on_our_error(request, ServerError(f"The server failed: {type(error).__name__}.", hint="Its log tells more."))
