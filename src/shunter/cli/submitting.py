"""What `shunter submit` does: freeze the folder, start the run, stream its log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.cli import REFUSED
from shunter.cli.finding import workspace
from shunter.cli.screen import clean, is_interactive, print_json, use_json
from shunter.cli.units import count, parse_bytes, parse_pairs, parse_seconds

if TYPE_CHECKING:
    from shunter.sdk.run import Run
    from shunter.sdk.snapshots import Frozen
    from shunter.sdk.workspace import Workspace

NAMED_IGNORED = 5
SNAPSHOT_LIMIT = "300MB"


def submit(
    script: str,
    arguments: list[str] | None = None,
    *,
    source: Path = Path(),
    target: str | None = None,
    experiment: str | None = None,
    name: str | None = None,
    environment: str | None = None,
    run_config: Path | None = None,
    nodes: int | None = None,
    vm_size: str | None = None,
    processes_per_node: int | None = None,
    communicator: str | None = None,
    cpus: float | None = None,
    gpus: int | None = None,
    memory: str | None = None,
    env: list[str] | None = None,
    tag: list[str] | None = None,
    input: list[str] | None = None,
    sample: str | None = None,
    secret: list[str] | None = None,
    notify: list[str] | None = None,
    keep_checkpoints: int | None = None,
    max_duration: str | None = None,
    max_silence: str | None = None,
    snapshot_limit: str | None = None,
    yes: bool = False,
    detach: bool = False,
    as_json: bool = False,
) -> int:
    """Submit and stream, or leave; the exit status."""
    use_json(as_json)
    options: dict[str, Any] = {
        "node_count": nodes, "vm_size": vm_size, "processes_per_node": processes_per_node, "communicator": communicator,
        "cpus": cpus, "gpus": gpus, "memory_bytes": parse_bytes(memory),
        "max_run_duration_seconds": parse_seconds(max_duration), "max_silence_seconds": parse_seconds(max_silence),
        "environment_variables": parse_pairs(env, "--env") or None,
        "inputs": _inputs(input), "sample": sample, "secrets": secret, "notify": notify,
        "keep_checkpoints": keep_checkpoints,
    }  # fmt: skip
    config = _load(run_config)
    given = tuple(arguments or ()) or tuple(str(a) for a in (config.arguments if config else None) or ())
    limit = parse_bytes(snapshot_limit or os.environ.get("SHUNTER_SNAPSHOT_LIMIT") or SNAPSHOT_LIMIT)
    shown: dict[str, Any] = {}
    run = _submit(
        workspace(), as_json, shown, None if yes else limit,
        script=script, source_directory=source, arguments=given, target=target, environment=_environment(environment),
        experiment=experiment, name=name, run_config=config, tags=parse_pairs(tag, "--tag"), **options,
    )  # fmt: skip
    if run is None:
        return REFUSED
    return follow_or_leave(run, detach, as_json, shown)


def follow_or_leave(run: Run, detach: bool, as_json: bool, shown: dict[str, Any]) -> int:
    """Stream a run that has just been submitted; with `detach` say what it is and how to go on."""
    from shunter.cli.streaming import watch

    short = run.id[:8]
    if not as_json:
        print(f"Run {short}, {clean(run.name)}, on {run.target}, experiment {clean(run.experiment)}", flush=True)
    if not detach:
        return watch(run, as_json, shown)
    if as_json:
        print_json(run.data | shown)
    else:
        print(f"`shunter run logs --follow {short}` watches it.")
    return 0


def _submit(ws: Workspace, as_json: bool, shown: dict[str, Any], limit: int | None, **asked: Any) -> Run | None:
    from shunter.cli.progress import Bar
    from shunter.errors import SnapshotTooLarge

    with Bar() as bar:

        def on_frozen(frozen: Frozen) -> None:
            shown["snapshot"] = describe(frozen)
            if not as_json:
                bar.stop()
                print(snapshot_line(frozen))

        def on_environment(words: str) -> None:
            shown["environment"] = words
            if not as_json:
                bar.stop()
                print(clean(words))

        asked |= {"on_frozen": on_frozen, "on_environment": on_environment}
        try:
            return ws.submit(max_snapshot_bytes=limit, progress=bar, **asked)
        except SnapshotTooLarge as error:
            bar.stop()
            if as_json or not is_interactive():
                hint = error.hint.removesuffix(" Or raise the limit.") + " Or --yes sends it as it is."
                raise SnapshotTooLarge(error.message, hint=hint) from None
            print(error)
            if not _agreed("Send it as it is?"):
                return None
            return ws.submit(max_snapshot_bytes=None, progress=bar, **asked)


def describe(frozen: Frozen) -> dict[str, Any]:
    """What was frozen and what was left out, for JSON."""
    return {
        "id": frozen.manifest.snapshot_id,
        "files": len(frozen.manifest.entries),
        "bytes": frozen.manifest.total_bytes,
        "ignored": {
            "count": frozen.ignored.count,
            "paths": [{"path": path, "rule": rule} for path, rule in frozen.ignored.paths],
        },
    }


def snapshot_line(frozen: Frozen) -> str:
    from shunter.sdk.snapshots import in_words

    manifest, ignored = frozen.manifest, frozen.ignored
    size = f"{count(len(manifest.entries), 'file')}, {in_words(manifest.total_bytes)}"
    line = f"Snapshot {manifest.snapshot_id[:8]}: {size}"
    if not ignored.count:
        return line
    named = [clean(path) for path, _ in ignored.paths[:NAMED_IGNORED]]
    more = f" and {ignored.count - len(named)} more" if ignored.count > len(named) else ""
    return f"{line}; {count(ignored.count, 'path')} left out: {', '.join(named)}{more}"


def _load(path: Path | None) -> Any:
    if path is None:
        return None
    from shunter.sdk.config import RunConfiguration

    return RunConfiguration.load(path)


def _inputs(texts: list[str] | None) -> Any:
    if not texts:
        return None
    from shunter.sdk.inputs import parse_inputs

    return parse_inputs(texts)


def _environment(text: str | None) -> Any:
    if text is None:
        return None
    from shunter.sdk.environment import from_name_or_file

    return from_name_or_file(text)


def _agreed(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False
