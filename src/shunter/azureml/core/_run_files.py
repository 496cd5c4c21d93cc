"""A run's files under the names that programs of the first SDK look for: outputs, and two views of the log."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from shunter.azureml.exceptions import UserErrorException
from shunter.errors import nearest
from shunter.sdk.client import part
from shunter.sdk.run import Run

_LOG = re.compile(r"(?:azureml-logs/70_driver_log|user_logs/std_log)(?:_(\d+))?\.txt")


def log_names(run: Run) -> list[str]:
    """The log of each node, by its old name and by its new one."""
    nodes = int(run.data["node_count"])
    ends = [""] if nodes == 1 else [f"_{node}" for node in range(nodes)]
    return [f"{name}{end}.txt" for name in ("azureml-logs/70_driver_log", "user_logs/std_log") for end in ends]


def log_text(run: Run, name: str) -> str:
    match = _LOG.fullmatch(name)
    return run.logs(node=int(match[1] or 0)) if match else ""


def names(run: Run) -> list[str]:
    return sorted([*log_names(run), *(file["path"] for file in run.files())])


def download(run: Run, name: str, to: str | os.PathLike[str] | None) -> Path:
    target = _target(name, to)
    target.parent.mkdir(parents=True, exist_ok=True)
    if name in log_names(run):
        target.write_text(log_text(run, name), "utf-8")
        return target
    known = names(run)
    if name not in known:
        raise UserErrorException(f"The run has no file {name!r}. {nearest(name, known)}")
    temporary = target.with_name(target.name + ".part")
    with temporary.open("wb") as file:
        for piece in run.workspace.client.stream(f"{run.path}/files/{'/'.join(map(part, name.split('/')))}"):
            file.write(piece)
    temporary.replace(target)
    return target


def download_many(
    run: Run, prefix: str | None, folder: str | os.PathLike[str] | None, paths: Sequence[str] | None, append_prefix: bool
) -> None:
    """Every file whose path begins with `prefix`, below `folder`; without `append_prefix` the prefix is cut off."""
    start = prefix or ""
    found = [name for name in names(run) if name.startswith(start)]
    if not found and start:
        raise UserErrorException(f"The run has no file that begins with {start!r}.")
    if paths is not None and len(paths) != len(found):
        raise UserErrorException(f"output_paths has {len(paths)} names for {len(found)} files.")
    for index, name in enumerate(found):
        inner = name if append_prefix or not start else name[len(start) :].lstrip("/") or Path(name).name
        target = Path(folder or ".", inner) if paths is None else Path(folder or ".", paths[index])
        download(run, name, target)


def _target(name: str, to: str | os.PathLike[str] | None) -> Path:
    if to is None:
        return Path(Path(name).name)
    target = Path(to)
    return target / Path(name).name if target.is_dir() or str(to).endswith(os.sep) else target
