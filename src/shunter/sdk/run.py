"""A run, as its submitter sees it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shunter.errors import RunFailed, ServerUnreachable, UsageError
from shunter.sdk.client import part

if TYPE_CHECKING:
    from shunter.sdk.metrics import Series
    from shunter.sdk.models import Model
    from shunter.sdk.workspace import Workspace

OVER = ("Completed", "Failed", "Canceled")
WAIT_SECONDS = 50.0
#: Who follows a run that says nothing for so long may be told why.
SILENT_SECONDS = 1.5


class Run:
    """One submission of a script. Its attributes are as of the last look; `refresh()` looks again."""

    def __init__(self, workspace: Workspace, data: dict[str, Any]) -> None:
        self.workspace = workspace
        self.data = data

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def name(self) -> str:
        return str(self.data["name"])

    @property
    def experiment(self) -> str:
        return str(self.data["experiment"])

    @property
    def target(self) -> str:
        return str(self.data["target"])

    @property
    def tags(self) -> dict[str, str]:
        return dict(self.data["tags"])

    @property
    def exit_code(self) -> int | None:
        found: int | None = self.data["exit_code"]
        return found

    @property
    def error(self) -> dict[str, str] | None:
        found: dict[str, str] | None = self.data["error"]
        return found

    @property
    def cost(self) -> float | None:
        """What it cost, when it is over and its target has a price; see `price_per_hour` of the target."""
        found: float | None = self.data["cost"]
        return found

    @property
    def status(self) -> str:
        """The state now: asks the server unless the run is over."""
        if not self.is_over:
            self.refresh()
        return str(self.data["status"])

    @property
    def is_over(self) -> bool:
        return self.data["status"] in OVER

    @property
    def path(self) -> str:
        return f"/api/v1/runs/{self.id}"

    def refresh(self) -> Run:
        self.data = self.workspace.client.get(self.path)
        return self

    def details(self) -> dict[str, Any]:
        """Everything that is known, with the history of attempts."""
        found: dict[str, Any] = self.workspace.client.get(self.path + "/details")
        return found

    def wait(
        self, show_output: bool = False, *, timeout_seconds: float | None = None, raise_on_error: bool = False,
        file: Any = None,
    ) -> Run:  # fmt: skip
        """Wait until the run is over. `show_output` streams the log; `raise_on_error` raises RunFailed for a failed one."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        if show_output:
            for chunk in self.follow(timeout_seconds=timeout_seconds):
                _write(file or sys.stdout, chunk)
        while not self.is_over:
            left = WAIT_SECONDS if until is None else min(WAIT_SECONDS, until - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"Run {self.id[:8]} is still {self.data['status']} after {timeout_seconds} s.")
            try:
                self.data = self.workspace.client.get(self.path, wait=left, until="over")
            except ServerUnreachable:
                self._reconnect(until)
        if raise_on_error and self.data["status"] == "Failed":
            error = self.error or {}
            raise RunFailed(error.get("message", "The run failed."), hint=error.get("hint", ""))
        return self

    def follow(
        self, *, offset: int = 0, attempt: int = 0, node: int = 0, timeout_seconds: float | None = None,
        on_silence: Callable[[], None] | None = None,
    ) -> Iterator[bytes]:  # fmt: skip
        """The log as it comes, until the run is over; goes on after a lost connection and over attempts.

        `on_silence` is called once when nothing has come for a second and a half.
        """
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        silent_at = time.monotonic() + SILENT_SECONDS
        while until is None or time.monotonic() < until:
            wait = WAIT_SECONDS if until is None else max(0.01, min(WAIT_SECONDS, until - time.monotonic()))
            if on_silence is not None:
                wait = min(wait, max(0.01, silent_at - time.monotonic()))
            try:
                answer = self.workspace.client.raw(
                    "GET", self.path + "/log", query={"offset": offset, "wait": wait, "attempt": attempt, "node": node}
                )
            except ServerUnreachable:
                self._reconnect(until)
                continue
            offset = int(answer.headers["x-shunter-offset"])
            attempt = int(answer.headers["x-shunter-attempt"])
            if answer.body:
                on_silence = None
                yield answer.body
            elif answer.headers["x-shunter-end"] == "1":
                if int(answer.headers["x-shunter-attempts"]) <= attempt:
                    self.refresh()
                    return
                attempt, offset = attempt + 1, 0
            elif on_silence is not None and time.monotonic() >= silent_at:
                on_silence()
                on_silence = None

    def logs(self, *, attempt: int = 0, node: int = 0) -> str:
        """All the run has said so far."""
        chunks: list[bytes] = []
        offset = 0
        while True:
            query = {"offset": offset, "attempt": attempt, "node": node}
            answer = self.workspace.client.raw("GET", self.path + "/log", query=query)
            if not answer.body:
                return b"".join(chunks).decode("utf-8", "replace")
            chunks.append(answer.body)
            offset = int(answer.headers["x-shunter-offset"])
            attempt = int(answer.headers["x-shunter-attempt"])

    def files(self, refresh: bool = False) -> list[dict[str, Any]]:
        """The run's files: path, bytes, changed_at. `refresh` first brings home what a running script has written so far."""
        found: list[dict[str, Any]] = self.workspace.client.get(self.path + "/files", refresh="true" if refresh else None)
        return found

    def download(self, output: str | os.PathLike[str] = ".", *, prefix: str = "", progress: Any = None) -> list[Path]:
        """Write the run's files (those whose path begins with `prefix`) below `output`; a cut download is resumed."""
        from shunter.sdk.download import fetch

        done = []
        base = Path(output)
        wanted = [f for f in self.files() if f["path"].startswith(prefix)]
        if prefix and not wanted:
            hint = f"`shunter run files {self.id[:8]}` lists them."
            raise UsageError(f"Run {self.id[:8]} has no file that begins with {prefix!r}.", hint=hint)
        total, sent = sum(f["bytes"] for f in wanted), 0
        for entry in wanted:
            url = f"{self.path}/files/{'/'.join(map(part, entry['path'].split('/')))}"

            def told(so_far: int, before: int = sent) -> None:
                if progress is not None:
                    progress("Downloading", before + so_far, total)

            target = base / entry["path"]
            done.append(fetch(self.workspace.client, url, target, entry["bytes"], entry["changed_at"], told))
            sent += entry["bytes"]
        return done

    def metrics(self, name: str | None = None, recursive: bool = False) -> dict[str, Any]:
        """What the script logged: a value, a list when it was logged repeatedly, rows and tables as dicts of lists.

        With `recursive`, that of child runs too, by run id.
        """
        from shunter.sdk.metrics import read_metrics

        return read_metrics(self, name, recursive)

    def series(self, *names: str, points: int = 1000) -> list[Series]:
        """Number metrics with steps and times, thinned on the server to about `points` each: for plots."""
        from shunter.sdk.metrics import read_series

        return read_series(self, names, points)

    def checkpoints(self) -> list[dict[str, Any]]:
        """The versions of its checkpoints that are kept, the newest first."""
        found: list[dict[str, Any]] = self.workspace.client.get(self.path + "/checkpoints")
        return found

    def children(self) -> Sequence[Run]:
        return self.workspace.runs(parent=self.id, limit=1000)

    def register_model(self, name: str, path: str = "outputs", **options: Any) -> Model:
        """A new version of the model `name` from this run's files at `path`: a folder, a file, or a logged model's name.

        Options: `tags`, `description`, `aliases`.
        """
        return self.workspace.models.register(self, path, name, **options)

    @property
    def params(self) -> dict[str, str]:
        """What the script logged as parameters (`mlflow.log_param`)."""
        found = self.data.get("properties") or {}
        return {key[6:]: str(value) for key, value in found.items() if key.startswith("param.")}

    def cancel(self) -> Run:
        """Ask for it to be canceled. Legal in every state, and may be repeated."""
        self.data = self.workspace.client.post(self.path + "/cancel")
        return self

    def rerun(self, *, full: bool = False, from_checkpoint: bool = False, **changes: Any) -> Run:
        """Start the same snapshot, arguments and configuration again.

        `full`: on the whole of inputs that were sampled. `from_checkpoint`: with this run's checkpoints in place.
        """
        import uuid

        if full:
            from shunter.sdk.inputs import promote

            changes["inputs"] = promote(self)
        if from_checkpoint:
            changes["from_checkpoint"] = self.id
        return Run(self.workspace, self.workspace.client.post(self.path + "/rerun", {"id": uuid.uuid4().hex, "changes": changes}))

    def delete(self) -> None:
        self.workspace.client.call("DELETE", self.path)

    def tag(self, name: str | None = None, value: Any = "", **tags: Any) -> Run:
        given: Mapping[str, Any] = {**({name: value} if name is not None else {}), **tags}
        self.data = self.workspace.client.call("PATCH", self.path + "/tags", {"tags": {k: str(v) for k, v in given.items()}})
        return self

    def events(self) -> list[dict[str, Any]]:
        """Every move and what else happened to it, oldest first."""
        found: list[dict[str, Any]] = self.workspace.client.get(self.path + "/events")
        return found

    def why(self) -> dict[str, Any]:
        """Why it is in its state, whether it can ever start, and what would help."""
        found: dict[str, Any] = self.workspace.client.get(self.path + "/why")
        return found

    def usage(self) -> list[dict[str, Any]]:
        """The samples of CPU and working set."""
        import json

        body = self.workspace.client.raw("GET", self.path + "/usage").body
        return [json.loads(line) for line in body.splitlines()]

    def __repr__(self) -> str:
        return f"Run({self.id[:8]}, {self.name!r}, {self.data['status']})"

    def _repr_html_(self) -> str:
        from shunter.sdk.tables import html_table

        keys = ("id", "name", "experiment", "status", "target", "submitted_at", "started_at", "ended_at", "reason")
        return html_table({k: self.data[k] for k in keys})

    def _reconnect(self, until: float | None) -> None:
        """The server is away: the run goes on. Find it again, starting our own if it was the embedded one."""
        from shunter.errors import ShunterError
        from shunter.sdk.connect import connect

        if until is not None and time.monotonic() > until:
            return
        time.sleep(0.2)
        try:
            self.workspace.client = connect()
        except ShunterError:
            pass


def _write(file: Any, chunk: bytes) -> None:
    binary: BinaryIO | None = getattr(file, "buffer", None)
    if binary is not None:
        binary.write(chunk)
        binary.flush()
    else:
        file.write(chunk.decode("utf-8", "replace"))
        file.flush()
