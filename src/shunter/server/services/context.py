"""What a script is given and what it says: metrics, files, checkpoints, inputs, secrets; and who hears of its end.

`connect` joins these to a server's collect, orders and dispatch; nothing else needs to know of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shunter.model.run import Launch, Run, parse_launch_id
from shunter.server.collect.checkpoints import CheckpointTaker
from shunter.server.collect.metrics import STREAM, MetricIngest
from shunter.server.collect.node_events import NodeEvents
from shunter.server.services.children import ScriptSays
from shunter.server.services.interactive import Watch
from shunter.server.services.notify import Notifier
from shunter.server.services.secrets import Maskers
from shunter.server.storage.checkpoints import Checkpoints
from shunter.server.storage.metrics import Metrics
from shunter.server.storage.notices import Notices
from shunter.server.storage.secrets import Secrets

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts


@dataclass
class RunContext:
    metrics: Metrics
    points: MetricIngest
    secrets: Secrets
    maskers: Maskers
    checkpoints: Checkpoints
    says: ScriptSays
    notifier: Notifier
    interactive: Watch


def connect(parts: Parts) -> RunContext:
    """Make these parts and join them to the others."""
    database, files, ingest = parts.database, parts.files, parts.ingest
    metrics = Metrics(database, files)
    secrets = Secrets(database, parts.home)
    maskers = Maskers(secrets)
    checkpoints = Checkpoints(database, files)
    says = ScriptSays(parts.runs, parts.clock, lambda run: parts.signals.fire(run.id))
    notifier = Notifier(Notices(database), parts.runs, metrics, parts.clock)
    # A command is run as the server's own user: only on a server that nobody else can reach.
    notifier.commands = is_loopback(str(parts.info.get("url", "")))
    if notifier.notices.due():
        notifier.start()
    points = MetricIngest(metrics, says, lambda run_id: parts.signals.fire(run_id + "/metrics"))
    context = RunContext(metrics, points, secrets, maskers, checkpoints, says, notifier, Watch(parts))

    node_events = NodeEvents(parts.runs, metrics, parts.signals.fire)
    points.off = node_events.off = ingest.clocks.of
    ingest.handlers.add(STREAM, points)
    ingest.handlers.add("events", node_events)
    ingest.arrivals.family = lambda run_id: says.family(parts.runs.get(run_id))
    ingest.masker = maskers.of
    taker = CheckpointTaker(checkpoints, parts.clock)
    ingest.takers.update({"file": _take_file(parts), "blob": taker.blob, "checkpoint": taker.commit})
    ingest.takers["copied"] = _on_copied(parts)
    parts.orders.additions.append(lambda run, launch, job: add_to_job(context, run, launch, job))
    before = parts.dispatch.on_change

    def on_change(run: Run) -> None:
        before(run)
        if run.is_over:
            says.on_parent_over(run)
            notifier.on_over(run)

    parts.dispatch.on_change = on_change
    says.catch_up()
    return context


def add_to_job(context: RunContext, run: Run, launch: Launch, job: dict[str, Any]) -> None:
    """What a launcher must know of these things; nothing for a run that uses none of them."""
    if run.tags:
        job["tags"] = dict(run.tags)
    if run.config.get("secrets"):
        job["secrets"] = True
    if run.config.get("inputs"):
        job["inputs"] = list(run.config["inputs"])
    source = run.config.get("from_checkpoint") or (run.id if launch.attempt > 1 else None)
    if source:
        found = context.checkpoints.to_restore(str(source), launch.node_index)
        own = context.checkpoints.to_restore(run.id, launch.node_index) if source != run.id else found
        if own or found:
            job["restore"] = own or found
    if run.config.get("keep_checkpoints"):
        job["keep_checkpoints"] = run.config["keep_checkpoints"]


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _on_copied(parts: Parts) -> Any:
    """The node has sent the outputs so far, which somebody asked for."""

    def take(run: Run, launch_id: str, header: dict[str, Any], payload: bytes) -> tuple[str, int]:
        parts.signals.fire(run.id + "/files")
        return "copied", 0

    return take


def _take_file(parts: Parts) -> Any:
    def take(run: Run, launch_id: str, header: dict[str, Any], payload: bytes) -> tuple[str, int]:
        parse_launch_id(launch_id)
        return "file/" + str(header["file"]), parts.ingest.arrivals.put(launch_id, header, payload)

    return take
