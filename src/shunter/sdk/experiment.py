"""An experiment groups runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shunter.model.names import check_title
from shunter.sdk.config import ScriptRunConfig

if TYPE_CHECKING:
    from shunter.sdk.interactive import InteractiveRun
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace


class Experiment:
    """A name under which runs are kept together. It comes into being with its first run.

    >>> Experiment(ws, "my experiment").submit(ScriptRunConfig(source_directory=".", script="train.py"))  # doctest: +SKIP
    """

    def __init__(self, workspace: Workspace, name: str) -> None:
        self.workspace = workspace
        self.name = check_title("experiment", name)

    def submit(self, config: ScriptRunConfig, tags: dict[str, str] | None = None, **options: Any) -> Run:
        """Submit a script with its run configuration."""
        from shunter.sdk.submit import submit

        return submit(
            self.workspace, config.script or "", source_directory=config.source_directory,
            arguments=config.arguments or (), run_config=config.run_config, experiment=self.name, tags=tags, **options,
        )  # fmt: skip

    def start_logging(
        self, *, name: str | None = None, tags: Mapping[str, Any] | None = None,
        snapshot_directory: str | os.PathLike[str] | None = None,
    ) -> InteractiveRun:  # fmt: skip
        """A run that is launched nowhere: this program logs into it, until `complete()` or the end of a `with` block.

        With `snapshot_directory` that folder is frozen and kept with it.
        """
        from shunter.sdk.interactive import start_logging

        return start_logging(self.workspace, self.name, name=name, tags=tags, snapshot_directory=snapshot_directory)

    def runs(self, limit: int = 50, status: str | None = None) -> Sequence[Run]:
        return self.workspace.runs(experiment=self.name, limit=limit, status=status)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        return html_table({"experiment": self.name, "workspace": self.workspace.name})
