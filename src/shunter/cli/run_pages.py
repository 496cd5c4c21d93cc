"""How runs look on a screen."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from shunter.cli.screen import Column, print_facts, print_list, print_table
from shunter.cli.units import ago, between, count, duration, local_time, moment
from shunter.sdk.snapshots.sizes import in_words

NAMED_FILES = 8


def print_runs(runs: Sequence[dict[str, Any]], empty: str) -> None:
    columns = [
        Column("run"), Column("name", 1, 10), Column("experiment", 4, 10), Column("status"), Column("target", 3, 6),
        Column("submitted", 2), Column("took", 5, right=True),
    ]  # fmt: skip
    rows = [
        [r["id"][:8], r["name"], r["experiment"], r["status"], r["target"], ago(r["submitted_at"]), _took(r)]
        for r in runs
    ]
    print_table(columns, rows, empty)


def print_run(run: dict[str, Any], files: Sequence[dict[str, Any]]) -> None:
    error = run.get("error") or {}
    usage = run.get("usage") or {}
    print_facts(
        {
            "Run": run["id"],
            "Name": run["name"],
            "Experiment": run["experiment"],
            "Status": _status(run),
            "Hint": error.get("hint"),
            "Exit code": run["exit_code"],
            "Target": run["target"] + (f", {run['node_count']} nodes" if run["node_count"] > 1 else ""),
            "Command": shlex.join([run["script"], *run["arguments"]]),
            "Environment": _environment(run),
            "Machine": _machine(run["properties"].get("environment")),
            "Snapshot": run["snapshot_id"],
            "Git": _git(run["properties"].get("git")),
            "Rerun of": run["properties"].get("rerun_of"),
            "Parent": run["parent_id"],
            "Submitted": f"{local_time(run['submitted_at'])}, {ago(run['submitted_at'])}",
            "Waited": duration(between(run["submitted_at"], run["started_at"])),
            "Took": _took(run),
            "Cost": _cost(run),
            "CPU": _cpu(usage),
            "Memory": _memory(usage),
            "Attempts": _attempts(run),
            "Tags": "\n".join(f"{k}={v}" for k, v in run["tags"].items()),
            "Files": _files(files),
        }
    )


def print_why(run: dict[str, Any], why: dict[str, Any]) -> None:
    since = moment(why["since"])
    words = f"Run {run['id'][:8]} is {why['status']}" + (f" since {local_time(why['since'])}" if since else "") + "."
    print(words)
    print_list("Because", why["reasons"])
    print_list("What would help", why["would_help"])
    if not why["can_start"]:
        print("It can never start as it is.")


def print_events(events: Sequence[dict[str, Any]]) -> None:
    columns = [Column("time"), Column("status"), Column("what happened", 0, 20, wrap=True)]
    rows = [[local_time(e["at"])[11:] + e["at"][19:23], e["status"], e["reason"] or e["kind"]] for e in events]
    print_table(columns, rows)


def print_files(files: Sequence[dict[str, Any]]) -> None:
    columns = [Column("path", 0, 12), Column("size", right=True), Column("changed", 1)]
    print_table(columns, [[f["path"], in_words(f["bytes"]), ago(f["changed_at"])] for f in files], "It has no files.")


def _status(run: dict[str, Any]) -> str:
    reason = (run.get("error") or {}).get("message") or run["reason"]
    if run["status"] == "Completed" and run["attempts"] < 2:
        return "Completed"
    return f"{run['status']} ({reason.rstrip('.')})" if reason else str(run["status"])


def _took(run: dict[str, Any]) -> str:
    return duration(between(run["started_at"], run["ended_at"]))


def _environment(run: dict[str, Any]) -> str:
    """What the script ran in, as it was found on the node: enough to prove it, and to build it again."""
    config, record = run["config"], run["properties"].get("environment") or {}
    found = config.get("environment") or {}
    if not found and run["properties"].get("interpreter"):
        return str(run["properties"]["interpreter"])
    if not found:
        python = f", Python {config['python']}" if config.get("python") else ""
        return str(config.get("interpreter") or "") + python
    name = f"{found['name']}:{found.get('version', '')}".rstrip(":") if found.get("name") else "given at submit"
    node: dict[str, Any] = next(iter((record.get("nodes") or {}).values()), {})
    lines = [
        f"{name} ({record['kind']})" if record.get("kind") else name,
        f"lock {record['lock']}, from {record['source']}" if record.get("lock") else "",
        f"Python {node['python']}, {node['interpreter']}" if node.get("interpreter") else "",
        f"image {node['image']}, {node['image_digest']}" if node.get("image_digest") else "",
        f"satisfied by Shunter itself: {', '.join(record['ours'])}" if record.get("ours") else "",
    ]
    return "\n".join(line for line in lines if line)


def _machine(record: dict[str, Any] | None) -> str:
    nodes: dict[str, Any] = (record or {}).get("nodes") or {}
    first: dict[str, Any] = next(iter(nodes.values()), {})
    host: dict[str, Any] = first.get("host") or {}
    if not host:
        return ""
    parts = [host.get("os"), host.get("kernel"), f"{host.get('cpus')} × {host.get('cpu') or host.get('machine')}",
             in_words(host.get("memory_bytes") or 0), host.get("driver"), ", ".join(host.get("gpus") or [])]  # fmt: skip
    return ", ".join(str(p) for p in parts if p)


def _git(git: dict[str, Any] | None) -> str:
    if not git or not git.get("commit"):
        return ""
    dirty = ", with changes" if git.get("dirty") else ""
    return f"{git['commit'][:12]}" + (f" on {git['branch']}" if git.get("branch") else "") + dirty


def _cost(run: dict[str, Any]) -> str:
    """In whatever the owner of the target counts; to four digits, since runs may be short."""
    if run.get("cost") is None:
        return ""
    return f"{run['cost']:.4g} ({run['usage']['price_per_hour']:g} an hour)"


def _cpu(usage: dict[str, Any]) -> str:
    if "cpu_cores_mean" not in usage:
        return ""
    return f"{usage['cpu_cores_mean']:.2f} cores on average, {usage['cpu_cores_peak']:.2f} at most"


def _memory(usage: dict[str, Any]) -> str:
    if "working_set_bytes_mean" not in usage:
        return ""
    mean, peak = usage["working_set_bytes_mean"], usage["working_set_bytes_peak"]
    return f"{in_words(int(mean))} on average, {in_words(int(peak))} at most"


def _attempts(run: dict[str, Any]) -> str:
    history = run.get("attempt_history") or []
    if len(history) < 2:
        return ""
    lines = []
    for attempt in history:
        ends = [n.get("evidence") or (n.get("outcome") or {}).get("message") or n["state"] for n in attempt["nodes"]]
        lines.append(f"{attempt['attempt']}: {'; '.join(dict.fromkeys(map(str, ends)))}")
    return "\n".join(lines)


def _files(files: Sequence[dict[str, Any]]) -> str:
    if not files:
        return ""
    shown = [f"{f['path']} ({in_words(f['bytes'])})" for f in files[:NAMED_FILES]]
    more = len(files) - len(shown)
    return "\n".join(shown + ([f"and {count(more, 'more file')}"] if more else []))
