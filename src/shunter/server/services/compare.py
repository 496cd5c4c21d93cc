"""What differs between runs: code, environment, arguments, metrics, time, cost. Values in, a table out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shunter.errors import UsageError
from shunter.model.run import Run
from shunter.server.services.metrics import to_wire
from shunter.server.storage.metrics import NUMBER

if TYPE_CHECKING:
    from shunter.server.services.parts import Parts

MOST_RUNS = 20
#: Longer files are named, not shown line by line.
MOST_DIFF_BYTES = 1 << 20
MOST_DIFF_LINES = 2000


def compare_runs(parts: Parts, run_ids: Sequence[str]) -> dict[str, Any]:
    """Compare runs with the first of them. `differs` lists the sections in which they are not all the same."""
    if not 2 <= len(run_ids) <= MOST_RUNS:
        raise UsageError(f"Between 2 and {MOST_RUNS} runs can be compared; {len(run_ids)} were given.")
    runs = [parts.runs.get(run_id) for run_id in run_ids]
    sections = {
        "arguments": rows_that_differ([_arguments(run) for run in runs]),
        "environment": rows_that_differ(
            [flat(run.config.get("environment") or {}) | _interpreter(run) for run in runs]
        ),
        "configuration": rows_that_differ([_configuration(run) for run in runs]),
        "metrics": _metrics(parts, runs),
        "time": rows_that_differ([_times(run) for run in runs], always=True),
        "cost": rows_that_differ([{"cost": run.usage.get("cost")} for run in runs], always=True),
    }
    code = [diff_of(parts, runs[0].snapshot_id, run.snapshot_id) for run in runs[1:]]
    same = {k for k, rows in sections.items() if all(row["same"] for row in rows)}
    about = [
        {"id": run.id, "name": run.name, "experiment": run.experiment, "status": str(run.status), "target": run.target}
        for run in runs
    ]
    differs = [k for k in sections if k not in same] + (["code"] if any(d["changed"] for d in code) else [])
    return {"runs": about, "sections": sections, "code": code, "differs": differs}


def rows_that_differ(columns: Sequence[Mapping[str, Any]], always: bool = False) -> list[dict[str, Any]]:
    """One row for each key whose value is not the same everywhere; with `always` the others too. Pure.

    >>> rows_that_differ([{"lr": 1, "n": 2}, {"lr": 3, "n": 2}])
    [{'name': 'lr', 'values': [1, 3], 'same': False}]
    """
    names = dict.fromkeys(name for column in columns for name in column)
    rows: list[dict[str, Any]] = []
    for name in names:
        values = [column.get(name) for column in columns]
        same = len({json.dumps(value, sort_keys=True, default=str) for value in values}) == 1
        if always or not same:
            rows.append({"name": name, "values": values, "same": same})
    return rows


def diff_of(parts: Parts, old_id: str, new_id: str) -> dict[str, Any]:
    """How one snapshot became another: which files came, went and changed, and the lines of those that are text."""
    if old_id == new_id:
        return {"changed": [], "added": [], "removed": [], "diff": ""}
    old = {e.path: e for e in parts.snapshots.get(old_id).entries}
    new = {e.path: e for e in parts.snapshots.get(new_id).entries}
    changed = sorted(
        p for p in old.keys() & new.keys() if old[p].digest != new[p].digest or old[p].target != new[p].target
    )
    added, removed = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    lines: list[str] = []
    for path in sorted([*changed, *added, *removed]):
        if len(lines) > MOST_DIFF_LINES:
            lines.append("… and more")
            break
        lines += unified(path, _text(parts, old.get(path)), _text(parts, new.get(path)))
    every = sorted([*changed, *added, *removed])
    return {"changed": every, "added": added, "removed": removed, "diff": "\n".join(lines)}


def unified(path: str, old: str | None, new: str | None) -> list[str]:
    """The lines of a unified diff; files that are no text are only named. Pure."""
    if old is None or new is None:
        return [f"Binary or large file {path} differs"]
    names = f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null"
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm=""))


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """A nested value as dotted names. Pure."""
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            found |= flat(inner, f"{prefix}.{key}" if prefix else str(key))
        return found
    return {prefix or "value": value}


def _text(parts: Parts, entry: Any) -> str | None:
    if entry is None:
        return ""
    if entry.kind == "link":
        return f"link to {entry.target}\n"
    if entry.size > MOST_DIFF_BYTES:
        return None
    try:
        return parts.blobs.read(entry.digest).decode("utf-8")
    except UnicodeDecodeError:
        return None


def _arguments(run: Run) -> dict[str, Any]:
    """Arguments by name where they have one: `--lr 0.1` and `--lr=0.1` are the same."""
    found: dict[str, Any] = {"script": run.script}
    position, name = 0, ""
    for word in run.arguments:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            found[name] = value if equals else True
            name = "" if equals else name
        elif name:
            found[name] = word
            name = ""
        else:
            position += 1
            found[f"#{position}"] = word
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _interpreter(run: Run) -> dict[str, Any]:
    return {k: run.config[k] for k in ("interpreter", "python") if k in run.config}


def _configuration(run: Run) -> dict[str, Any]:
    elsewhere = ("environment", "interpreter", "python", "inputs", "secrets", "notify")
    found: dict[str, Any] = {"target": run.target, "node_count": run.node_count, "exit_code": run.exit_code}
    found |= flat({k: v for k, v in run.config.items() if k not in elsewhere})
    for given in run.config.get("inputs") or ():
        found[f"input {given['name']}"] = given.get("key") or given.get("path")
        if given.get("sample"):
            found[f"sample of {given['name']}"] = given["sample"]
    return found


def _metrics(parts: Parts, runs: Sequence[Run]) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for run in runs:
        found: dict[str, Any] = {}
        for metric in parts.context.metrics.list(run.id):
            if metric.kind == NUMBER:
                found[metric.name] = to_wire(metric.last)
                if metric.count > 1:
                    found[f"{metric.name} (lowest)"] = to_wire(metric.min_value)
                    found[f"{metric.name} (highest)"] = to_wire(metric.max_value)
        columns.append(found)
    return rows_that_differ(columns, always=True)


def _times(run: Run) -> dict[str, Any]:
    def between(a: float | None, b: float | None) -> float | None:
        return round(b - a, 3) if a is not None and b is not None else None

    peak = run.usage.get("working_set_bytes_peak")
    return {
        "seconds waiting": between(run.submitted_at, run.started_at),
        "seconds running": between(run.started_at, run.ended_at),
        "attempts": run.attempt,
        "cpu seconds": run.usage.get("cpu_seconds"),
        "peak working set (MiB)": None if peak is None else peak >> 20,
    }
