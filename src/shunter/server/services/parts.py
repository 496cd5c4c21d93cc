"""The parts of one server, put together by `app.py` and handed to every service."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.drivers.base import Driver, Home
from shunter.drivers.registry import driver_class
from shunter.errors import ShunterError
from shunter.model.compute import Compute
from shunter.server.collect.ingest import Ingest
from shunter.server.dispatch.loop import Dispatcher
from shunter.server.services.clusters import Clusters
from shunter.server.services.context import RunContext
from shunter.server.services.environments import EnvironmentService
from shunter.server.services.orders import Orders
from shunter.server.signals import Signals
from shunter.server.storage.blobs.base import BlobStore
from shunter.server.storage.computes import Computes
from shunter.server.storage.database import Database
from shunter.server.storage.files import RunFiles
from shunter.server.storage.runs import SqlRuns
from shunter.server.storage.snapshots import Snapshots
from shunter.server.storage.workspaces import Experiments, Workspaces
from shunter.server.tokens import Tokens
from shunter.server.vault import Vault, marked

if TYPE_CHECKING:
    from shunter.server.tracking.tracking import Tracking

log = logging.getLogger("shunter.targets")


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
    vault: Vault
    clock: Callable[[], float] = time.time
    info: dict[str, object] = field(default_factory=dict)
    stop: Callable[[], None] = lambda: None
    #: What scripts are given and say; made last, by `services.context.connect`.
    context: RunContext = field(init=False)
    #: Made after it, by `services.environments.connect`.
    environments: EnvironmentService = field(init=False)
    #: Targets whose nodes come and go.
    clusters: Clusters = field(init=False)
    _tracking: Tracking | None = field(init=False, default=None)
    _making: threading.Lock = field(init=False, default_factory=threading.Lock)

    @property
    def tracking(self) -> Tracking:
        """MLflow, made when first used: until then it costs nothing."""
        with self._making:
            if self._tracking is None:
                from shunter.server.tracking.tracking import connect

                self._tracking = connect(self)
            return self._tracking

    @property
    def uses_tracking(self) -> bool:
        return self._tracking is not None


class Targets:
    """The drivers of the compute targets in use: one for each target, kept while its configuration stays the same."""

    def __init__(self, computes: Computes, home: Home, vault: Vault) -> None:
        self.computes = computes
        self.home = home
        self.vault = vault
        self.on_up: Callable[[str, str], None] = lambda workspace, name: None
        self._drivers: dict[tuple[str, str], tuple[Compute, Driver]] = {}
        self._configs: dict[tuple[str, str], Compute] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop that drivers live in."""
        self._loop = loop

    def keep_all(self) -> None:
        """Stay connected to every target that keeps connections, so that its state is known. Called in the loop."""
        for compute in self.computes.list():
            try:
                self._keep(compute.workspace, compute.name, self.driver(compute.workspace, compute.name))
            except ShunterError as error:
                log.warning("%s cannot be used: %s", compute.name, error.message)

    def driver(self, workspace: str, name: str) -> Driver:
        key = (workspace, name)
        compute = self._configs.get(key)
        if compute is None:
            compute = self._configs[key] = self.computes.get(workspace, name)
        found = self._drivers.get(key)
        if found is None or (found[0] is not compute and not _is_same(found[0], compute)):
            with self._lock:
                old, found = found, self._drivers.get(key)
                if found is old:
                    found = self._drivers[key] = (compute, driver_class(compute.kind)(self.opened(compute), self.home))
                    if old is not None:
                        self._retire(old[1])
        assert found is not None
        return found[1]

    def opened(self, compute: Compute) -> Compute:
        """A target as its driver needs it: secrets in clear, and the options of other targets that it names."""
        config = self.vault.unseal(compute.config)
        options = marked(driver_class(compute.kind).Config, "targets")
        names = {name for option in options for name in config.get(option) or ()}
        if names:
            others = [c for c in self.computes.list(compute.workspace) if c.name in names]
            config["targets"] = {c.name: {"kind": c.kind, "config": self.vault.unseal(c.config)} for c in others}
        return compute.evolve(config=config)

    def take(self, compute: Compute, driver: Driver) -> None:
        """A driver that was made to attach this target stays in use."""
        with self._lock:
            self._drivers[(compute.workspace, compute.name)] = (compute, driver)

    def changed(self, workspace: str, name: str) -> None:
        """The target was created, changed or deleted: look it up again."""
        self._configs.pop((workspace, name), None)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._keep_again, workspace, name)

    def removed(self, workspace: str, name: str) -> None:
        """The target is gone: let go of it."""
        self._configs.pop((workspace, name), None)
        found = self._drivers.pop((workspace, name), None)
        if found is not None:
            self._retire(found[1])

    def _keep_again(self, workspace: str, name: str) -> None:
        try:
            self._keep(workspace, name, self.driver(workspace, name))
        except ShunterError:
            pass  # deleted, or a kind whose library is missing: whoever uses it is told

    def _keep(self, workspace: str, name: str, driver: Driver) -> None:
        if hasattr(driver, "keep"):
            driver.keep(lambda: self.on_up(workspace, name))

    def _retire(self, driver: Driver) -> None:
        """Close a driver in the loop it lives in."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._close, driver)

    def _close(self, driver: Driver) -> None:
        task = asyncio.ensure_future(driver.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for _, driver in self._drivers.values():
            await driver.close()


def _is_same(one: Compute, other: Compute) -> bool:
    return one.kind == other.kind and one.config == other.config and one.created_at == other.created_at
