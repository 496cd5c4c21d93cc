"""The container engines that `scripts/parts/podman`, `docker` and `rootless` set up for tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: A small image with Python and nothing else, made by the same script.
IMAGE = "localhost/shunter-test:python"
START_SECONDS = 60.0


def podman() -> str | None:
    """The command that was set up, None when it was not."""
    command = _parts() / "podman" / "podman"
    return str(command) if command.exists() and shutil.which("podman") else None


@contextmanager
def docker() -> Iterator[str | None]:
    """A real Docker engine, as long as it is needed: its command; None when `scripts/parts/docker` was not run."""
    folder = _parts() / "docker"
    if not (folder / "dockerd").exists() or os.geteuid() != 0:
        yield None
        return
    command = str(folder / "docker")
    with open(folder / ".running", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one engine, whoever else runs these tests
        with open(folder / "log", "wb") as log:
            engine = subprocess.Popen([folder / "dockerd"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until = time.monotonic() + START_SECONDS
            while subprocess.run([command, "version"], capture_output=True, check=False).returncode:
                if engine.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("The engine did not start:\n" + (folder / "log").read_text()[-2000:])
                time.sleep(0.1)
            if subprocess.run([command, "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
                subprocess.run([command, "load", "--quiet", "--input", folder / "image.tar"], check=True)
            yield command
        finally:
            engine.terminate()
            engine.wait(START_SECONDS)


@contextmanager
def rootless() -> Iterator[tuple[str, Path] | None]:
    """The command that runs others as an ordinary user who has podman, and a folder of that user; None if not set up."""
    folder = _parts() / "rootless"
    if not (folder / "as-user").exists() or os.geteuid() != 0:
        yield None
        return
    home = folder / "home"
    place = Path(tempfile.mkdtemp(dir=home))
    os.chown(place, home.stat().st_uid, home.stat().st_gid)
    try:
        yield str(folder / "as-user"), place
    finally:
        try:  # podman leaves a process behind that holds its namespaces
            os.kill(int((folder / "run/libpod/tmp/pause.pid").read_text()), signal.SIGTERM)
        except (OSError, ValueError):
            pass
        shutil.rmtree(place, ignore_errors=True)


def _parts() -> Path:
    return Path(os.environ.get("SHUNTER_TEST_PARTS") or "/var/tmp/shunter-test-parts")
