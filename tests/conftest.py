"""A SHUNTER_HOME of its own for whoever asks; at the end nothing that was started in it is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.testing.house import House


def pytest_configure() -> None:
    """Ctrl-C reaches the commands under test also where a shell started all this in the background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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


#: Tests that bring up a Ray cluster: on two cores, two clusters at once starve each other.
_WITH_RAY = ("drivers/cluster/", "journeys/test_documents", "journeys/test_handwriting", "azureml/test_notebooks")


@pytest.fixture(scope="module", autouse=True)
def _one_ray_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """One file with Ray at a time, whichever worker has it; the others wait here (their time limit does not run)."""
    import fcntl
    import tempfile

    if not request.node.nodeid.removeprefix("tests/").startswith(_WITH_RAY):
        yield
        return
    with open(os.path.join(tempfile.gettempdir(), f"shunter-ray-{os.getuid()}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
