"""Machines of our own, and servers to attach them to."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import Machine, is_possible

import shunter

Make = Callable[..., Machine]


@pytest.fixture(scope="module")
def make_machine() -> Iterator[Make]:
    """Makes machines that are gone after the module."""
    if not is_possible():
        pytest.skip("needs root, sshd and network namespaces: scripts/parts/ssh")
    made: list[Machine] = []
    folder = Path(tempfile.mkdtemp(prefix="shunter-ssh-"))

    def make(**options: Any) -> Machine:
        made.append(Machine(folder / f"machine{len(made)}", **options))
        return made[-1].up()

    try:
        yield make
    finally:
        for machine in made:
            machine.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def machine(make_machine: Make) -> Machine:
    return make_machine()


@pytest.fixture(scope="module")
def ws(module_home: Path) -> shunter.Workspace:
    return shunter.Workspace.from_config()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the tests and the machines' users see at the same place."""
    folder = Path(tempfile.mkdtemp(prefix="shunter-shared-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def shared(open_folder: Path) -> Path:
    return open_folder
