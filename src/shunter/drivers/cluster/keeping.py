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
    with hold(folder) as lock:
        if lock is None:
            return
        # It holds the lock from its first moment: whoever looks while it comes up would start another, and another.
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SHUNTER_", "RAY_", "AUTOSCALER_"))}
        start(folder, "keeper", env, lock)


def start(folder: ClusterFolder, what: str, env: dict[str, str], lock: int | None = None) -> int:
    log_file = folder.path / f"{what}.log"
    words = [str(folder.path)] if lock is None else [str(folder.path), str(lock)]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*python_module(f"shunter.drivers.cluster.{what}"), *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", env=env,
            pass_fds=() if lock is None else (lock,),
        )  # fmt: skip
    threading.Thread(target=process.wait, daemon=True).start()
    return process.pid


@contextlib.contextmanager
def hold(folder: ClusterFolder, given: int | None = None) -> Iterator[int | None]:
    """Hold the keeper's lock; None when a keeper has it. The kernel lets go of it when all who have it are dead.

    `given`: the lock as whoever started us held it.
    """
    if given is not None:
        os.set_inheritable(given, False)  # what we start must not seem to be a keeper
    fd = _lock(folder) if given is None else given
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _lock(folder: ClusterFolder) -> int | None:
    try:
        fd = os.open(folder.path / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None  # the cluster is deleted: there is nothing to keep
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except OSError:
        os.close(fd)
        return None


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
