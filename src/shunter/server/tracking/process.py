"""MLflow as a child of ours: started when somebody first needs it, watched, started again, stopped when nobody does."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from shunter.errors import ExtraMissing, ServerError
from shunter.node import local_socket
from shunter.server.tracking.tables import Tables

log = logging.getLogger("shunter.tracking")

START_SECONDS = 180.0
IDLE_SECONDS = 1800.0
WATCH_SECONDS = 60.0
SOCKET = "socket"
#: In the environment, not among the words of the command: it may hold a password, and those everybody sees.
DATABASE = "SHUNTER_MLFLOW_DATABASE"


class MlflowProcess:
    """At most one. `ready` waits until it answers; a call that finds it dead starts it again."""

    def __init__(self, home: Path, tables: Tables) -> None:
        self.home = home
        self.folder = home / "mlflow"
        self.tables = tables
        self.used_at = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def is_running(self) -> bool:
        child = self._child
        return child is not None and child.poll() is None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self.is_running else None

    def ready(self) -> None:
        """Return when it serves. Raises ExtraMissing when it is not installed, ServerError when it will not start."""
        self.used_at = time.monotonic()
        if self.is_running:
            return
        with self._lock:
            if not self.is_running:
                self._start()

    def stop(self) -> None:
        with self._lock:
            child, self._child = self._child, None
            if child is None:
                return
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(2.0)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def connect(self) -> socket.socket:
        """A connection to it."""
        return local_socket.connect(str(self.folder / SOCKET))

    def _start(self) -> None:
        if importlib.util.find_spec("mlflow") is None:
            hint = "pip install 'shunter[models]'; 'shunter[mlflow]' brings its pages too."
            raise ExtraMissing("MLflow is not installed beside the server.", hint=hint)
        (self.folder / "artifacts").mkdir(parents=True, exist_ok=True, mode=0o700)
        self.tables.prepare()
        listener = self._listen()
        try:
            command = [sys.executable, "-I", str(Path(__file__).with_name("serve.py"))]
            env = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "_MLFLOW_"))}
            with (self.folder / "log").open("ab") as output:
                child = subprocess.Popen(
                    [*command, str(listener.fileno()), str(self.home)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, pass_fds=[listener.fileno()],
                    env=env | {DATABASE: self.tables.url}, cwd=self.folder, start_new_session=True,
                )  # fmt: skip
        finally:
            listener.close()
        self._wait(child)
        self._child = child
        threading.Thread(target=self._watch, args=(child,), daemon=True, name="mlflow").start()

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        """Until it ends; it is ended when nobody has used it for long, as it holds 150 MB."""
        while True:
            try:
                status = child.wait(WATCH_SECONDS)
            except subprocess.TimeoutExpired:
                if time.monotonic() - self.used_at > IDLE_SECONDS:
                    self.stop()
                continue
            if self._child is child:
                log.warning("MLflow ended with status %s; the next call starts it again", status)
            return

    def _wait(self, child: subprocess.Popen[bytes]) -> None:
        timer = threading.Timer(START_SECONDS, child.kill)
        timer.start()
        assert child.stdout is not None
        try:
            said = child.stdout.readline()
        finally:
            timer.cancel()
        if said.strip() == b"ready":
            return
        child.kill()
        child.wait()
        child.stdout.close()
        if child.stdin is not None:
            child.stdin.close()
        words = self._last_words()
        log.error("MLflow did not start: %s", words)
        raise ServerError(f"MLflow did not start: {words}", hint=f"{self.folder / 'log'} has all it said; runs go on without it.")

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        (self.folder / SOCKET).unlink(missing_ok=True)
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            listener.bind(f"/proc/self/fd/{fd}/{SOCKET}")
        finally:
            os.close(fd)
        listener.listen(128)
        return listener

    def _last_words(self) -> str:
        lines = (self.folder / "log").read_bytes()[-4000:].decode("utf-8", "replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")[:300]
