"""The environments of a workspace: registered by name and version, curated ones, their locks, building, cleaning."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import EnvironmentInvalid
from shunter.model.environment import Difference
from shunter.sdk.client import part
from shunter.sdk.environment import Environment, environment_wire

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace

#: Where runs that build or clean environments are filed.
EXPERIMENT = "environments"
READY = "import sys\nprint('Python', sys.version.split()[0], 'is ready in', sys.prefix)\n"


class Environments:
    """What `ws.environments` offers. Wherever an environment is asked for, a name or `name:version` does."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._path = f"{workspace.path}/environments"

    def register(self, environment: Environment) -> Environment:
        """Keep it under its name: as the next version, or as the newest one when its content is the same."""
        return _from(self.workspace.client.post(self._path, {"environment": environment.to_wire()}))

    def get(self, name: str, version: str = "") -> Environment:
        """A registered or curated environment; its newest version when none is named."""
        reference = f"{name}:{version}" if version else name
        return _from(self.workspace.client.get(f"{self._path}/{part(reference)}"))

    def list(self) -> Sequence[dict[str, Any]]:
        """Every version of every registered environment: name, version, kind, content_id, created_at, environment."""
        found: Sequence[dict[str, Any]] = self.workspace.client.get(self._path)
        return found

    def curated(self) -> Sequence[dict[str, Any]]:
        """Those that come with Shunter, with their framework and variant (cpu, gpu)."""
        found: Sequence[dict[str, Any]] = self.workspace.client.get("/api/v1/environments/curated")
        return found

    def delete(self, name: str, version: str = "") -> int:
        """Forget a version, or all of them. Runs keep what they were given."""
        reference = f"{name}:{version}" if version else name
        return int(self.workspace.client.call("DELETE", f"{self._path}/{part(reference)}")["deleted"])

    def lock(self, environment: Environment | str, target: str = "local", again: bool = False) -> dict[str, Any]:
        """Its lock for a target, solved if need be: id, python, packages, source. `again` solves in any case."""
        import sys

        body = {"environment": environment_wire(environment), "target": target, "again": again,
                "python": f"{sys.version_info[0]}.{sys.version_info[1]}"}  # fmt: skip
        path = f"{self.workspace.path}/environment-locks"
        answer = self.workspace.client.raw("POST", path, json.dumps(body).encode(), content_type="application/json",
                                           timeout=1800)  # fmt: skip
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def locked(self, lock_id: str) -> dict[str, Any]:
        """A lock by its id, as a run's record names it."""
        found: dict[str, Any] = self.workspace.client.get(f"/api/v1/environment-locks/{part(lock_id)}")
        return found

    def diff(self, before: Environment | str, after: Environment | str) -> Sequence[Difference]:
        """In what two environments differ, member by member."""
        body = {"before": environment_wire(before), "after": environment_wire(after)}
        found = self.workspace.client.post(f"{self.workspace.path}/environment-diff", body)
        return [Difference(**one) for one in found]

    def build(self, environment: Environment | str, target: str = "local", verify: bool = False) -> Run:
        """Build it on a target before anybody needs it: a run that does nothing else.

        `verify`: when it is built there, compare every file with what was installed, and build it again if one differs.
        """
        options = {"environment_variables": {"SHUNTER_VERIFY_ENVIRONMENT": "1"}} if verify else {}
        return self._run("ready.py", READY, [], environment, target, **options)

    def clean(self, target: str = "local", older_than_seconds: float = 0.0, really: bool = False) -> dict[str, Any]:
        """What the environments on a target take, and what could be freed; `really` frees it. Never what a run uses."""
        from importlib import resources

        script = resources.files("shunter.node.environments").joinpath("cleanup.py").read_text("utf-8")
        arguments = [str(older_than_seconds), *(["--free"] if really else [])]
        run = self._run("cleanup.py", script, arguments, Environment.existing("python3"), target)
        run.wait()
        if str(run.status) != "Completed":
            error = run.data.get("error") or {}
            raise EnvironmentInvalid(f"The environments on {target} could not be looked at: {error.get('message', '')}")
        with tempfile.TemporaryDirectory() as folder:
            run.download(folder)
            file = next(Path(folder).rglob("environments.json"))
            found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found

    def _run(
        self, name: str, text: str, arguments: Sequence[str], environment: Environment | str, target: str, **options: Any
    ) -> Run:
        with tempfile.TemporaryDirectory(prefix="shunter-") as folder:
            Path(folder, name).write_text(text, "utf-8")
            return self.workspace.submit(
                name, source_directory=folder, arguments=arguments, environment=environment, target=target,
                experiment=EXPERIMENT, **options,
            )  # fmt: skip


def _from(data: dict[str, Any]) -> Environment:
    return Environment.from_wire({**data["environment"], "name": data["name"], "version": data["version"]})
