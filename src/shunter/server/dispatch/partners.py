"""Whom dispatch works with, and all that it wants of them."""

from __future__ import annotations

from typing import Protocol

from shunter.drivers.base import Driver
from shunter.drivers.base import Launch as LaunchOrder
from shunter.model.run import Launch, Run


class Targets(Protocol):
    """Where dispatch finds the drivers of compute targets."""

    def driver(self, workspace: str, name: str) -> Driver: ...


class Orders(Protocol):
    """Turns a launch into what its driver needs: the job and the snapshot's layout."""

    def order(self, run: Run, launch: Launch) -> LaunchOrder: ...


class Fetcher(Protocol):
    """Brings home what nobody pushes."""

    async def fetch(self, driver: Driver, run: Run, launch: Launch) -> None: ...
