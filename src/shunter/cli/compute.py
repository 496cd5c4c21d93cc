"""`shunter compute`: compute targets of every kind. Their options come from the server; no kind is named here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.cli import cluster
from shunter.cli.finding import workspace
from shunter.cli.options import Json, TargetName, Yes
from shunter.cli.screen import Column, is_interactive, print_facts, print_json, print_table, use_json
from shunter.cli.units import ago, count, local_time, parse_pairs

app = typer.Typer(help="Compute targets: attach, create, list, show, probe.", no_args_is_help=True)

_FREE = {"allow_extra_args": True, "ignore_unknown_options": True}
_Kind = Annotated[str, typer.Option("--kind", metavar="KIND", help="What it is; `shunter compute kinds` lists them.")]
_Force = Annotated[bool, typer.Option("--force", help="Cancel the runs that are there first.")]
_RunConfig = Annotated[
    bool, typer.Option("--write-run-config", help="Also write NAME.runconfig into .azureml/ of this folder.")
]
_Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="K=V", help="A tag; may be repeated.")]


@app.command(context_settings=_FREE)
def create(
    ctx: typer.Context, name: TargetName, kind: _Kind, tag: _Tags = None, write_run_config: _RunConfig = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Create a target. Every other option is one of its kind: `shunter compute kinds KIND` lists them.

    Passwords and other secrets are never given as arguments: `--password` alone asks for it.
    """
    use_json(as_json)
    from shunter.cli.attaching import attach
    from shunter.cli.compute_options import read_options

    ws = workspace()
    config = read_options(list(ctx.args), _schema(ws, kind), kind)
    made = attach(ws, name, kind, parse_pairs(tag, "--tag"), config, quiet=as_json)
    file = made.write_run_config() if write_run_config else None
    if as_json:
        print_json(made.data | ({"run_config": str(file)} if file else {}))
        return
    print(f"Compute target {made.name} of kind {made.kind} is there: `shunter submit --target {made.name} SCRIPT`.")
    if file is not None:
        print(f"{file} is written: `shunter submit --run-config {file} SCRIPT` goes there.")


app.command("attach", context_settings=_FREE, help=(create.__doc__ or "").replace("Create", "Attach", 1))(create)


@app.command("list")
def list_targets(as_json: Json = False) -> None:
    """List compute targets."""
    use_json(as_json)
    found = [target.data for target in workspace().compute.list()]
    if as_json:
        print_json(found)
        return
    columns = [Column("name", 0, 8), Column("kind"), Column("state"), Column("hardware", 1, 12), Column("created", 2)]
    rows = [[t["name"], t["kind"], t["state"], _hardware(t["facts"]), ago(t["created_at"])] for t in found]
    print_table(columns, rows)


@app.command()
def show(name: TargetName, as_json: Json = False) -> None:
    """Show all about a target: options, hardware, room, who runs there."""
    use_json(as_json)
    found = workspace().compute.get(name).show()
    print_json(found) if as_json else _print_target(found)


@app.command()
def probe(name: TargetName, as_json: Json = False) -> None:
    """Reach out to a target and look at its hardware."""
    use_json(as_json)
    found = workspace().compute.get(name).probe()
    print_json(found.data) if as_json else _print_target(found.show())


@app.command(context_settings=_FREE)
def update(ctx: typer.Context, name: TargetName, as_json: Json = False) -> None:
    """Change options of a target: those of its kind, as at `create`."""
    use_json(as_json)
    from shunter.cli.compute_options import read_options
    from shunter.errors import UsageError

    ws = workspace()
    found = ws.compute.get(name)
    config = read_options(list(ctx.args), _schema(ws, found.kind), found.kind, ask_required=False)
    if not config:
        raise UsageError("No option to change was given.", hint=f"`shunter compute kinds {found.kind}` lists them.")
    found.update(**config)
    print_json(found.data) if as_json else _print_target(found.data)


