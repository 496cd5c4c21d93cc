"""The parts of one server, put together by `app.py` and handed to every service."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from shunter.drivers.base import Driver, Home
from shunter.drivers.registry import driver_class
from shunter.model.compute import Compute
from shunter.server.collect.ingest import Ingest
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.services.orders import Orders
from shunter.server.services.context import RunContext
from shunter.server.services.environments import EnvironmentService
from shunter.server.signals import Signals
from shunter.server.storage.blobs.base import BlobStore
from shunter.server.storage.computes import Computes
from shunter.server.storage.database import Database
from shunter.server.storage.files import RunFiles
from shunter.server.storage.runs import SqlRuns
from shunter.server.storage.snapshots import Snapshots
from shunter.server.storage.workspaces import Experiments, Workspaces
from shunter.server.tokens import Tokens


@dataclass
class Parts:
    home: Path
    tokens: Tokens
    database: Database
    workspaces: Workspaces
    experiments: Experiments
    computes: Computes
    snapshots: Snapshots
    blobs: BlobStore
    runs: SqlRuns
    files: RunFiles
    signals: Signals
    ingest: Ingest
    targets: Targets
    dispatch: Dispatcher
    orders: Orders
    clock: Callable[[], float] = time.time
    info: dict[str, object] = field(default_factory=dict)
    stop: Callable[[], None] = lambda: None
    #: What scripts are given and say; made last, by `services.context.connect`.
    context: RunContext = field(init=False)
    #: Made after it, by `services.environments.connect`.
    environments: EnvironmentService = field(init=False)


class Targets:
    """The drivers of the compute targets in use: one for each target, kept while its configuration stays the same."""

    def __init__(self, computes: Computes, home: Home) -> None:
        self.computes = computes
        self.home = home
        self._drivers: dict[tuple[str, str], tuple[int, Driver]] = {}
        self._configs: dict[tuple[str, str], Compute] = {}

    def driver(self, workspace: str, name: str) -> Driver:
        key = (workspace, name)
        compute = self._configs.get(key)
        if compute is None:
            compute = self._configs[key] = self.computes.get(workspace, name)
        found = self._drivers.get(key)
        if found is None or found[0] != compute.version:
            found = self._drivers[key] = (compute.version, driver_class(compute.kind)(compute, self.home))
        return found[1]

    def changed(self, workspace: str, name: str) -> None:
        """The target was created, changed or deleted: look it up again."""
        self._configs.pop((workspace, name), None)

    async def close(self) -> None:
        for _, driver in self._drivers.values():
            await driver.close()
