"""`azureml.core.model`: registered models."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from shunter.azureml._places import NAMES, place
from shunter.azureml.exceptions import (
    ModelNotFoundException,
    NotYetException,
    UserErrorException,
    WebserviceException,
    as_first_sdk,
)
from shunter.errors import NotFound
from shunter.sdk.models import Model as Ours

if TYPE_CHECKING:
    from shunter.azureml.core.run import Run
    from shunter.azureml.core.workspace import Workspace

__all__ = ["InferenceConfig", "Model"]

InferenceConfig = place("InferenceConfig")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9\-._]{0,254}")
#: What the first SDK keeps of a model and ours has no place for is kept among its tags, under these names.
_PROPERTY, _FRAMEWORK, _FRAMEWORK_VERSION = "azureml.property.", "azureml.framework", "azureml.framework_version"


class Model:
    """One version of a registered model: the newest, unless a version is said."""

    class Framework:
        """Names of frameworks."""

        CUSTOM, SCIKITLEARN, TENSORFLOW, ONNX, PYTORCH = "Custom", "ScikitLearn", "TensorFlow", "Onnx", "PyTorch"

    def __init__(
        self, workspace: Workspace, name: str | None = None, id: str | None = None,
        tags: list[Any] | Mapping[str, str] | None = None, properties: list[Any] | Mapping[str, str] | None = None,
        version: int | None = None, run_id: str | None = None, model_framework: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        if id:
            name, _, number = id.rpartition(":")
            version = int(number)
        if not name:
            raise WebserviceException("Say the name of the model, or its id.")
        listed = Model.list(workspace, name, tags, properties, run_id)
        found = [model for model in listed if version in (None, model.version)]
        if not found:
            which = f"{name}:{version}" if version else name
            raise WebserviceException(f"ModelNotFound: Model with name {which} not found in provided workspace")
        self.workspace, self._ours = workspace, found[0]._ours

    @classmethod
    def _of(cls, workspace: Workspace, ours: Ours) -> Self:
        made = object.__new__(cls)
        made.workspace, made._ours = workspace, ours
        return made

    workspace: Workspace
    _ours: Ours

    @staticmethod
    @as_first_sdk(WebserviceException)
    def list(
        workspace: Workspace, name: str | None = None, tags: Any = None, properties: Any = None,
        run_id: str | None = None, latest: bool = False, **kwargs: Any,
    ) -> list[Model]:  # fmt: skip
        """The newest first. `tags` and `properties` are lists of keys, `[key, value]` pairs, or a dict."""
        models = workspace._ours.models
        try:
            names = [name] if name else [model.name for model in models.list()]
            found = [version for one in names for version in (models.versions(one)[:1] if latest else models.versions(one))]
        except NotFound:
            return []
        wanted = workspace._ours.run(run_id).id if run_id else None
        made = [Model._of(workspace, ours) for ours in found if wanted in (None, ours.run_id)]
        return [m for m in made if _has(m.tags, tags) and _has(m.properties, properties)]

    @staticmethod
    def register(
        workspace: Workspace, model_path: str | os.PathLike[str], model_name: str, tags: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None, description: str | None = None, datasets: Any = None,
        model_framework: str | None = None, model_framework_version: str | None = None, child_paths: Any = None,
        **kwargs: Any,
    ) -> Model:  # fmt: skip
        """Register a file or a folder of this machine as a model."""
        if not os.path.exists(model_path):
            raise WebserviceException(f"Error, provided model path {os.fspath(model_path)!r} could not be found here.")
        kept = _kept(model_name, tags, properties, model_framework, model_framework_version)
        with as_first_sdk():
            ours = workspace._ours.models.register(path=model_path, name=model_name, tags=kept, description=description or "")
        return Model._of(workspace, ours)

    @staticmethod
    def get_model_path(model_name: str, version: int | None = None, _workspace: Workspace | None = None) -> str:
        """Its files on this machine, below `azureml-models/`; brought here when they are not."""
        from shunter.azureml.core.workspace import Workspace

        try:
            model = Model(_workspace or Workspace.from_config(), model_name, version=version)
        except WebserviceException as error:
            raise ModelNotFoundException(error.message) from error
        folder = Path("azureml-models") / model.name / str(model.version)
        there = sorted(folder.iterdir()) if folder.is_dir() else []
        return str(there[0]) if len(there) == 1 else str(folder) if there else model.download(folder)

    @property
    def name(self) -> str:
        return self._ours.name

    @property
    def version(self) -> int:
        return self._ours.version

    @property
    def id(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def url(self) -> str:
        return self._ours.uri

    @property
    def description(self) -> str:
        return str(self._ours.data.get("description") or "")

    @property
    def created_time(self) -> Any:
        return self._ours.data.get("created_at")

    @property
    def tags(self) -> dict[str, str]:
        return {k: v for k, v in self._ours.tags.items() if not k.startswith("azureml.")}

    @property
    def properties(self) -> dict[str, str]:
        return {k[len(_PROPERTY) :]: v for k, v in self._ours.tags.items() if k.startswith(_PROPERTY)}

    @property
    def model_framework(self) -> str | None:
        return self._ours.tags.get(_FRAMEWORK)

    @property
    def model_framework_version(self) -> str | None:
        return self._ours.tags.get(_FRAMEWORK_VERSION)

    @property
    def run(self) -> Run | None:
        from shunter.azureml.core.run import Run

        found = self._ours.run
        return Run._of(self.workspace, found) if found is not None else None

    @property
    def run_id(self) -> str | None:
        return self.run.id if self.run is not None else None

    @as_first_sdk(WebserviceException)
    def download(self, target_dir: str | os.PathLike[str] = ".", exist_ok: bool = False, exists_ok: bool | None = None) -> str:
        """Write its file or folder into `target_dir`; the path of what was written."""
        folder = Path(target_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".model-") as stage:
            written = self._ours.download(stage)
            kept = self._ours.folder_name
            if kept:  # a folder keeps its name
                written.rename(written.with_name("." + kept))
                (Path(stage) / "in").mkdir()
                written = (Path(stage) / ("." + kept)).rename(Path(stage) / "in" / kept).parent
            parts = sorted(written.iterdir())
            taken = [p.name for p in parts if (folder / p.name).exists()]
            if taken and not (exist_ok or exists_ok):
                raise WebserviceException(f"{folder / taken[0]} is there already. Say exist_ok=True to replace it.")
            for one in parts:
                if one.name in taken:
                    _remove(folder / one.name)
                shutil.move(one, folder / one.name)
        return str(folder / parts[0].name) if len(parts) == 1 else str(folder)

    @as_first_sdk(WebserviceException)
    def delete(self) -> None:
        self._ours.delete()

    @staticmethod
    def deploy(*args: Any, **kwargs: Any) -> Any:
        raise NotYetException(f"Model.deploy is not there. {NAMES['Webservice']}")

    def serialize(self) -> dict[str, Any]:
        names = ("name", "id", "version", "tags", "properties", "description", "url")
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        return f"Model(name={self.name}, id={self.id}, version={self.version}, tags={self.tags}, properties={self.properties})"


def _register_from_run(
    run: Run, name: str, path: str | None, *, tags: Mapping[str, Any] | None, properties: Mapping[str, Any] | None,
    description: str | None, model_framework: str | None, model_framework_version: str | None,
) -> Model:  # fmt: skip
    kept = _kept(name, tags, properties, model_framework, model_framework_version)
    inner = os.path.normpath(path or name)
    if os.path.isabs(inner) or inner.startswith(".."):
        raise UserErrorException(f"{path} is not a path among the run's files.")
    with as_first_sdk():
        ours = run._workspace._ours.models.register(run._ours, inner, name, tags=kept, description=description or "")
    return Model._of(run._workspace, ours)


def _kept(
    name: Any, tags: Mapping[str, Any] | None, properties: Mapping[str, Any] | None, framework: str | None, version: str | None
) -> dict[str, str]:
    """What is kept of a model among its tags."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WebserviceException(f"{name!r} cannot be the name of a model: letters, digits, '-', '.' and '_', at most 255.")
    kept = {str(k): str(v) for k, v in (tags or {}).items()}
    kept |= {_PROPERTY + str(k): str(v) for k, v in (properties or {}).items()}
    return kept | {k: v for k, v in ((_FRAMEWORK, framework), (_FRAMEWORK_VERSION, version)) if v}


def _has(found: Mapping[str, str], wanted: Any) -> bool:
    if not wanted:
        return True
    if isinstance(wanted, Mapping):
        wanted = list(wanted.items())
    pairs = [(one, None) if isinstance(one, str) else tuple(one) for one in wanted]
    return all(key in found and value in (None, found[key]) for key, value in pairs)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
