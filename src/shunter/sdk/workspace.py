"""A workspace: the way in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import ConfigError, NotFound
from shunter.sdk.client import Client, part
from shunter.sdk.connect import connect

if TYPE_CHECKING:
    from shunter.sdk.compute import Computes
    from shunter.sdk.environment import Environment
    from shunter.sdk.environments import Environments
    from shunter.sdk.experiment import Experiment
    from shunter.sdk.models import Models
    from shunter.sdk.run import Run
    from shunter.sdk.secrets import Secrets

CONFIG_FILES = (".shunter/config.json", "config.json", ".azureml/config.json", "aml_config/config.json")


class Workspace:
    """Holds everything: experiments, runs, compute targets.

    >>> ws = Workspace.from_config()                                    # doctest: +SKIP
    >>> ws.submit("train.py").wait(show_output=True)                    # doctest: +SKIP
    """

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client

    @classmethod
    def from_config(cls, path: str | os.PathLike[str] | None = None) -> Workspace:
        """The workspace that a `config.json` names, looked for here and above; without one, the default workspace."""
        found = _find_config(Path(path) if path is not None else None)
        name = "default"
        if found is not None:
            try:
                settings = json.loads(found.read_text())
                name = str(settings.get("workspace") or settings.get("workspace_name") or name)
            except (OSError, ValueError, AttributeError) as error:
                raise ConfigError(f"{found} cannot be read: {error}.", hint='It holds {"workspace": "NAME"}.') from error
        return cls.get(name) if name == "default" else cls.create(name, exist_ok=True)

    @classmethod
    def create(cls, name: str, exist_ok: bool = False) -> Workspace:
        client = connect()
        client.post("/api/v1/workspaces", {"name": name, "exist_ok": exist_ok})
        return cls(name, client)

    @classmethod
    def get(cls, name: str = "default") -> Workspace:
        client = connect()
        client.get(f"/api/v1/workspaces/{part(name)}")
        return cls(name, client)

    @classmethod
    def list(cls) -> list[str]:
        return [w["name"] for w in connect().get("/api/v1/workspaces")]

    @property
    def path(self) -> str:
        """The workspace's address on its server."""
        return f"/api/v1/workspaces/{part(self.name)}"

    @property
    def compute(self) -> Computes:
        """The compute targets: `ws.compute.list()`, `ws.compute.create(name, kind=…)`."""
        from shunter.sdk.compute import Computes

        return Computes(self)

    @property
    def environments(self) -> Environments:
        """The environments: `ws.environments.register(environment)`, `get(name)`, `list()`, `curated()`, `lock(…)`."""
        from shunter.sdk.environments import Environments

        return Environments(self)

    @property
    def secrets(self) -> Secrets:
        """The secrets: `ws.secrets.set(name, value)`, `list()`, `delete(name)`."""
        from shunter.sdk.secrets import Secrets

        return Secrets(self)

    @property
    def models(self) -> Models:
        """The registered models: `ws.models.register(run, path, name)`, `list()`, `get(name)`, `download(name)`."""
        from shunter.sdk.models import Models

        return Models(self)

    @property
    def mlflow_tracking_uri(self) -> str:
        """Where MLflow's clients find this server: `mlflow.set_tracking_uri(ws.mlflow_tracking_uri)`.

        They take the token from MLFLOW_TRACKING_TOKEN, which is set in this process.
        """
        os.environ["MLFLOW_TRACKING_TOKEN"] = self.client.token
        return self.client.url + "/mlflow"

    def compare(self, *runs: Run | str) -> dict[str, Any]:
        """What differs between runs: code, environment, arguments, metrics, time, cost."""
        from shunter.sdk.compare import compare

        return compare([self.run(r) if isinstance(r, str) else r for r in runs])

    def collect_garbage(self, *, dry_run: bool = True, **options: Any) -> dict[str, Any]:
        """Free what nothing refers to any more; with `dry_run`, only tell what that would be."""
        found: dict[str, Any] = self.client.post("/api/v1/garbage", {"dry_run": dry_run, **options})
        return found

    @property
    def experiments(self) -> dict[str, Experiment]:
        from shunter.sdk.experiment import Experiment

        return {e["name"]: Experiment(self, e["name"]) for e in self.client.get(f"{self.path}/experiments")}

    def submit(
        self,
        script: str,
        *,
        source_directory: str | os.PathLike[str] = ".",
        arguments: Sequence[Any] = (),
        target: str | Any = None,
        environment: Environment | str | None = None,
        experiment: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Run:
        """Freeze the folder, send what the server lacks, start the run. `options` are those of `RunConfiguration`."""
        from shunter.sdk.submit import submit

        return submit(
            self, script, source_directory=source_directory, arguments=arguments, target=target,
            environment=environment, experiment=experiment, name=name, **options,
        )  # fmt: skip

    def run(self, run_id: str) -> Run:
        """A run by its id, the beginning of it, or its name."""
        from shunter.sdk.run import Run

        return Run(self, self.client.get(f"{self.path}/find/{part(run_id)}"))

    def runs(
        self, *, experiment: str | None = None, target: str | None = None, status: str | None = None,
        tags: Mapping[str, str] | None = None, limit: int = 50, before: float | None = None, parent: str | None = None,
    ) -> Sequence[Run]:  # fmt: skip
        """The newest runs first."""
        from shunter.sdk.run import Run

        tag = next((f"{k}={v}" for k, v in (tags or {}).items()), None)
        found = self.client.get(f"{self.path}/runs", experiment=experiment, target=target, status=status, tag=tag,
                                limit=limit, before=before, parent=parent)  # fmt: skip
        return [Run(self, data) for data in found]

    def wait(self, runs: Iterable[Run]) -> Sequence[Run]:
        """Wait until all of these are over; one call waits for many."""
        todo = {run.id: run for run in runs}
        done = dict(todo)
        while todo:
            for data in self.client.post("/api/v1/runs/wait", {"ids": list(todo), "wait": 50}):
                todo.pop(data["id"]).data = data
        return list(done.values())

    def write_config(self, path: str | os.PathLike[str] = ".") -> Path:
        """Write `.shunter/config.json`, so that `from_config` below that folder finds this workspace."""
        file = Path(path) / ".shunter" / "config.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"workspace": self.name}, indent=2) + "\n")
        return file

    def settings(self, **changes: Any) -> dict[str, Any]:
        """The workspace's settings; those given are changed (None removes one)."""
        if changes:
            self.client.call("PATCH", f"{self.path}/settings", changes)
        found: dict[str, Any] = self.client.get(self.path)["settings"]
        return found

    def __repr__(self) -> str:
        return f"Workspace({self.name!r}, {self.client.url!r})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        return html_table({"workspace": self.name, "server": self.client.url})


def _find_config(path: Path | None) -> Path | None:
    if path is not None:
        if path.is_file():
            return path
        for name in CONFIG_FILES:
            if (path / name).is_file():
                return path / name
        raise NotFound(f"There is no config.json in {path}.", hint="`ws.write_config()` writes one.")
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in CONFIG_FILES:
            # A bare config.json may be anything; ours sits in a folder of its own.
            if name != "config.json" and (folder / name).is_file():
                return folder / name
    return None
