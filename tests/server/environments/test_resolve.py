"""From what an environment says to a lock: literal pins, hashes, the node's platform, the same each time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import Environment
from shunter.server.environments import pypi
from shunter.server.environments.platforms import Platform, of_facts, of_this_machine
from shunter.server.environments.pythons import choose_python
from shunter.server.environments.requirements import from_conda, split_conda, take_out_ours, without
from shunter.server.environments.resolve import Lock, Settings, lock_for, request_of, resolve
from shunter.server.environments.tools import tools
from shunter.server.environments.wheels import WheelStore
from shunter.testing.packages import Index, make_broken_sdist, make_wheel

LINUX = Platform("Linux", "x86_64", "glibc-2.36", "3.11.7")


class Memory:
    """Locks in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Lock] = {}
        self.solved = 0

    def find(self, request: str) -> Lock | None:
        return self.kept.get(request)

    def keep(self, request: str, lock: Lock) -> Lock:
        self.solved += 1
        self.kept[request] = lock
        return lock


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    make_wheel(wheels, "alpha", "1.0", ["beta>=1"])
    make_wheel(wheels, "alpha", "2.0", ["beta>=2"])
    make_wheel(wheels, "beta", "1.5")
    make_wheel(wheels, "beta", "2.5")
    make_wheel(wheels, "mlflow-skinny", "3.0")
    with Index(wheels) as found:
        yield found


def lock_of(index: Index, settings: Settings | None = None, **parts: Any) -> Lock:
    environment = Environment(**{"index_url": index.url, "python": "3.11", **parts})
    return lock_for(environment, LINUX, settings or Settings(), None)


def test_a_list_is_solved_to_exact_versions_with_hashes(index: Index) -> None:
    lock = lock_of(index, packages=["alpha"])
    assert lock.packages == {"alpha": "2.0", "beta": "2.5"}
    assert lock.pip.count("--hash=sha256:") == 2
    assert (lock.python, lock.platform, lock.source) == ("3.11", "x86_64-manylinux_2_36", "pypi")


def test_pins_and_constraints_are_honoured_literally(index: Index) -> None:
    assert lock_of(index, packages=["alpha==1.0", "beta<2"]).packages == {"alpha": "1.0", "beta": "1.5"}
    assert lock_of(index, packages=["alpha"], constraints=["alpha<2"]).packages["alpha"] == "1.0"


def test_what_cannot_be_solved_shows_the_solvers_own_reason_first(index: Index) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        lock_of(index, packages=["alpha==2.0", "beta==1.5"])
    first = caught.value.message.splitlines()[0]
    assert first.startswith("The packages cannot be had together: No solution found")
    assert "depends on beta>=2" in first


def test_a_package_that_does_not_exist_is_named(index: Index) -> None:
    with pytest.raises(EnvironmentInvalid, match="nowhere-to-be-found"):
        lock_of(index, packages=["nowhere-to-be-found"])


def test_a_package_that_fails_while_it_is_built_tells_why(index: Index) -> None:
    make_broken_sdist(index.folder, "broken")
    with pytest.raises(EnvironmentInvalid, match="broken"):
        lock_of(index, packages=["broken"])


