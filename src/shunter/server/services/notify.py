"""Tells people that a run is over, by webhook or by a command on the server's machine: at least once, with patience."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from shunter.errors import NotFound, UsageError
from shunter.model.run import Event, Run
from shunter.server.storage.metrics import Metrics
from shunter.server.storage.notices import FAILED, SENT, WAITING, Notice, Notices
from shunter.server.storage.runs import SqlRuns

log = logging.getLogger("shunter.notify")

#: Seconds before each further try; after the last it is given up, and the run's events say so.
PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
SEND_SECONDS = 20.0
COMMAND_SECONDS = 300.0


class Notifier:
    """A thread that sleeps until a run with a notice is over. `commands`: whether commands may run on this machine."""

    def __init__(self, notices: Notices, runs: SqlRuns, metrics: Metrics, clock: Callable[[], float]) -> None:
        self.notices = notices
        self.runs = runs
        self.metrics = metrics
        self.clock = clock
        self.commands = False
        self._wake = threading.Event()
        self._stop = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def expect(self, run: Run) -> None:
        """Called at submit."""
        if run.config.get("notify"):
            self.notices.expect(run.id, [str(target) for target in run.config["notify"]])

    def on_over(self, run: Run) -> None:
        if run.config.get("notify"):
            self.start()
            self._wake.set()

    def start(self) -> None:
        """Begin to deliver, if that has not begun; what a server before us left is delivered now."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stop = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def deliver_due(self) -> float | None:
        """Deliver what is due and return in how many seconds the next is; None when nothing waits."""
        soonest = None
        for notice in self.notices.due():
            left = notice.next_at - self.clock()
            if left > 0:
                soonest = left if soonest is None else min(soonest, left)
                continue
            after = self._deliver(notice)
            self.notices.update(after)
            if after.state == WAITING:
                left = max(after.next_at - self.clock(), 0.0)
                soonest = left if soonest is None else min(soonest, left)
        return soonest

    def _deliver(self, notice: Notice) -> Notice:
        try:
            run = self.runs.get(notice.run_id)
        except NotFound:
            return notice._replace(state=FAILED, words="The run was deleted.")
        words = ""
        try:
            message = message_of(run, self.metrics.latest([run.id])[run.id])
            if is_url(notice.target):
                post(notice.target, message)
            elif self.commands:
                run_command(notice.target, message)
            else:
                words = "Commands are run only by a server on your own machine; give it a URL."
                return self._give_up(run, notice, words)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            words = str(error) or type(error).__name__
        if not words:
            return notice._replace(state=SENT, tries=notice.tries + 1, words="")
        if notice.tries >= len(PAUSES):
            return self._give_up(run, notice, words)
        return notice._replace(tries=notice.tries + 1, next_at=self.clock() + PAUSES[notice.tries], words=words[:1000])

    def _give_up(self, run: Run, notice: Notice, words: str) -> Notice:
        reason = f"Nobody could be told by {shown(notice.target)}: {words}"
        self.runs.log(Event(run.id, self.clock(), "notify_failed", run.status, reason[:1000], {}))
        return notice._replace(state=FAILED, tries=notice.tries + 1, words=words[:1000])

    def _run(self) -> None:
        while not self._stop:
            self._wake.clear()
            try:
                pause = self.deliver_due()
            except Exception:
                log.exception("notices could not be delivered; trying again")
                pause = 5.0
            self._wake.wait(pause)


def check_notify(config: Mapping[str, Any]) -> None:
    """Refuse a submission whose notices make no sense."""
    asked = config.get("notify") or []
    if not isinstance(asked, list) or len(asked) > 20 or not all(isinstance(one, str) and one.strip() for one in asked):
        raise UsageError("`notify` is a list of at most 20 URLs or commands.")
    for one in asked:
        if "://" in one.split(" ", 1)[0] and not is_url(one):
            raise UsageError(f"{shown(one)!r} cannot be notified.", hint="Webhooks are http:// or https:// URLs.")


def message_of(run: Run, metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What is sent: what a person wants to know first. `text` is for chat services."""
    took = f" after {run.ended_at - run.started_at:.0f} s" if run.ended_at and run.started_at else ""
    text = f"{run.experiment} / {run.name}: {run.status}{took}" + (f": {run.error.message}" if run.error else "")
    return {
        "text": text, "id": run.id, "name": run.name, "experiment": run.experiment, "workspace": run.workspace,
        "status": str(run.status), "target": run.target, "exit_code": run.exit_code, "reason": run.reason,
        "error": {"code": run.error.code, "message": run.error.message} if run.error else None,
        "submitted_at": run.submitted_at, "started_at": run.started_at, "ended_at": run.ended_at,
        "tags": dict(run.tags),
        "metrics": {k: v for k, v in metrics.items() if isinstance(v, int | float) and math.isfinite(v)},
    }  # fmt: skip


def is_url(target: str) -> bool:
    return urlsplit(target).scheme in ("http", "https")


def shown(target: str) -> str:
    """A webhook's address is often its secret: only its host is shown."""
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.hostname}/…" if parts.scheme in ("http", "https") else target


def post(url: str, message: Mapping[str, Any]) -> None:
    import urllib.error
    import urllib.request

    data = json.dumps(message).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", "User-Agent": "shunter"})
    try:
        with urllib.request.urlopen(request, timeout=SEND_SECONDS) as answer:
            answer.read(1 << 16)
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"it answered {error.code}") from error


def run_command(command: str, message: Mapping[str, Any]) -> None:
    """Run it in a shell, with the message as JSON on its standard input and the main facts in its environment."""
    env = {k: v for k, v in os.environ.items() if k not in ("SHUNTER_TOKEN",)}
    env |= {"SHUNTER_RUN_ID": str(message["id"]), "SHUNTER_RUN_STATUS": str(message["status"]),
            "SHUNTER_RUN_NAME": str(message["name"]), "SHUNTER_RUN_TEXT": str(message["text"])}  # fmt: skip
    done = subprocess.run(
        command, shell=True, input=json.dumps(message).encode(), env=env, timeout=COMMAND_SECONDS, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    if done.returncode:
        said = done.stdout[-300:].decode("utf-8", "replace").strip()
        raise OSError(f"the command ended with exit code {done.returncode}" + (f": {said}" if said else ""))