@app.command()
def delete(name: TargetName, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a target that was created. Refused while runs are there; on a terminal it asks first."""
    use_json(as_json)
    found = workspace().compute.get(name)
    if not yes and not as_json and is_interactive():
        typer.confirm(f"Delete compute target {name}?", abort=True)
    found.delete()
    print_json({"deleted": name}) if as_json else print(f"Compute target {name} is gone.")


@app.command()
def detach(name: TargetName, force: _Force = False, as_json: Json = False) -> None:
    """Forget a target that was attached; the machine stays. Refused while runs are there."""
    use_json(as_json)
    workspace().compute.get(name).detach(force=force)
    print_json({"detached": name}) if as_json else print(f"Compute target {name} is detached.")


@app.command("run-config")
def run_config(
    name: TargetName,
    path: Annotated[Path, typer.Option(metavar="DIR", help="The folder whose .azureml/ gets it.")] = Path(),
    as_json: Json = False,
) -> None:
    """Write NAME.runconfig for a target: `shunter submit --run-config FILE SCRIPT` then goes there."""
    use_json(as_json)
    file = workspace().compute.get(name).write_run_config(path)
    print_json({"file": str(file)}) if as_json else print(f"{file} is written.")


@app.command()
def kinds(
    kind: Annotated[str | None, typer.Argument(help="One kind, with its options.")] = None, as_json: Json = False
) -> None:
    """List the kinds of targets that the server knows, or the options of one."""
    use_json(as_json)
    ws = workspace()
    if kind is None:
        found = list(ws.compute.kinds())
        if as_json:
            print_json(found)
            return
        print_table([Column("kind"), Column("can", 0, 20, wrap=True)], [[k["kind"], _abilities(k)] for k in found])
        return
    from shunter.cli.compute_options import option_rows

    schema = _schema(ws, kind)
    if as_json:
        print_json(schema)
        return
    columns = [Column("option"), Column("value"), Column("what it is", 0, 20, wrap=True)]
    print_table(columns, option_rows(schema), "It has no options.")


def _abilities(kind: dict[str, Any]) -> str:
    if "problem" in kind:
        return str(kind["problem"])
    return ", ".join(name for name, able in kind["can"].items() if able and name != "attach")


def _schema(ws: Any, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = ws.compute.kind(kind)["config"]
    return found


def _print_target(target: dict[str, Any]) -> None:
    room = target.get("capacity") or {}
    print_facts(
        {
            "Name": target["name"],
            "Kind": target["kind"],
            "State": target["state"] + (f" ({target['reason']})" if target["reason"] else ""),
            "Reachable": _reachable(target.get("status")),
            "Hardware": _hardware(target["facts"]),
            "System": _system(target["facts"]),
            "Load": _load(target.get("load")),
            "GPUs": _gpus(target.get("load")),
            "Room": room.get("problem") or (count(room["slots"], "run") + " at once" if room else ""),
            "Running": _running(target),
            "Queued": target.get("queued"),
            "Options": "\n".join(f"{k.replace('_', '-')} {v}" for k, v in target["config"].items()),
            "Tags": "\n".join(f"{k}={v}" for k, v in target["tags"].items()),
            "Created": local_time(target["created_at"]),
        }
    )


def _system(facts: dict[str, Any]) -> str:
    details = facts.get("details") or {}
    parts = [facts.get("system"), details.get("machine"), f"Python {facts['python']}" if facts.get("python") else ""]
    return ", ".join(str(p) for p in [*parts, " and ".join(details.get("engines") or [])] if p)


def _load(load: dict[str, Any] | None) -> str:
    """How busy it is now, of those that can say so."""
    from shunter.sdk.snapshots.sizes import in_words

    if not load:
        return ""
    busy = f"{load['load'][0]:.2f} of {count(load['cpus'], 'core')}"
    return f"{busy}; free are {in_words(load['memory_free_bytes'])} of memory and {in_words(load['disk_free_bytes'])} of disk"


def _gpus(load: dict[str, Any] | None) -> str:
    from shunter.sdk.snapshots.sizes import in_words

    return "\n".join(
        f"{g['index']} {g['name']}: {g['utilisation']} % busy, {in_words(g['memory_used_bytes'])} "
        f"of {in_words(g['memory_bytes'])} used"
        for g in (load or {}).get("gpus") or []
    )


def _running(target: dict[str, Any]) -> str:
    lines = [
        f"{r['id'][:8]} {r['name']} {r['status']}" + (f" since {local_time(r['since'])}" if r.get("since") else "")
        for r in target.get("running", [])
    ]
    others = (target.get("load") or {}).get("others")
    return "\n".join(lines + ([f"and {count(others, 'run')} of other servers"] if others else []))


def _reachable(status: dict[str, Any] | None) -> str:
    """Whether a target that keeps a connection answers; empty for others."""
    if not status:
        return ""
    if status["reachable"] is None:
        return str(status.get("why") or "")
    since = f" since {local_time(status['since'])}" if status.get("since") else ""
    return f"yes{since}" if status["reachable"] else f"no{since}: {status.get('why') or ''}"


def _hardware(facts: dict[str, Any]) -> str:
    from shunter.sdk.snapshots.sizes import in_words

    if not facts:
        return ""
    gpus = facts.get("gpus") or ()
    parts = [f"{facts['cpus']} cores", in_words(int(facts["memory_bytes"]))]
    return ", ".join(parts + ([f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''}"] if gpus else []))


app.command("sizes")(cluster.sizes)
app.command("nodes")(cluster.nodes)
