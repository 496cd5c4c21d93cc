"""From a folder to a queued run: freeze, send what is missing, submit."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import NotFound, SnapshotUnknown, UsageError, nearest
from shunter.home import HomeFolder
from shunter.sdk.config import RunConfiguration
from shunter.sdk.environment import default_environment
from shunter.sdk.snapshots import Frozen, freeze

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.workspace import Workspace

#: Above this a snapshot asks first. A setting, not a limit: `max_snapshot_bytes=None` lifts it.
LARGE_BYTES = 300 << 20
#: The target on which a run gets the interpreter that submits it.
LOCAL = "local"

Progress = Callable[[str, int, int], None]


def submit(
    workspace: Workspace,
    script: str,
    *,
    source_directory: str | os.PathLike[str] = ".",
    arguments: Sequence[Any] = (),
    target: Any = None,
    environment: Any = None,
    experiment: str | None = None,
    name: str | None = None,
    run_config: RunConfiguration | None = None,
    tags: Mapping[str, str] | None = None,
    parent_id: str | None = None,
    run_id: str | None = None,
    max_snapshot_bytes: int | None = LARGE_BYTES,
    progress: Progress | None = None,
    on_frozen: Callable[[Frozen], None] | None = None,
    on_environment: Callable[[str], None] | None = None,
    **options: Any,
) -> Run:
    """Submit a script. `options` are attributes of RunConfiguration and win over those of `run_config`."""
    from shunter.sdk.run import Run

    config = _configuration(run_config, target, environment, options)
    folder = Path(source_directory)
    script = _script_path(script, folder)
    frozen = freeze(folder, cache_dir=HomeFolder.find().cache, max_bytes=max_snapshot_bytes,
                    progress=_hashing(progress))  # fmt: skip
    if on_frozen is not None:
        on_frozen(frozen)
    wire = config.to_wire()
    if config.environment is None and config.target != LOCAL:
        environment, words = default_environment(folder, [e.path for e in frozen.manifest.entries])
        wire["environment"] = environment.to_wire()
        if on_environment is not None:
            on_environment(words)
    wire.setdefault("interpreter", sys.executable)
    if workspace.client.is_loopback and config.target == "local":
        wire["interpreter"] = sys.executable
    if config.inputs:
        from shunter.sdk.inputs import prepare

        wire["inputs"] = prepare(workspace, config.inputs, config.sample, config.target, progress)
    properties: dict[str, Any] = {}
    git = frozen.git
    if git is not None:
        properties["git"] = {"commit": git.commit, "branch": git.branch, "dirty": git.dirty, "remote": git.remote}
    body = {
        "id": run_id or uuid.uuid4().hex,
        "experiment": experiment or _default_experiment(folder),
        "target": config.target,
        "snapshot_id": frozen.manifest.snapshot_id,
        "script": script,
        "arguments": [str(a) for a in arguments],
        "name": name or "",
        "config": wire,
        "tags": {str(k): str(v) for k, v in {**(config.tags or {}), **(tags or {})}.items()},
        "properties": properties,
        "parent_id": parent_id,
        "priority": config.priority or 0,
    }
    path = f"{workspace.path}/runs"
    try:
        data = workspace.client.post(path, body)
    except SnapshotUnknown:
        send(workspace, frozen, progress)
        data = workspace.client.post(path, body)
    return Run(workspace, data)


def send(workspace: Workspace, frozen: Frozen, progress: Progress | None = None) -> None:
    """Send a snapshot: only the blobs that the server does not hold travel."""
    import json

    client = workspace.client
    for _ in range(3):
        answer = client.raw("POST", "/api/v1/snapshots", frozen.manifest.to_bytes())
        missing = json.loads(answer.body)["missing"]
        if not missing:
            return
        total = sum(frozen.manifest.blobs[digest] for digest in missing)
        pack = frozen.pack(missing, compress=not client.is_loopback)
        client.raw("PUT", "/api/v1/packs", _counted(pack, total, progress), timeout=3600)
    raise UsageError("The server keeps asking for the same files.", hint="Its log tells more.")


def _counted(chunks: Any, total: int, progress: Progress | None) -> Any:
    sent = 0
    for chunk in chunks:
        sent += len(chunk)
        if progress is not None:
            progress("Sending", min(sent, total), total)
        yield chunk


def _hashing(progress: Progress | None) -> Any:
    if progress is None:
        return None
    return lambda p: progress("Reading", p.bytes_done, p.bytes_total)


def _configuration(
    run_config: RunConfiguration | None, target: Any, environment: Any, options: Mapping[str, Any]
) -> RunConfiguration:
    import copy

    config = copy.copy(run_config) if run_config is not None else RunConfiguration()
    if target is not None:
        config.target = target
    if environment is not None:
        config.environment = environment
    for key, value in options.items():
        if value is not None:
            try:
                setattr(config, key, value)
            except AttributeError as error:
                raise UsageError(f"submit has no option {key!r}.", hint=nearest(key, vars(config))) from error
    return config


def _script_path(script: str, folder: Path) -> str:
    """The script's path inside the source folder, with forward slashes."""
    given = Path(script)
    if given.is_absolute():
        try:
            given = given.resolve().relative_to(folder.resolve())
        except ValueError as error:
            raise UsageError(
                f"{script} is not inside the source folder {folder}.", hint="Name the folder that holds it with --source."
            ) from error
    if ".." in given.parts:
        raise UsageError(f"{script!r} leads out of the source folder.", hint="Name the folder that holds it with --source.")
    if folder.is_dir() and not (folder / given).is_file():
        near = sorted(p.relative_to(folder).as_posix() for p in folder.glob("*.py"))
        raise NotFound(f"There is no script {script!r} in {folder}.", hint=nearest(script, near))
    return given.as_posix()


def _default_experiment(folder: Path) -> str:
    return folder.resolve().name.strip() or "default"
