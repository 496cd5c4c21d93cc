"""Starting the processes that keep a cluster. Each is in a session of its own; starting one twice starts one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.drivers.cluster.pools.local import python_module


def ensure(folder: ClusterFolder) -> None:
    """Start a keeper unless one is there."""
    with hold(folder) as free:
        if not free:
            return
    start(
        folder, "keeper", {k: v for k, v in os.environ.items() if not k.startswith(("SHUNTER_", "RAY_", "AUTOSCALER_"))}
    )


def start(folder: ClusterFolder, what: str, env: dict[str, str]) -> int:
    log_file = folder.path / f"{what}.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*python_module(f"shunter.drivers.cluster.{what}"), str(folder.path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=env,
        )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


@contextlib.contextmanager
def hold(folder: ClusterFolder) -> Iterator[bool]:
    """Hold the keeper's lock; False when a keeper has it. The kernel lets go of it when we die."""
    try:
        fd = os.open(folder.path / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield False  # the cluster is deleted: there is nothing to keep
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(fd)


def changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def log_tail(path: Path, lines: int = 3) -> str:
    try:
        return " ".join(path.read_text(errors="replace").strip().splitlines()[-lines:])[-500:]
    except OSError:
        return ""
