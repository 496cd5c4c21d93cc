"""Ten seeds each of what runs on a machine must survive, short; the long stories are told by `scripts/soak_ssh.py`.

One server and one machine for all of them, attached twice: with a tunnel home, and without one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import batch_on, cut_while_runs_come_and_go, kill_the_server_while_runs_are_there
from machines import Machine

import shunter
from shunter.testing.house import House

WAYS = {"tunnel": "auto", "session": "never"}


@pytest.fixture(scope="module")
def targets(ws: shunter.Workspace, machine: Machine) -> list[str]:
    for name, forwarding in WAYS.items():
        ws.compute.create(name, "ssh", slots=4, connect_timeout_seconds=10, **machine.options(forwarding=forwarding))
    return list(WAYS)


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_cable_loses_no_run_and_starts_none_twice(
    seed: int, targets: list[str], module_home: Path, machine: Machine, shared: Path
) -> None:
    batch = batch_on(House(module_home), shared / "batch", seed, targets[seed % 2])
    cut_while_runs_come_and_go(machine, batch, cuts=3, count=4, longest_seconds=3.0, longest_run_seconds=1.0)
    batch.wait(120)
    batch.check()


@pytest.mark.parametrize("seed", range(10, 20))
def test_a_killed_server_loses_no_run_on_a_machine(
    seed: int, targets: list[str], module_home: Path, shared: Path
) -> None:
    house = House(module_home)
    batch = batch_on(house, shared / "batch", seed, targets[seed % 2])
    assert kill_the_server_while_runs_are_there(house, batch, kills=2, count=4, longest_run_seconds=1.0)
    batch.wait(120)
    batch.check()
