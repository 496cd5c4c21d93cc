"""`azureml.core.run`: a run as its submitter sees it. Inside its script, `Run.get_context()` gives the other side."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from shunter.azureml.core import _run_files as files
from shunter.azureml.core._run_details import details_of, properties_of
from shunter.azureml.exceptions import (
    ActivityFailedException,
    NotYetException,
    RunEnvironmentException,
    UserErrorException,
    as_first_sdk,
)
from shunter.run import OfflineRun as _OfflineRun
from shunter.run import RunEnvironmentError
from shunter.run import get_context as _get_context
from shunter.sdk.interactive import InteractiveRun as Live
from shunter.sdk.run import Run as Ours

if TYPE_CHECKING:
    from shunter.azureml.core.environment import Environment
    from shunter.azureml.core.experiment import Experiment
    from shunter.azureml.core.workspace import Workspace

__all__ = ["InteractiveRun", "Run", "ScriptRun", "_OfflineRun", "get_run"]


class Run:
    """One submission of a script."""

    RUN_TYPE = "azureml.scriptrun"

    @as_first_sdk()
    def __init__(self, experiment: Experiment, run_id: str, outputs: Any = None, **kwargs: Any) -> None:
        self._workspace = experiment.workspace
        self._ours = experiment.workspace._ours.run(run_id)

    @classmethod
    def _of(cls, workspace: Workspace, ours: Ours) -> Self:
        made = cls.__new__(cls)
        made._workspace, made._ours = workspace, ours
        return made

    @classmethod
    def get_context(cls, allow_offline: bool = True, used_for_context_manager: bool = False, **kwargs: Any) -> Any:
        """Inside a run, that run; elsewhere an object that prints."""
        try:
            return _get_context(allow_offline)
        except RunEnvironmentError as error:
            raise RunEnvironmentException(str(error)) from error

    @staticmethod
    def get(workspace: Workspace, run_id: str) -> Run:
        return workspace.get_run(run_id)

    @staticmethod
    def list(
        experiment: Experiment, type: str | None = None, tags: Any = None, properties: Any = None,
        status: str | None = None, include_children: bool = False,
    ) -> Iterator[Run]:  # fmt: skip
        found = experiment.get_runs(type, tags, properties, include_children)
        return (run for run in found if status in (None, run._ours.data["status"]))

    # What it is

    @property
    def id(self) -> str:
        """`EXPERIMENT_SECONDS_8HEX`; our own commands take it too."""
        return str(self._ours.data["alias"])

    _run_id = id

    @property
    def name(self) -> str:
        return self._ours.name

    display_name = name

    @property
    def number(self) -> int:
        return int(self._ours.data["number"])

    @property
    def type(self) -> str:
        return self.RUN_TYPE

    @property
    def status(self) -> str:
        return self.get_status()

    @property
    def experiment(self) -> Experiment:
        from shunter.azureml.core.experiment import Experiment

        return Experiment(self._workspace, self._ours.experiment)

    @property
    def parent(self) -> Run | None:
        above = self._ours.data["parent_id"]
        return self._workspace.get_run(above) if above else None

    @property
    def tags(self) -> dict[str, str]:
        return self._ours.tags

    @property
    def properties(self) -> dict[str, str]:
        return properties_of(self._ours)

    @as_first_sdk()
    def get_status(self) -> str:
        return self._ours.status

    @as_first_sdk()
    def get_details(self) -> dict[str, Any]:
        return details_of(self._ours.refresh(), files.log_names(self._ours))

    def get_details_with_logs(self) -> dict[str, Any]:
        found = self.get_details()
        found["logFiles"] = {name: files.log_text(self._ours, name) for name in found["logFiles"]}
        return found

    def get_detailed_status(self) -> dict[str, Any]:
        why = self._ours.why()
        return {"status": why["status"], "details": why["reasons"]}

    @as_first_sdk()
    def get_tags(self) -> dict[str, str]:
        return self._ours.refresh().tags

    @as_first_sdk()
    def get_properties(self) -> dict[str, str]:
        return properties_of(self._ours.refresh())

    def get_portal_url(self) -> str:
        return f"{self._workspace._ours.client.url}/runs/{self._ours.id}"

    @as_first_sdk()
    def get_metrics(
        self, name: str | None = None, recursive: bool = False, run_type: str | None = None, populate: bool = False
    ) -> dict[str, Any]:
        """Logged once: the value; repeatedly: a list. With `recursive`, by run id."""
        found = self._ours.metrics(name, recursive)
        if not recursive:
            return found
        known = {run.id: str(run.data["alias"]) for run in _family(self._ours)}
        return {known.get(run_id, run_id): metrics for run_id, metrics in found.items()}

    @as_first_sdk()
    def get_children(
        self, recursive: bool = False, tags: Any = None, properties: Any = None, type: str | None = None,
        status: str | None = None,
    ) -> Iterator[Run]:  # fmt: skip
        from shunter.azureml.core.experiment import _has

        below = _family(self._ours)[1:] if recursive else self._ours.children()
        for ours in below:
            run: Run = ScriptRun._of(self._workspace, ours)
            if status in (None, ours.data["status"]) and _has(run.tags, tags) and _has(run.properties, properties):
                yield run

    def get_environment(self) -> Environment:
        """What it ran in; without one, the interpreter that submitted it."""
        from shunter.azureml.core.environment import from_ours
        from shunter.sdk.environment import Environment as OurEnvironment

        return from_ours(OurEnvironment.from_wire(self._ours.data["config"].get("environment") or {"user_managed": True}))

    # Waiting and ending

    def wait_for_completion(
        self, show_output: bool = False, wait_post_processing: bool = False, raise_on_error: bool = True
    ) -> dict[str, Any]:
        """Wait until it is over. A failed run raises ActivityFailedException, a canceled one does not."""
        with as_first_sdk():
            if show_output:
                self._show()
            self._ours.wait()
        details = self.get_details()
        if raise_on_error and details["status"] == "Failed":
            raise ActivityFailedException(error_details=json.dumps(details.get("error"), indent=4, ensure_ascii=False))
        return details

    def _show(self) -> None:
        print(f"RunId: {self.id}\nWeb View: {self.get_portal_url()}\n")
        title = f"Streaming {files.log_names(self._ours)[0]}"
        print(f"{title}\n{'=' * len(title)}\n", flush=True)
        self._ours.wait(show_output=True, file=sys.stdout)
        print(f"\nExecution Summary\n{'=' * 17}\nRunId: {self.id}\nWeb View: {self.get_portal_url()}\n", flush=True)

    @as_first_sdk()
    def cancel(self) -> None:
        self._ours.cancel()

    # Files

    @as_first_sdk()
    def get_file_names(self) -> Sequence[str]:
        return files.names(self._ours)

    @as_first_sdk()
    def download_file(self, name: str, output_file_path: str | os.PathLike[str] | None = None, **kwargs: Any) -> None:
        """To `output_file_path`: a file, a folder that is there, or (when not said) this folder."""
        files.download(self._ours, name, output_file_path)

    @as_first_sdk()
    def download_files(
        self, prefix: str | None = None, output_directory: str | os.PathLike[str] | None = None,
        output_paths: Sequence[str] | None = None, batch_size: int = 100, append_prefix: bool = True,
        timeout_seconds: float | None = None,
    ) -> None:  # fmt: skip
        files.download_many(self._ours, prefix, output_directory, output_paths, append_prefix)

    @as_first_sdk()
    def get_all_logs(self, destination: str | os.PathLike[str] | None = None) -> Sequence[str]:
        """Write the logs into a folder; their paths."""
        folder = Path(destination or f"{self.id}-logs")
        done = []
        for name in files.log_names(self._ours):
            files.download(self._ours, name, folder / name)
            done.append(str(folder / name))
        return done

    def get_snapshot_id(self) -> str:
        return str(self._ours.data["snapshot_id"])

    @as_first_sdk()
    def restore_snapshot(self, snapshot_id: str | None = None, path: str | os.PathLike[str] | None = None) -> str:
        """The folder as it was at the submit, in a new folder; its path."""
        from shunter.sdk.snapshots.restore import restore

        folder = Path(path or f"snapshot-{self.id}")
        restore(self._workspace._ours.client, snapshot_id or self.get_snapshot_id(), folder)
        return str(folder.absolute())

    # Tags

    def tag(self, key: str, value: Any = None) -> None:
        self.set_tags({key: value})

    @as_first_sdk()
    def set_tags(self, tags: Mapping[str, Any]) -> None:
        self._ours.tag(**{str(k): "" if v is None else v for k, v in tags.items()})

    @as_first_sdk()
    def remove_tags(self, tags: Sequence[str]) -> None:
        gone = [tags] if isinstance(tags, str) else [*tags]
        self._ours.data = self._workspace._ours.client.call("PATCH", self._ours.path + "/tags", {"remove": gone})

    # Models

    def register_model(
        self, model_name: str, model_path: str | None = None, tags: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None, model_framework: str | None = None,
        model_framework_version: str | None = None, description: str | None = None, datasets: Any = None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Register files of this run, below `model_path` (default: the model's name), as a model."""
        from shunter.azureml.core.model import _register_from_run

        return _register_from_run(
            self, model_name, model_path, tags=tags, properties=properties, description=description,
            model_framework=model_framework, model_framework_version=model_framework_version,
        )  # fmt: skip

    @as_first_sdk()
    def submit_child(self, config: Any, tags: dict[str, str] | None = None, **kwargs: Any) -> Run:
        return self.experiment.submit(config, tags, parent_id=self._ours.id, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _IN_SCRIPT:
            raise UserErrorException(f"Run.{name} is for the run's own script: Run.get_context().{name}(…) there.")
        if name in _NOT_YET:
            raise NotYetException(f"Run.{name} is not there yet.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        data = self._ours.data
        return f"Run(Experiment: {data['experiment']},\nId: {self.id},\nType: {self.type},\nStatus: {data['status']})"

    def _repr_html_(self) -> str:
        return self._ours._repr_html_()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other._ours.id == self._ours.id

    def __hash__(self) -> int:
        return hash(self._ours.id)


class ScriptRun(Run):
    """What `experiment.submit` gives for a script."""


class InteractiveRun(Run):
    """What `experiment.start_logging` gives: this program logs into it as a script does into its own run."""

    @classmethod
    def _with(cls, workspace: Workspace, live: Live, outputs: Any = None) -> Self:
        made = cls._of(workspace, live.run)
        made._live, made._outputs = live, outputs
        return made

    _live: Live
    _outputs: Any

    def child_run(self, name: str | None = None, run_id: str | None = None, outputs: Any = None) -> InteractiveRun:
        return InteractiveRun._with(self._workspace, self._live._child(name or "", {}))

    def create_children(
        self, count: int | None = None, tag_key: str | None = None, tag_values: Sequence[Any] | None = None
    ) -> Sequence[InteractiveRun]:
        made = self._live.create_children(count, tag_key, [*tag_values] if tag_values is not None else None)
        return [InteractiveRun._with(self._workspace, live) for live in made]  # type: ignore[arg-type]

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        self._live.set_tags(tags)

    def get_tags(self) -> dict[str, str]:
        self._live.flush()
        return super().get_tags()

    def get_metrics(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._live.flush()
        return super().get_metrics(*args, **kwargs)

    def get_file_names(self) -> Sequence[str]:
        self._live.flush()
        return super().get_file_names()

    def register_model(self, model_name: str, model_path: str | None = None, *args: Any, **kwargs: Any) -> Any:
        self._live.flush()
        return super().register_model(model_name, model_path, *args, **kwargs)

    @as_first_sdk()
    def complete(self, _set_status: bool = True) -> None:
        if isinstance(self._outputs, str) and os.path.isdir(self._outputs):
            self._live.upload_folder("outputs", self._outputs)
        self._live.complete()

    @as_first_sdk()
    def fail(self, error_details: Any = None, error_code: str | None = None) -> None:
        self._live.fail(error_details, error_code)

    @as_first_sdk()
    def cancel(self) -> None:
        self._live.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.complete()
        else:
            self.fail(error_details=error, error_code=kind.__name__)

    def __getattr__(self, name: str) -> Any:
        if name in _IN_SCRIPT:
            return getattr(self._live, name)
        return super().__getattr__(name)


#: What only the script itself may do.
_IN_SCRIPT = frozenset({
    "log", "log_list", "log_row", "log_table", "log_image", "log_confusion_matrix", "log_accuracy_table",
    "log_residuals", "log_predictions", "child_run", "create_children", "complete", "fail", "flush", "get_secret",
    "get_secrets", "upload_file", "upload_files", "upload_folder", "add_properties", "input_datasets", "start",
})  # fmt: skip
_NOT_YET = frozenset({"take_snapshot", "clean", "get_submitted_run", "list_by_compute", "add_type_provider"})


def get_run(experiment: Experiment, run_id: str, rehydrate: bool = True, clean_up: bool = True) -> Run:
    return Run(experiment, run_id)


def _family(ours: Ours) -> list[Ours]:
    return [ours, *(one for child in ours.children() for one in _family(child))]
