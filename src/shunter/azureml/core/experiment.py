"""`azureml.core.experiment`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shunter.azureml.core.script_run_config import ScriptRunConfig
from shunter.azureml.exceptions import NotYetException, UserErrorException, as_first_sdk
from shunter.model.names import check_title

if TYPE_CHECKING:
    from shunter.azureml.core.run import InteractiveRun, Run, ScriptRun
    from shunter.azureml.core.workspace import Workspace


class Experiment:
    """A name under which runs are kept together; made when it is not there. Blanks in it are fine."""

    @as_first_sdk()
    def __init__(self, workspace: Workspace, name: str, **kwargs: Any) -> None:
        self._workspace = workspace
        self._name = check_title("experiment", name)
        workspace._ours.client.post(f"{workspace._ours.path}/experiments", {"name": name})

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    workspace_object = workspace

    @property
    def name(self) -> str:
        return self._name

    @property
    def id(self) -> str:
        return self._name

    @as_first_sdk()
    def submit(self, config: Any, tags: dict[str, str] | None = None, **kwargs: Any) -> ScriptRun:
        """Freeze the folder and start the run. More options are those of our own submit: `inputs={…}`, `name=…`."""
        from shunter.azureml.core.run import ScriptRun
        from shunter.sdk.submit import submit

        made = config._script_run_config() if hasattr(config, "_script_run_config") else config
        if not isinstance(made, ScriptRunConfig):
            raise NotYetException(
                f"{type(config).__name__} cannot be submitted yet. Submit a ScriptRunConfig or an Estimator."
            )
        if not made.script:
            raise UserErrorException("There is no script to run. Say script='train.py'.")
        if made.resume_from is not None:
            kwargs.setdefault("from_checkpoint", _run_id(made.resume_from))
        ours = submit(
            self._workspace._ours, made.script, source_directory=made.source_directory, arguments=made._words(),
            run_config=made.run_config._to_ours(), experiment=self._name, tags=tags, **kwargs,
        )  # fmt: skip
        return ScriptRun._of(self._workspace, ours)

    @as_first_sdk()
    def get_runs(
        self, type: str | None = None, tags: Any = None, properties: Any = None, include_children: bool = False
    ) -> Iterator[Run]:
        """The newest first. `tags` and `properties` are a key or a dict."""
        from shunter.azureml.core.run import Run

        return (
            run
            for run in _pages(self._workspace, self._name)
            if (include_children or run._ours.data["parent_id"] is None)
            and (type is None or type in (run.type, Run.RUN_TYPE))
            and _has(run.tags, tags)
            and _has(run.properties, properties)
        )

    @as_first_sdk()
    def start_logging(
        self, *args: Any, outputs: Any = None, snapshot_directory: str | os.PathLike[str] | None = ".",
        display_name: str | None = None, **kwargs: Any,
    ) -> InteractiveRun:  # fmt: skip
        """A run that is launched nowhere: this program logs into it, until `complete()` or the end of a `with` block.

        The folder is frozen and kept with it; `snapshot_directory=None` leaves that out.
        """
        from shunter.azureml.core.run import InteractiveRun
        from shunter.sdk.interactive import start_logging

        made = start_logging(self._workspace._ours, self._name, name=display_name, snapshot_directory=snapshot_directory)
        return InteractiveRun._with(self._workspace, made, outputs)

    @staticmethod
    def list(
        workspace: Workspace, experiment_name: str | None = None, view_type: str = "ActiveOnly", tags: Any = None
    ) -> list[Experiment]:
        return [e for name, e in workspace.experiments.items() if experiment_name in (None, name)]

    def get_portal_url(self) -> str:
        from shunter.sdk.client import part

        ours = self._workspace._ours
        return f"{ours.client.url}/workspaces/{part(ours.name)}/experiments/{part(self._name)}"

    def refresh(self) -> None:
        """Nothing is kept here that could be old."""

    def __repr__(self) -> str:
        return f"Experiment(Name: {self._name},\nWorkspace: {self._workspace.name})"


def _run_id(given: Any) -> str:
    """Whose checkpoints a run goes on from."""
    from shunter.azureml.core.run import Run

    if isinstance(given, Run):
        return given._ours.id
    if isinstance(given, str):
        return given
    raise NotYetException(
        "resume_from takes a run whose checkpoints are taken up (or its id). Scripts find them in SHUNTER_CHECKPOINT_DIR."
    )


def _pages(workspace: Workspace, experiment: str) -> Iterator[Run]:
    from datetime import datetime

    from shunter.azureml.core.run import ScriptRun

    before: float | None = None
    seen: set[str] = set()
    while True:
        page = workspace._ours.runs(experiment=experiment, limit=200, before=before)
        fresh = [run for run in page if run.id not in seen]
        if not fresh:
            return
        for run in fresh:
            seen.add(run.id)
            yield ScriptRun._of(workspace, run)
        # To the millisecond only: one more, so that none of the same millisecond is missed.
        before = datetime.fromisoformat(fresh[-1].data["submitted_at"]).timestamp() + 0.001


def _has(found: dict[str, Any], wanted: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, str):
        return wanted in found
    return all(found.get(key) == str(value) for key, value in dict(wanted).items())
