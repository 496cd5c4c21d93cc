"""`azureml.core.workspace`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.azureml.exceptions import NotYetException, UserErrorException, WorkspaceException, as_first_sdk
from shunter.sdk.workspace import Workspace as Ours

if TYPE_CHECKING:
    from shunter.azureml.core.compute import ComputeTarget
    from shunter.azureml.core.environment import Environment
    from shunter.azureml.core.experiment import Experiment
    from shunter.azureml.core.run import Run

#: Looked for in a folder and in every one above it, in this order.
_FILES = tuple(f"{folder}{name}" for name in ("config.json", "project.json") for folder in (".azureml/", "aml_config/", ""))
_NOWHERE = {"subscription_id": "00000000-0000-0000-0000-000000000000", "resource_group": "shunter", "location": "here"}


class Workspace:
    """The way in. `subscription_id`, `resource_group` and `location` are kept as they were given: nothing depends on them."""

    DEFAULT_CPU_CLUSTER_NAME = "cpu-cluster"
    DEFAULT_GPU_CLUSTER_NAME = "gpu-cluster"

    def __init__(
        self, subscription_id: str | None = None, resource_group: str | None = None, workspace_name: str | None = None,
        auth: Any = None, sku: str = "basic", tags: dict[str, str] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        with as_first_sdk(WorkspaceException):
            self._ours = Ours.get(workspace_name or "default")
        self._said = {"subscription_id": subscription_id, "resource_group": resource_group}

    @classmethod
    def _of(cls, ours: Ours, **said: str | None) -> Workspace:
        made = cls.__new__(cls)
        made._ours, made._said = ours, dict(said)
        return made

    @staticmethod
    def from_config(path: str | os.PathLike[str] | None = None, auth: Any = None, **kwargs: Any) -> Workspace:
        """The workspace that a `config.json` names, looked for here and above; without one, the default workspace."""
        found = _find(Path(path) if path is not None else None)
        if found is None:
            with as_first_sdk(WorkspaceException):
                return Workspace._of(Ours.get("default"))
        file, content = found
        name = content.get("workspace_name") or content.get("workspace")
        if not name and content.get("Scope"):
            name = str(content["Scope"]).rstrip("/").split("/")[-1]
        if not name:
            raise UserErrorException(f'{file} names no workspace. It holds {{"workspace_name": "NAME"}}.')
        with as_first_sdk(WorkspaceException):
            ours = Ours.create(str(name), exist_ok=True)
        return Workspace._of(ours, **{k: str(content[k]) for k in _NOWHERE if content.get(k)})

    @staticmethod
    def create(
        name: str, auth: Any = None, subscription_id: str | None = None, resource_group: str | None = None,
        location: str | None = None, create_resource_group: bool = True, sku: str = "basic",
        tags: dict[str, str] | None = None, friendly_name: str | None = None, exist_ok: bool = False,
        show_output: bool = True, **kwargs: Any,
    ) -> Workspace:  # fmt: skip
        """Make a workspace. What is said about storage, keys and networks is accepted: ours has its own."""
        with as_first_sdk(WorkspaceException):
            ours = Ours.create(name, exist_ok=exist_ok)
            said = {"subscription_id": subscription_id, "resource_group": resource_group, "location": location}
            ours.settings(azureml={k: v for k, v in said.items() if v} or None)
        return Workspace._of(ours)

    @staticmethod
    def get(
        name: str, auth: Any = None, subscription_id: str | None = None, resource_group: str | None = None,
        location: str | None = None, cloud: str = "AzureCloud", id: str | None = None,
    ) -> Workspace:  # fmt: skip
        return Workspace(subscription_id, resource_group, name, auth)

    @staticmethod
    def list(
        subscription_id: str | None = None, auth: Any = None, resource_group: str | None = None
    ) -> dict[str, list[Workspace]]:
        """Name → a list of one."""
        with as_first_sdk(WorkspaceException):
            return {name: [Workspace._of(Ours.get(name))] for name in Ours.list()}

    @property
    def name(self) -> str:
        return self._ours.name

    @property
    def subscription_id(self) -> str:
        return self._word("subscription_id")

    @property
    def resource_group(self) -> str:
        return self._word("resource_group")

    @property
    def location(self) -> str:
        return self._word("location")

    @property
    def sku(self) -> str:
        return "basic"

    @property
    def tags(self) -> dict[str, str]:
        return {}

    @property
    def compute_targets(self) -> dict[str, ComputeTarget]:
        from shunter.azureml.core.compute import ComputeTarget

        return {target.name: target for target in ComputeTarget.list(self)}

    @property
    def experiments(self) -> dict[str, Experiment]:
        from shunter.azureml.core.experiment import Experiment

        with as_first_sdk():
            return {name: Experiment(self, name) for name in self._ours.experiments}

    @property
    def environments(self) -> dict[str, Environment]:
        from shunter.azureml.core.environment import Environment

        return Environment.list(self)

    @property
    def models(self) -> dict[str, Any]:
        from shunter.azureml.core.model import Model

        return {model.name: model for model in reversed(Model.list(self, latest=True))}

    @property
    def datasets(self) -> dict[str, Any]:
        """None yet."""
        return {}

    @property
    def datastores(self) -> dict[str, Any]:
        """None yet."""
        return {}

    @property
    def webservices(self) -> dict[str, Any]:
        """None: Shunter trains."""
        return {}

    def get_default_datastore(self) -> Any:
        from shunter.azureml._places import NAMES

        raise NotYetException(f"Datastores are not there yet. {NAMES['Dataset']}")

    def get_default_keyvault(self) -> Any:
        from shunter.azureml._places import NAMES

        raise NotYetException(f"Key vaults are not there. {NAMES['Keyvault']}")

    def get_default_compute_target(self, type: str) -> Any:
        """The target of the agreed name for `CPU` or `GPU`; None when there is none."""
        return self.compute_targets.get(f"{type.lower()}-cluster")

    def get_mlflow_tracking_uri(self) -> str:
        """For `mlflow.set_tracking_uri`."""
        return self._ours.mlflow_tracking_uri

    def get_details(self) -> dict[str, Any]:
        return {
            "id": self._path, "name": self.name, "location": self.location, "workspaceid": self.name, "tags": self.tags,
            "type": "Microsoft.MachineLearningServices/workspaces", "discoveryUrl": self._ours.client.url,
        }  # fmt: skip

    @as_first_sdk()
    def get_run(self, run_id: str) -> Run:
        from shunter.azureml.core.run import Run

        return Run._of(self, self._ours.run(run_id))

    def write_config(self, path: str | os.PathLike[str] | None = None, file_name: str | None = None) -> None:
        """Write `.azureml/config.json` (or into an existing `aml_config/`), so that `from_config` below finds it."""
        folder = Path(path or ".")
        home = folder / "aml_config" if (folder / "aml_config").is_dir() else folder / ".azureml"
        home.mkdir(parents=True, exist_ok=True)
        names = {"subscription_id": self.subscription_id, "resource_group": self.resource_group, "workspace_name": self.name}
        (home / (file_name or "config.json")).write_text(json.dumps(names, indent=4) + "\n", "utf-8")

    def delete(self, delete_dependent_resources: bool = False, no_wait: bool = False) -> None:
        raise NotYetException("Workspaces cannot be deleted yet. Remove the server's SHUNTER_HOME to remove all of it.")

    @property
    def _path(self) -> str:
        return (f"/subscriptions/{self.subscription_id}/resourceGroups/{self.resource_group}"
                f"/providers/Microsoft.MachineLearningServices/workspaces/{self.name}")  # fmt: skip

    def _word(self, name: str) -> str:
        """Never empty: programs join these."""
        said = self._said.get(name)
        if not said:
            with as_first_sdk():
                said = (self._ours.settings().get("azureml") or {}).get(name)
            self._said[name] = said = said or _NOWHERE[name]
        return str(said)

    def __repr__(self) -> str:
        return (f"Workspace.create(name={self.name!r}, subscription_id={self.subscription_id!r}, "
                f"resource_group={self.resource_group!r})")  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and (other.name, other._ours.client.url) == (self.name, self._ours.client.url)

    def __hash__(self) -> int:
        return hash(self.name)


def _find(path: Path | None) -> tuple[Path, dict[str, Any]] | None:
    """The file and what it holds. A bare `config.json` may be anything: it counts when it names a workspace."""
    if path is not None and path.is_file():
        return path, _read(path)
    start = (path or Path.cwd()).absolute()
    for folder in (start, *start.parents):
        for name in (".shunter/config.json", *_FILES):
            file = folder / name
            if file.is_file():
                content = _read(file) if "/" in name else _read_quietly(file)
                if "/" in name or content.keys() & {"workspace_name", "Scope"}:
                    return file, content
    if path is not None:
        raise UserErrorException(f"There is no config.json in {path} or above it. `ws.write_config()` writes one.")
    return None


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserErrorException(f"{file} cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise UserErrorException(f"{file} holds no names.")
    return content


def _read_quietly(file: Path) -> dict[str, Any]:
    try:
        return _read(file)
    except UserErrorException:
        return {}