@pytest.mark.parametrize("mood", ["500", "hang"])
def test_an_index_that_does_not_answer_is_said(index: Index, mood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
    index.mood = mood
    with pytest.raises(EnvironmentInvalid) as caught:
        lock_of(index, packages=["alpha"])
    index.mood = ""
    assert "index" in caught.value.hint


def test_requirements_of_the_first_sdk_are_satisfied_by_ours_and_the_lock_says_so(index: Index) -> None:
    lock = lock_of(index, packages=["azureml-core==1.61", "azureml-mlflow", "beta"])
    assert lock.ours == ("azureml-core==1.61", "azureml-mlflow")
    assert set(lock.packages) == {"beta", "mlflow-skinny"}
    with pytest.raises(EnvironmentInvalid, match="azureml-core"):
        lock_of(index, packages=["azureml-core==1.61"], azureml="real")


def test_the_same_request_gets_the_same_lock_and_is_solved_once(index: Index) -> None:
    locks, found = Memory(), []
    environment = Environment(index_url=index.url, packages=["alpha"], python="3.11")
    threads = [
        threading.Thread(target=lambda: found.append(lock_for(environment, LINUX, Settings(), locks))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert locks.solved == 1
    assert len({lock.id for lock in found}) == 1
    make_wheel(index.folder, "alpha", "3.0")
    assert lock_for(environment, LINUX, Settings(), locks).packages["alpha"] == "2.0"
    assert lock_for(environment, LINUX, Settings(), locks, again=True).id != found[0].id


def test_a_rerun_gets_the_very_lock_of_the_run_before(index: Index) -> None:
    old = lock_of(index, packages=["alpha==1.0"])
    job = resolve({"packages": ["alpha"], "index_url": index.url}, LINUX, Settings(pinned_lock=old))
    assert job["lock_id"] == old.id


def test_a_private_index_is_reached_with_a_secret_that_is_stored_nowhere(index: Index) -> None:
    index.password = "tip-top"
    url = index.url.replace("http://", "http://user:${INDEX_PASSWORD}@")
    environment = Environment(packages=["beta"], index_url=url, python="3.11")
    settings = Settings(secrets={"INDEX_PASSWORD": "tip-top"})
    lock = lock_for(environment, LINUX, settings, None)
    assert lock.packages == {"beta": "2.5"}
    assert "tip-top" not in str(lock.to_wire()) + str(environment.to_wire())
    job = resolve(environment.to_wire(), LINUX, settings)
    assert job["secrets"]["UV_DEFAULT_INDEX"].count("tip-top") == 1
    with pytest.raises(EnvironmentInvalid, match="INDEX_PASSWORD"):
        lock_for(environment, LINUX, Settings(), None)


def test_a_wheelhouse_serves_a_node_that_is_offline(index: Index) -> None:
    environment = Environment(packages=["alpha"], find_links=[str(index.folder)], offline=True, python="3.11")
    lock = lock_for(environment, LINUX, Settings(), None)
    assert lock.packages == {"alpha": "2.0", "beta": "2.5"}
    assert lock.options == ("--find-links", str(index.folder), "--no-index")
    assert index.calls == []


def test_a_uv_lock_is_taken_as_the_lock_it_is(index: Index, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    text = '[project]\nname = "p"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["alpha<2"]\n'
    text += f'[tool.uv]\nindex-url = "{index.url}"\n'
    (project / "pyproject.toml").write_text(text)
    subprocess.run([pypi.find_uv(), "lock", "--quiet"], cwd=project, check=True)
    make_wheel(index.folder, "alpha", "1.9", ["beta"])
    files = {name: (project / name).read_text() for name in ("pyproject.toml", "uv.lock")}
    lock = lock_of(index, files=files)
    assert lock.packages["alpha"] == "1.0"


def test_conda_packages_that_pypi_knows_are_served_from_there_when_the_user_says_so(index: Index) -> None:
    make_wheel(index.folder, "scikit-learn", "1.5.2")
    environment = Environment(conda_packages=["scikit-learn=1.5", "pip"], index_url=index.url, python="3.11")
    lock = lock_for(environment, LINUX, Settings(package_source="pypi"), None)
    assert lock.packages == {"scikit-learn": "1.5.2"}
    assert lock.translated == {"scikit-learn=1.5": "scikit-learn==1.5.*"}
    assert lock.source == "pypi instead of conda"


def test_a_channel_that_cannot_be_reached_names_the_setting_that_helps() -> None:
    environment = Environment(conda_packages=["scikit-learn"], channels=["file:///nowhere/at/all"], python="3.11")
    with pytest.raises(EnvironmentInvalid) as caught:
        lock_for(environment, LINUX, Settings(), None)
    assert "file:///nowhere/at/all" in caught.value.message
    assert "package_source: pypi" in caught.value.hint


def test_a_conda_package_that_pypi_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(EnvironmentInvalid, match="gcc_linux-64"):
        from_conda(["numpy", "gcc_linux-64"])


@pytest.mark.parametrize(
    ("asked", "preferred", "version"),
    [
        ("", ["3.11.4"], "3.11"),
        ("", [], "3.12"),
        ("3.6.2", ["3.11"], "3.6.2"),
        (">=3.10", ["3.9.1", "3.11.2"], "3.11"),
        (">=3.10,<3.12", ["3.13"], "3.11"),
        ("~=3.9.1", ["3.11"], "3.9"),
        ("3.8", ["3.11"], "3.8"),
    ],
)
def test_the_python_that_is_asked_for_is_taken_literally_else_the_submitters(
    asked: str, preferred: list[str], version: str
) -> None:
    assert choose_python(asked, preferred) == version


@pytest.mark.parametrize("asked", ["three", ">=4"])
def test_a_python_that_cannot_be_had_lists_what_can(asked: str) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        choose_python(asked)
    assert "3.1" in caught.value.hint


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("numpy", ("numpy", "")),
        ("numpy=1.26", ("numpy", "==1.26.*")),
        ("numpy==1.26.4", ("numpy", "==1.26.4")),
        ("numpy=1.26.4=py311_0", ("numpy", "==1.26.4.*")),
        ("conda-forge::numpy>=1.20,<2", ("numpy", ">=1.20,<2")),
        ("numpy >=1.20", ("numpy", ">=1.20")),
        ("numpy 1.26.4", ("numpy", "==1.26.4")),
    ],
)
def test_conda_versions_are_understood(spec: str, expected: tuple[str, str]) -> None:
    assert split_conda(spec) == expected


def test_platforms_are_named_as_the_solvers_name_them() -> None:
    assert LINUX.for_uv == "x86_64-manylinux_2_36"
    assert Platform("Linux", "aarch64", "glibc-2.29").for_uv == "aarch64-manylinux_2_28"
    assert Platform("Linux", "x86_64", "glibc-2.12").for_uv == "x86_64-manylinux_2_17"
    assert Platform("Darwin", "aarch64").for_uv == "aarch64-apple-darwin"
    assert (LINUX.for_conda, Platform("Darwin", "aarch64").for_conda) == ("linux-64", "osx-arm64")
    facts = {"system": "Linux 6.1", "python": "3.9.2", "details": {"machine": "arm64", "libc": "glibc-2.31"}}
    assert of_facts(facts) == Platform("Linux", "aarch64", "glibc-2.31", "3.9.2")
    assert of_this_machine().for_uv


def test_a_request_depends_on_what_is_solved_and_on_nothing_else() -> None:
    base = Environment(name="a", packages=["x"], env={"A": "1"}, python="3.11")
    same = base.evolve(name="b", version="3", env={}, description="other")
    assert request_of(base, LINUX, Settings()) == request_of(same, LINUX, Settings())
    for other in (base.evolve(packages=("y",)), base.evolve(python="3.10"), base.evolve(index_url="https://h")):
        assert request_of(base, LINUX, Settings()) != request_of(other, LINUX, Settings())
    assert request_of(base, LINUX, Settings()) != request_of(base, Platform("Linux", "aarch64"), Settings())


def test_taking_packages_out_of_a_lock_leaves_the_others_whole() -> None:
    lock = "a==1 \\\n    --hash=sha256:1\nb==2 \\\n    --hash=sha256:2\n"
    assert without(lock, ["a"]) == "b==2 \\\n    --hash=sha256:2\n"
    assert take_out_ours(["AzureML_Core", "x"], "ours").packages == ("x",)


@pytest.mark.parametrize(
    ("wire", "kind"),
    [
        ({"user_managed": True, "interpreter": "/usr/bin/python3"}, "existing"),
        ({"container": {"image": "i"}}, "container"),
        ({"container": {"image": "i"}, "user_managed": True}, "container"),
    ],
)
def test_what_installs_nothing_needs_no_solver(wire: dict[str, Any], kind: str) -> None:
    job = resolve(wire, LINUX)
    assert job["kind"] == kind
    assert "lock_id" not in job


def test_tools_for_a_machine_of_another_make_are_unpacked_from_their_wheels(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
    version = metadata.version("uv")
    make_wheel(index.folder, "uv", version, files={f"uv-{version}.data/scripts/uv": "#!/bin/sh\necho an arm\n"})
    other = Platform("Linux", "riscv64" if of_this_machine().machine == "aarch64" else "aarch64", "glibc-2.31")
    store = WheelStore(tmp_path / "wheels")
    found = tools(other, store)["uv"]
    assert subprocess.run([found], capture_output=True, text=True, check=True).stdout == "an arm\n"
    calls = len(index.calls)
    assert tools(other, store) == {"uv": found}
    assert len(index.calls) == calls
