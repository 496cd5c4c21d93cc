"""An interactive run: launched nowhere; this program logs into it, as a script does into its own, and ends it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.errors import NotFound, ServerUnreachable, ShunterError
from shunter.node.client.shunter._lines import Lines, warn
from shunter.node.home import CHUNK_BYTES, encode
from shunter.node.transfer import send_file
from shunter.node.workfolder import kept_files
from shunter.run import Run as ScriptRun
from shunter.sdk.run import Run

if TYPE_CHECKING:
    from shunter.sdk.experiment import Experiment
    from shunter.sdk.models import Model
    from shunter.sdk.workspace import Workspace

PUSH_SECONDS = 0.5
BEAT_SECONDS = 30.0


class InteractiveRun(ScriptRun):
    """What `experiment.start_logging()` gives: `log`, `upload_file`, `child_run` … as inside a run.

    It ends with `complete()`, `fail()` or the end of a `with` block; at the latest with this program.

    >>> with Experiment(ws, "by hand").start_logging() as run:          # doctest: +SKIP
    ...     run.log("loss", 0.25)
    """

    def __init__(
        self, session: Session, run_id: str, parent: InteractiveRun | None = None, name: str = "", tags: Any = None
    ) -> None:
        super().__init__(run_id, session.lines, str(session.folder), parent, name, dict(tags or {}))
        self._session = session

    @property
    def run(self) -> Run:
        """The same as everybody else sees it, with all that was said so far."""
        self.flush()
        return self._session.workspace.run(self.id)

    @property
    def experiment(self) -> Experiment:  # type: ignore[override]
        from shunter.sdk.experiment import Experiment

        return Experiment(self._session.workspace, self._session.experiment)

    def flush(self, timeout_seconds: float = 300.0) -> None:
        """Wait until all that was said so far is at the server."""
        self._session.flush(timeout_seconds)

    def get_metrics(self, name: str | None = None, recursive: bool = False, *_: Any, **__: Any) -> dict[str, Any]:
        return self.run.metrics(name, recursive)

    def get_file_names(self) -> list[str]:
        return [str(file["path"]) for file in self.run.files()]

    def get_status(self) -> str:
        return self.run.status

    def get_secret(self, name: str) -> str:
        raise NotFound(f"An interactive run is given no secrets, so it has no {name!r}.", hint="Read it where you need it.")

    def register_model(self, name: str, path: str = "outputs", **options: Any) -> Model:  # type: ignore[override]
        """A new version of a model of files that were uploaded to this run, or that lie here at `path`."""
        if not any(f == path or f.startswith(path.rstrip("/") + "/") for f in self.get_file_names()):
            if os.path.isdir(path):
                self.upload_folder(path, path)
            elif os.path.isfile(path):
                self.upload_file(path, path)
        return self.run.register_model(name, path, **options)

    def complete(self, _set_status: bool = True) -> None:
        super().complete(_set_status)
        self._close()

    def fail(self, error_details: Any = None, error_code: str | None = None) -> None:
        if not self._over:
            super().fail(error_details, error_code)
        self._close()

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._say({"k": "cancel", "v": {}})
        self._close()

    def _close(self) -> None:
        if self._parent is None:
            self._session.close()

    def _child(self, name: str, tags: dict[str, str]) -> InteractiveRun:
        child = InteractiveRun(self._session, uuid.uuid4().hex, self, name, tags)
        child._say({"k": "child", "v": {"parent": self._id, "name": name, "tags": tags}})
        return child


class Session:
    """The way to the server: what is said lies in a folder of its own until it is there."""

    def __init__(self, workspace: Workspace, run_id: str, experiment: str) -> None:
        self.workspace = workspace
        self.run_id = run_id
        self.experiment = experiment
        self.folder = Path(tempfile.mkdtemp(prefix="shunter-run-"))
        self.lines = Lines(str(self.folder / "metrics"))
        self._held = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._push_always, daemon=True, name="shunter-run")
        self._thread.start()
        atexit.register(self._leave)

    def flush(self, timeout_seconds: float) -> None:
        until = time.monotonic() + timeout_seconds
        while True:
            try:
                self._push()
                return
            except ServerUnreachable:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.2)
                self._reconnect()

    def close(self) -> None:
        """Everything is said: bring it home and forget about it here."""
        if self._stop.is_set():
            return
        self.flush(300.0)
        self._stop.set()
        self._thread.join()
        self._forget()

    def _leave(self) -> None:
        """This program ends and has not said how: nothing went wrong that we know of."""
        self.lines.write(json.dumps({"k": "complete", "v": {}, "t": round(time.time(), 3)}).encode() + b"\n")
        try:
            self._push()
        except (ShunterError, OSError) as error:
            warn(f"run {self.run_id[:8]}: what it said last is not at the server: {error}")
        self._forget()

    def _forget(self) -> None:
        self._stop.set()
        atexit.unregister(self._leave)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _push_always(self) -> None:
        beat = time.monotonic()
        while not self._stop.wait(PUSH_SECONDS):
            try:
                due = time.monotonic() - beat >= BEAT_SECONDS
                if self._push(due) or due:
                    beat = time.monotonic()
            except ServerUnreachable:
                self._reconnect()
            except (ShunterError, OSError) as error:
                warn(f"run {self.run_id[:8]} can no longer be told anything: {error}")
                self._forget()
                return

    def _push(self, beat: bool = False) -> bool:
        """Send what the server lacks; whether there was anything. Files first: a line may speak of one."""
        with self._lock:
            some = self._stop.is_set()
            for path, _, _ in list(kept_files(str(self.folder), "uploads")):
                if send_file(lambda frames: self._post(frames)["held"], str(self.folder / path), path[8:]):
                    (self.folder / path).unlink(missing_ok=True)
                some = True
            while data := self._read():
                header = {"stream": "metrics", "offset": self._held, "size": len(data)}
                self._held = self._post([(header, data)])["held"]["metrics"]
                some = True
            if beat and not some:
                self._post([])
            return some

    def _read(self) -> bytes:
        """Whole lines: the last of them may end the run, and nothing can follow that."""
        try:
            with (self.folder / "metrics").open("rb") as file:
                file.seek(self._held)
                return file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return b""

    def _post(self, frames: list[Any]) -> dict[str, Any]:
        body = encode([({"clock": time.time()}, b""), *frames])
        answer = self.workspace.client.raw("POST", f"/api/v1/runs/{self.run_id}/report", body)
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def _reconnect(self) -> None:
        from shunter.sdk.connect import connect

        try:
            self.workspace.client = connect()
        except ShunterError:
            pass


def start_logging(
    workspace: Workspace, experiment: str, *, name: str | None = None, tags: Mapping[str, Any] | None = None,
    snapshot_directory: str | os.PathLike[str] | None = None, run_id: str | None = None,
) -> InteractiveRun:  # fmt: skip
    """Begin an interactive run. With `snapshot_directory` that folder is frozen and kept with it."""
    snapshot_id, properties = "", {}
    if snapshot_directory is not None:
        from shunter.home import HomeFolder
        from shunter.sdk.snapshots import freeze
        from shunter.sdk.submit import LARGE_BYTES, send

        frozen = freeze(Path(snapshot_directory), cache_dir=HomeFolder.find().cache, max_bytes=LARGE_BYTES)
        send(workspace, frozen)
        snapshot_id = frozen.manifest.snapshot_id
        if frozen.git is not None:
            git = frozen.git
            properties["git"] = {"commit": git.commit, "branch": git.branch, "dirty": git.dirty, "remote": git.remote}
    given = {str(k): str(v) for k, v in (tags or {}).items()}
    body = {
        "id": run_id or uuid.uuid4().hex, "experiment": experiment, "name": name or "", "tags": given,
        "snapshot_id": snapshot_id, "properties": properties,
    }  # fmt: skip
    data = workspace.client.post(f"{workspace.path}/interactive", body)
    session = Session(workspace, data["id"], experiment)
    return InteractiveRun(session, data["id"], name=data["name"], tags=data["tags"])
