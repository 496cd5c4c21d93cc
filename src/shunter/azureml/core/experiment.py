"""`azureml.core.experiment`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shunter.azureml.core.script_run_config import ScriptRunConfig
from shunter.azureml.exceptions import NotYetException, UserErrorException, as_first_sdk
from shunter.model.names import check_title

if TYPE_CHECKING:
    from shunter.azureml.core.run import Run, ScriptRun
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

    def start_logging(self, *args: Any, **kwargs: Any) -> Any:
        raise NotYetException(
            "Interactive runs are not there yet. Submit the script: `experiment.submit(ScriptRunConfig(…))`; "
            "inside, Run.get_context() logs."
        )

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
