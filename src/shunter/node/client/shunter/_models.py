"""Registered models inside a run: register what the script made, find what others registered, bring it here."""

from __future__ import annotations

import os

from . import _relay, _uploads
from ._errors import RunUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .run import Run

#: MLflow, which keeps the models, may have to be started for it.
PATIENCE_SECONDS = 300.0
#: Where models lie that a script asks for by name.
FOLDER = "azureml-models"


class Model:
    """One version of a registered model, as its server knows it."""

    def __init__(self, data):
        # type: (Dict[str, Any]) -> None
        self.data = data
        self.name = str(data["name"])
        self.version = int(data["version"] or 0)
        self.id = self.name + ":" + str(self.version)
        self.tags = dict(data.get("tags") or {})
        self.description = str(data.get("description") or "")
        self.run_id = data.get("run_id")

    def download(self, target_dir=".", exist_ok=False, exists_ok=None):
        # type: (str, bool, Optional[bool]) -> str
        """Write its file or folder into `target_dir`; the path of what was written."""
        found = _ask("model_files", {"name": self.name, "version": self.version})
        files, kept = found["files"], found["folder"]
        target_dir = str(target_dir)
        tops = [kept] if kept else sorted({path.split("/")[0] for path, _ in files})
        taken = [top for top in tops if os.path.exists(os.path.join(target_dir, top))]
        if taken and not (exist_ok or exists_ok):
            raise RunUsageError(os.path.join(target_dir, taken[0]) + " is there already. Say exist_ok=True to replace it.")
        for path, size in files:
            self._fetch(path, size, os.path.join(target_dir, kept, _uploads.clean_path(path)))
        return os.path.join(target_dir, tops[0]) if len(tops) == 1 else target_dir

    def _fetch(self, path, size, target):
        # type: (str, int, str) -> None
        import base64

        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        with open(target + ".part", "wb") as file:
            while file.tell() < size:
                about = {"name": self.name, "version": self.version, "path": path, "offset": file.tell()}
                piece = base64.b64decode(_ask("model_file", about)["data"])
                if not piece:
                    raise RunUsageError(self.id + ": " + path + " was cut short.")
                file.write(piece)
        os.replace(target + ".part", target)

    def __repr__(self) -> str:
        return "Model(name=" + self.name + ", id=" + self.id + ", version=" + str(self.version) + ")"


def find(name, version=None):
    # type: (str, Any) -> Model
    """A version by its number or alias; the newest when none is said."""
    return Model(_ask("models", {"name": name, "version": None if version is None else str(version)})["models"][0])


def listed(name=None):
    # type: (Optional[str]) -> List[Model]
    """All versions of a model, the newest first; without a name the newest of each."""
    return [Model(one) for one in _ask("models", {"name": name, "all": True})["models"]]


def path_of(name, version=None):
    # type: (str, Any) -> str
    """The files of a model on this machine, below `azureml-models/`; brought here when they are not."""
    model = find(name, version)
    folder = os.path.join(FOLDER, model.name, str(model.version))
    there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if any(one.endswith(".part") for one in there) or not there:
        return model.download(folder, exist_ok=True)
    return os.path.join(folder, there[0]) if len(there) == 1 else folder


def register(run, name, path, tags=None, description=""):
    # type: (Run, str, str, Optional[Mapping[str, Any]], str) -> Model
    """A new version of a model of the run's files at `path`. What lies there now is uploaded first."""
    inner = _uploads.clean_path(path if not os.path.isabs(path) else os.path.basename(path))
    if os.path.isdir(path):
        run.upload_folder(inner, path)
    elif os.path.isfile(path):
        run.upload_file(inner, path)
    run.flush()
    about = {"run": run.id, "name": name, "path": inner, "description": description or ""}
    return Model(_ask("register_model", dict(about, tags={str(k): str(v) for k, v in (tags or {}).items()}))["model"])


def _ask(name, body):
    # type: (str, Dict[str, Any]) -> Any
    return _relay.ask(name, body, timeout_seconds=PATIENCE_SECONDS)
