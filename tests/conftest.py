"""A SHUNTER_HOME of its own for whoever asks; at the end nothing that was started in it is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.testing.house import House


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty SHUNTER_HOME for one test."""
    yield from _home(tmp_path / "home", monkeypatch)


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty SHUNTER_HOME that the tests of one module share, and with it a server."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _home(tmp_path_factory.mktemp("home") / "home", patch)


@pytest.fixture
def house(home: Path) -> House:
    """The same home, with the means to kill what runs in it."""
    return House(home)


def _home(path: Path, patch: pytest.MonkeyPatch) -> Iterator[Path]:
    path.mkdir(mode=0o700)
    for name in [n for n in os.environ if n.startswith("SHUNTER_")]:
        patch.delenv(name)
    patch.setenv("SHUNTER_HOME", str(path))
    try:
        yield path
    finally:
        end_all(path)


#: Tests that bring up a Ray cluster. Two at a time would starve each other on two cores, so one worker runs them all.
_WITH_RAY = ("drivers/cluster/", "journeys/test_documents", "journeys/test_handwriting", "azureml/test_notebooks")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`, the tests of a file stay together, and those of all files with Ray."""
    for item in items:
        file = item.nodeid.split("::", 1)[0].removeprefix("tests/")
        item.add_marker(pytest.mark.xdist_group("ray" if file.startswith(_WITH_RAY) else file))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tables that tests made for people to read, such as the scoreboard."""
    for report in terminalreporter.stats.get("passed", []):
        for title, lines in getattr(report, "user_properties", []):
            if title == "table":
                terminalreporter.write_line("")
                for line in lines:
                    terminalreporter.write_line(line)


def end_all(home: Path) -> None:
    House(home).end_all()
