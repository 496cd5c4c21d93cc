"""An SSH machine keeps the contract that every target keeps, by tunnel and without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import Machine

from shunter.sdk.workspace import Workspace
from shunter.testing.drivers import DriverContract


class OverSsh(DriverContract):
    @pytest.fixture
    def ws(self, home: Path) -> Workspace:
        return Workspace.from_config()

    @pytest.fixture
    def shared(self, open_folder: Path) -> Path:
        return open_folder


class TestSsh(OverSsh):
    @pytest.fixture
    def target(self, ws: Workspace, machine: Machine) -> str:
        return ws.compute.create("vm", "ssh", **machine.options()).name


class TestSshWithoutForwarding(OverSsh):
    @pytest.fixture
    def target(self, ws: Workspace, machine: Machine) -> str:
        return ws.compute.create("vm", "ssh", **machine.options(forwarding="never")).name
