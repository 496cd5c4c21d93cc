"""Compute targets: created or attached, then used by name. Generic over their kinds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import ConfigError, ServerUnreachable, from_wire
from shunter.sdk.client import part

if TYPE_CHECKING:
    from shunter.sdk.workspace import Workspace


class Compute:
    """A compute target as of the last look."""

    def __init__(self, workspace: Workspace, data: dict[str, Any]) -> None:
        self.workspace = workspace
        self.data = data

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def state(self) -> str:
        return str(self.data["state"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.data["config"])

    @property
    def path(self) -> str:
        return f"{self.workspace.path}/computes/{part(self.name)}"

    def show(self) -> dict[str, Any]:
        """All about it: options, hardware, room, who runs there."""
        found: dict[str, Any] = self.workspace.client.get(self.path)
        return found

    def probe(self) -> Compute:
        """Reach out to it and look at its hardware."""
        self.data = self.workspace.client.post(self.path + "/probe")
        return self

    def update(self, **config: Any) -> Compute:
        """Change options; None takes one away."""
        config = with_contents(self.workspace, self.kind, config)
        self.data = self.workspace.client.call("PATCH", self.path, {"config": config})
        return self

    def delete(self, force: bool = False) -> None:
        """Delete or detach it. Refused while runs are there, unless `force`: they are canceled then."""
        self.workspace.client.call("DELETE", self.path, query={"force": "true"} if force else None)

    detach = delete

    def write_run_config(self, path: str | Path = ".", **options: Any) -> Path:
        """Write `NAME.runconfig` for this target into `.azureml/` of a folder; `options` are RunConfiguration's."""
        from shunter.sdk.config import RunConfiguration

        return RunConfiguration(target=self.name, **options).save(path, self.name)

    def __repr__(self) -> str:
        return f"Compute({self.name!r}, kind={self.kind!r}, {self.state})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        return html_table({k: self.data[k] for k in ("name", "kind", "state", "config", "facts")})


class Computes:
    """The compute targets of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._path = f"{workspace.path}/computes"

    def create(
        self, name: str, kind: str, tags: Mapping[str, str] | None = None,
        on_step: Callable[[dict[str, Any]], None] | None = None, **config: Any,
    ) -> Compute:  # fmt: skip
        """Create (or attach) a target; `config` are the options of its kind.

        `on_step` is told each step as it is done: `{"check": "login", "verdict": "ok", "message": …, "hint": …}`.
        """
        config = with_contents(self.workspace, kind, config)
        body = {"name": name, "kind": kind, "config": config, "tags": dict(tags or {})}
        if on_step is None:
            return Compute(self.workspace, self.workspace.client.post(self._path, body))
        for line in _lines(self.workspace.client.stream(self._path, {"steps": "true"}, body=body)):
            if "compute" in line:
                return Compute(self.workspace, line["compute"])
            if "error" in line:
                raise from_wire(line["error"])
            on_step(line)
        raise ServerUnreachable("The server went away before the target was there.", hint="Do it again: that is safe.")

    attach = create

    def get(self, name: str) -> Compute:
        return Compute(self.workspace, self.workspace.client.get(f"{self._path}/{part(name)}"))

    def list(self) -> Sequence[Compute]:
        return [Compute(self.workspace, data) for data in self.workspace.client.get(self._path)]

    def sizes(self, **wanted: Any) -> Sequence[dict[str, Any]]:
        """Machine sizes, cheapest first: `sizes(region="eastus", min_cpus=4, gpu_model="T4", max_usd_per_hour=2)`."""
        query = {k: str(v) for k, v in wanted.items() if v is not None}
        found: list[dict[str, Any]] = self.workspace.client.get("/api/v1/sizes", **query)
        return found

    def kind(self, name: str) -> dict[str, Any]:
        """One kind of target, and its options. Raises what is missing for it."""
        found: dict[str, Any] = self.workspace.client.get(f"/api/v1/kinds/{part(name)}")
        return found

    def kinds(self) -> Sequence[dict[str, Any]]:
        """What kinds of targets this server knows, and their options."""
        found: list[dict[str, Any]] = self.workspace.client.get("/api/v1/kinds")
        return found


def with_contents(workspace: Workspace, kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """Options that name a file of this machine whose contents the server needs: a private key. Which, the kind says."""
    if not any(name.endswith("_file") and value for name, value in config.items()):
        return config
    known = workspace.compute.kind(kind)
    found = dict(config)
    for name, shape in known.get("config", {}).get("properties", {}).items():
        to = shape.get("contents_to")
        if to and config.get(name) and not config.get(to):
            path = _whole_path(config[name])
            try:
                found[to] = path.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"{path} cannot be read: {error}.", hint=f"Name another with {name}.") from error
            found[name] = str(path)
        elif shape.get("format") == "file-path" and config.get(name):
            found[name] = str(_whole_path(config[name]))
    return found


def _whole_path(path: str) -> Path:
    """As the server finds it too: it has another folder, and on this machine the same home."""
    return Path(os.path.abspath(Path(path).expanduser()))


def _lines(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield json.loads(line)
