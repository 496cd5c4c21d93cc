"""Registered models of a workspace: `run.register_model("digits", "outputs/model")`, `ws.models.get("digits").download()`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import ExtraMissing, UsageError
from shunter.sdk.client import part

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace


class Model:
    """One version of a registered model."""

    def __init__(self, workspace: Workspace, data: dict[str, Any]) -> None:
        self.workspace = workspace
        self.data = data

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def version(self) -> int:
        return int(self.data["version"] or 0)

    @property
    def run_id(self) -> str | None:
        found: str | None = self.data["run_id"]
        return found

    @property
    def run(self) -> Run | None:
        """The run that it was made by; None when it is not ours."""
        return self.workspace.run(self.run_id) if self.run_id else None

    @property
    def tags(self) -> dict[str, str]:
        return dict(self.data["tags"])

    @property
    def aliases(self) -> list[str]:
        return list(self.data["aliases"])

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of its run when it was registered."""
        return dict(self.data["metrics"])

    @property
    def uri(self) -> str:
        """What MLflow's functions take: `models:/NAME/VERSION`."""
        return str(self.data["uri"])

    @property
    def folder_name(self) -> str:
        """The name of the folder it was registered from; empty when it was a file, or a model that MLflow logged."""
        return str(self.data.get("folder") or "")

    def files(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.workspace.client.get(f"{self._path}/files", version=self.data["version"])
        return found

    def download(self, output: str | os.PathLike[str] = ".") -> Path:
        """Write its files below `output`/NAME and return that folder."""
        base = Path(output) / self.name
        for entry in self.files():
            target = base / entry["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(target.name + ".part")
            address = f"{self._path}/files/{'/'.join(map(part, entry['path'].split('/')))}"
            with temporary.open("wb") as file:
                for piece in self.workspace.client.stream(address, {"version": self.data["version"]}):
                    file.write(piece)
            temporary.replace(target)
        return base

    def differences(self) -> dict[str, tuple[str, str | None]]:
        """Packages that the model asks for and that are not so here: name → (asked for, installed or None)."""
        for entry in self.files():
            if entry["path"].rpartition("/")[2] == "requirements.txt":
                address = f"{self._path}/files/{'/'.join(map(part, entry['path'].split('/')))}"
                pieces = self.workspace.client.stream(address, {"version": self.data["version"]})
                return differing(b"".join(pieces).decode("utf-8", "replace").splitlines())
        return {}

    def load(self) -> Any:
        """The model, ready to predict (`mlflow.pyfunc`). When that fails, the error names the packages that differ."""
        try:
            import mlflow
        except ImportError as error:
            raise ExtraMissing("Loading a model needs MLflow.", hint="pip install 'shunter[mlflow]'") from error
        mlflow.set_tracking_uri(self.workspace.mlflow_tracking_uri)
        try:
            return mlflow.pyfunc.load_model(self.uri)
        except Exception as error:
            found = self.differences()
            if found:
                words = ", ".join(f"{k} ({v[1] or 'not installed'}, the model has {v[0]})" for k, v in found.items())
                error.add_note(f"This environment differs from the model's: {words}.")
            raise

    def delete(self) -> None:
        """Delete this version."""
        self.workspace.client.call("DELETE", self._path, query={"version": self.data["version"]})

    @property
    def _path(self) -> str:
        return f"{self.workspace.path}/models/{part(self.name)}"

    def __repr__(self) -> str:
        return f"Model({self.name!r}, version {self.data['version']})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        return html_table({k: self.data.get(k) for k in ("name", "version", "run_id", "aliases", "metrics", "created_at")})


class Models:
    """The models of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def register(
        self, run: Run | str | None = None, path: str | os.PathLike[str] = "", name: str = "", *,
        tags: Mapping[str, Any] | None = None, description: str = "", aliases: Sequence[str] = (),
    ) -> Model:  # fmt: skip
        """A new version of `name` from a run's files at `path`: a folder, a file, or the name of a logged model.

        Without a run, `path` is a folder or a file here: `ws.models.register(path="model", name="digits")`.
        """
        body: dict[str, Any] = {
            "name": name, "path": os.fspath(path), "description": description, "aliases": list(aliases),
            "tags": {k: str(v) for k, v in (tags or {}).items()},
        }  # fmt: skip
        if run is None:
            body["upload"], body["path"] = self._upload(Path(path), name)
        else:
            body["run_id"] = self.workspace.run(run).id if isinstance(run, str) else run.id
        return Model(self.workspace, self.workspace.client.post(self._path, body))

    def _upload(self, path: Path, name: str) -> tuple[str, str]:
        """Send a file, or all files of a folder; which upload that is, and the path in it."""
        if not name or not (path.is_file() or path.is_dir()):
            raise UsageError(
                f"There is no file or folder {os.fspath(path)!r} here to register." if name else "The model needs a name.",
                hint="What a run made is registered with `run.register_model(name, path)`.",
            )
        path = path.resolve()
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        if not found:
            raise UsageError(f"{path} has no files.")
        upload = uuid.uuid4().hex
        for file in found:
            inner = file.relative_to(path.parent).as_posix()
            address = f"{self._path}/uploads/{upload}/{'/'.join(map(part, inner.split('/')))}"
            self.workspace.client.raw("PUT", address, _pieces(file), timeout=3600)
        return upload, path.name

    def list(self) -> Sequence[Model]:
        """The newest version of each."""
        return [Model(self.workspace, data) for data in self.workspace.client.get(self._path)]

    def versions(self, name: str) -> Sequence[Model]:
        """All versions, the newest first."""
        return [Model(self.workspace, data) for data in self.workspace.client.get(f"{self._path}/{part(name)}/versions")]

    def get(self, name: str, version: int | str | None = None) -> Model:
        """A version by its number or alias; the newest when neither is given."""
        return Model(self.workspace, self.workspace.client.get(f"{self._path}/{part(name)}", version=version))

    def download(self, name: str, version: int | str | None = None, output: str | os.PathLike[str] = ".") -> Path:
        return self.get(name, version).download(output)

    def delete(self, name: str, version: int | str | None = None) -> None:
        """Delete a version, or the model with all of them."""
        self.workspace.client.call("DELETE", f"{self._path}/{part(name)}", query={"version": version})

    @property
    def _path(self) -> str:
        return f"{self.workspace.path}/models"


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while piece := opened.read(1 << 20):
            yield piece


def differing(requirements: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Pinned requirements (`name==version`) that this interpreter does not have so."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, tuple[str, str | None]] = {}
    for line in requirements:
        name, pinned, wanted = line.partition(";")[0].strip().partition("==")
        if not pinned:
            continue
        try:
            here: str | None = version(name.partition("[")[0].strip())
        except PackageNotFoundError:
            here = None
        if here != wanted.strip():
            found[name.strip()] = (wanted.strip(), here)
    return found
