"""`azureml.core.model`: registered models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shunter.azureml.exceptions import NotYetException

if TYPE_CHECKING:
    from shunter.azureml.core.run import Run
    from shunter.azureml.core.workspace import Workspace


class Model:
    def __init__(self, workspace: Workspace, name: str | None = None, **kwargs: Any) -> None:
        raise _not_yet("Model")

    name: str

    @staticmethod
    def list(workspace: Workspace, name: str | None = None, latest: bool = False, **kwargs: Any) -> list[Model]:
        raise _not_yet("Model.list")


def _register_from_run(run: Run, name: str, path: str | None, **about: Mapping[str, str] | str | None) -> Model:
    raise _not_yet("Run.register_model")


def _not_yet(what: str) -> NotYetException:
    return NotYetException(f"{what} is not there yet. Download the file with run.download_file(…).")
