"""Curated environments: data that is right, all of it solvable, the light ones installable. Needs a package index."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import Environment
from shunter.node import environments
from shunter.server.environments.curated import Curated, curated, default_image
from shunter.server.environments.platforms import of_this_machine
from shunter.server.environments.pypi import find_uv
from shunter.server.environments.resolve import Lock, Settings, job_environment, lock_for
from shunter.testing.environments import run_python

ALL = sorted(key for key in curated() if ":" in key)
LIGHT = {"scikit-learn:1": "import sklearn, pandas, matplotlib; print(sklearn.__version__)"}


def test_every_framework_of_the_documents_is_there_with_its_variants() -> None:
    found = {(one.framework, one.variant) for one in curated().values()}
    assert {
        ("scikit-learn", "cpu"), ("pytorch", "cpu"), ("pytorch", "gpu"), ("tensorflow", "cpu"), ("tensorflow", "gpu"),
        ("xgboost, lightgbm", "cpu"), ("xgboost, lightgbm", "gpu"), ("rapids", "gpu"), ("pyspark", "cpu"),
    } <= found  # fmt: skip
    assert all(one.environment.description and one.environment.python for one in curated().values())
    assert "/" in default_image()


@pytest.fixture(scope="module")
def locks() -> dict[str, Lock]:
    """All of them, solved at once."""
    _need_an_index()
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(ALL, pool.map(lambda key: _solve(curated()[key]), ALL), strict=True))


@pytest.mark.parametrize("key", ALL)
def test_it_can_be_solved(key: str, locks: dict[str, Lock]) -> None:
    lock = locks[key]
    for requirement in curated()[key].environment.packages:
        name, _, version = requirement.partition("==")
        if version:
            assert lock.packages[name.partition("[")[0]].partition("+")[0] == version
    assert lock.pip.count("--hash=") >= len(lock.packages)


@pytest.mark.parametrize("key", sorted(LIGHT))
def test_a_light_one_can_be_installed(key: str, locks: dict[str, Lock], tmp_path: Path) -> None:
    (tmp_path / "launches" / "x").mkdir(parents=True)
    spec = job_environment(curated()[key].environment, locks[key], Settings())
    said: list[str] = []
    job = {"id": "x", "tools": {"uv": find_uv()}}
    prepared = environments.prepare(
        spec, str(tmp_path / "launches" / "x"), str(tmp_path), said.append, lambda: False, job
    )
    assert run_python(prepared.argv_prefix[0], LIGHT[key])


def _solve(one: Curated) -> Lock:
    environment: Environment = one.environment
    links = os.environ.get("PIP_FIND_LINKS")
    if environment.extra_index_urls and links:
        # A set-up without a way to the framework's own index brings its packages in a folder.
        environment = environment.evolve(extra_index_urls=(), find_links=tuple(links.split()))
    return lock_for(environment, of_this_machine(), Settings(), None)


def _need_an_index() -> None:
    try:
        lock_for(Environment(packages=["six"], python="3.11"), of_this_machine(), Settings(), None)
    except EnvironmentInvalid as error:
        pytest.skip(f"no package index can be reached: {error.message}")
