"""Conda packages from a real channel that the test makes: solved here, installed there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import Environment
from shunter.node import environments
from shunter.server.environments import conda
from shunter.server.environments.platforms import of_this_machine
from shunter.server.environments.resolve import Settings, job_environment, lock_for
from shunter.server.environments.tools import tools
from shunter.server.environments.wheels import WheelStore
from shunter.testing.environments import run_python
from shunter.testing.packages import make_conda_package, make_wheel

pytest.importorskip("rattler")
VERSION = ".".join(map(str, sys.version_info[:3]))
_LEFT_OUT = ("test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "config-*", "ensurepip",
             "lib2to3", "tkinter", "turtledemo", "pydoc_data", "distutils")  # fmt: skip


@pytest.fixture(scope="module")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A channel with this very Python as a conda package, and small packages of its own."""
    folder = tmp_path_factory.mktemp("channel")
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = folder / "library"
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    binary = Path(sys.base_prefix, "bin", name).resolve().read_bytes()
    make_conda_package(folder, "python", VERSION, files={f"bin/{name}": binary}, subdir=of_this_machine().for_conda,
                       trees={f"lib/{name}": library})  # fmt: skip
    make_conda_package(folder, "alpha", "1.0", ["python", "beta >=1"])
    make_conda_package(folder, "alpha", "2.0", ["python", "beta >=1"])
    make_conda_package(folder, "beta", "1.2", ["python"])
    make_conda_package(folder, "numpy", "1.26.4", ["python"])
    return folder


def environment(channel: Path, **parts: object) -> Environment:
    return Environment.from_wire({"channels": [f"file://{channel}"], **parts})


def test_conda_packages_are_locked_with_their_hashes(channel: Path) -> None:
    lock = lock_for(environment(channel, conda_packages=["alpha=1.0"]), of_this_machine(), Settings(), None)
    assert lock.packages == {"python": VERSION, "alpha": "1.0", "beta": "1.2"}
    assert lock.conda.count("sha256:") == 3
    assert (lock.source, lock.python, lock.pip) == ("conda", VERSION, "")


def test_a_conda_lock_is_installed_with_pip_packages_around_it(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "gamma", "3.0", ["numpy"])
    make_wheel(wheels, "numpy", "1.26.4")
    make_wheel(wheels, "numpy", "2.0.0")
    asked = environment(
        channel, conda_packages=["alpha", "numpy"], packages=["gamma"], find_links=[str(wheels)], offline=True
    )
    lock = lock_for(asked, of_this_machine(), Settings(), None)
    assert "numpy" not in lock.pip
    assert lock.packages["numpy"] == "1.26.4"

    folder = tmp_path / "node" / "launches" / "one"
    folder.mkdir(parents=True)
    said: list[str] = []
    spec = job_environment(asked, lock, Settings())
    prepared = environments.prepare(
        spec,
        str(folder),
        str(tmp_path / "node"),
        said.append,
        lambda: False,
        {"tools": tools(of_this_machine(), WheelStore(tmp_path / "wheels-kept"), conda=True)},
    )

    code = "import alpha, beta, gamma, numpy; print(*(m.__version__ for m in (alpha, beta, gamma, numpy)))"
    assert run_python(prepared.argv_prefix[0], code) == "2.0 1.2 3.0 1.26.4"
    assert prepared.facts["python"] == VERSION
    assert prepared.env["CONDA_PREFIX"] == str(Path(prepared.argv_prefix[0]).parent.parent)


def test_packages_that_cannot_be_had_together_are_said_in_the_solvers_words(channel: Path) -> None:
    with pytest.raises(EnvironmentInvalid, match=r"cannot be had together: .*alpha 9") as caught:
        lock_for(environment(channel, conda_packages=["alpha=9"]), of_this_machine(), Settings(), None)
    assert "package_source" not in caught.value.hint


#: Stands in for the library, to die as it was seen to while it installed.
DYING = """
import os
tries = os.path.join(os.path.dirname(__file__), "tries")
open(tries, "a").write("x")
if os.path.getsize(tries) <= TIMES:
    os.kill(os.getpid(), 11)
raise RuntimeError("no such package: alpha")
"""


@pytest.mark.parametrize(("deaths", "said"), [(1, "no such package: alpha"), (2, "the solver died, twice")])
def test_a_solver_that_dies_takes_nobody_along_and_is_asked_once_more(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: int, said: str
) -> None:
    (tmp_path / "rattler").mkdir()
    (tmp_path / "rattler/__init__.py").write_text(DYING.replace("TIMES", str(deaths)))
    monkeypatch.delitem(sys.modules, "rattler")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(EnvironmentInvalid, match=said):
        lock_for(environment(channel, conda_packages=["alpha"]), of_this_machine(), Settings(), None)
    assert "rattler" not in sys.modules, "its threads would outlive the solve, in the server"


def test_a_solver_whose_server_was_killed_ends(tmp_path: Path) -> None:
    (tmp_path / "rattler").mkdir()
    (tmp_path / "rattler/__init__.py").write_text("import time\nprint('solving', flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, "-I", str(Path(conda.__file__).with_name("conda_solve.py")), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as solver:
        assert solver.stdin is not None
        assert solver.stdout is not None
        solver.stdin.write(b'{"channels": []}\n')
        assert solver.stdout.readline() == b"solving\n"
        solver.stdin.close()
        assert solver.wait(20) == 1
