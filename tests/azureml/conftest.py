"""A server for each module, and `azureml` that is ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.azureml import install, uninstall
from shunter.azureml.core import Workspace


@pytest.fixture(autouse=True)
def _azureml_is_ours() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.fixture(scope="module")
def ws(module_home: Path) -> Workspace:
    return Workspace.from_config()
