"""`shunter env`: what scripts need. Registered by name, locked for a target, built on it, cleaned up there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.cli.finding import complete_targets, workspace
from shunter.cli.options import Json, Yes
from shunter.cli.screen import Column, is_interactive, is_terminal, print_facts, print_json, print_table, use_json
from shunter.cli.units import ago, count, parse_seconds

app = typer.Typer(help="Environments: register, list, show, lock, build, diff, delete, gc.", no_args_is_help=True)

Which = Annotated[str, typer.Argument(metavar="NAME|FILE", help="An environment: NAME, NAME:VERSION, or a file.")]
Target = Annotated[
    str, typer.Option("--target", metavar="T", help="The compute target.", autocompletion=complete_targets)
]


@app.command()
def register(
    file: Annotated[Path, typer.Argument(help="A requirements, conda, pyproject or environment file.", exists=True)],
    name: Annotated[str | None, typer.Option(metavar="N", help="Its name.", show_default="the file's")] = None,
    as_json: Json = False,
) -> None:
    """Keep an environment under a name: as the next version, unless nothing changed."""
    use_json(as_json)
    from shunter.sdk.environment import Environment

    environment = Environment.from_file(file)
    stem = file.resolve().parent.name if file.name in _USUAL else file.stem
    environment = environment.evolve(name=name or environment.name or stem)
    kept = workspace().environments.register(environment)
    if as_json:
        print_json({"name": kept.name, "version": kept.version, "environment": kept.to_wire()})
    else:
        print(f"Environment {kept.name}, version {kept.version}: `shunter submit --environment {kept.name} SCRIPT`.")


@app.command("list")
def list_environments(
    curated: Annotated[bool, typer.Option("--curated", help="Those that come with Shunter.")] = False,
    as_json: Json = False,
) -> None:
    """List environments: the registered ones, or with --curated those that come with Shunter."""
    use_json(as_json)
    environments = workspace().environments
    found = environments.curated() if curated else environments.list()
    if as_json:
        print_json(found)
    elif curated:
        columns = [
            Column("name"),
            Column("for", 2, 8),
            Column("variant"),
            Column("what", 1, 20),
            Column("packages", 3, 20),
        ]
        rows = [
            [e["name"], e["framework"], e["variant"], e["environment"]["description"], _packages(e["environment"])]
            for e in found
        ]
        print_table(columns, rows)
    else:
        columns = [
            Column("name", 0, 8),
            Column("version"),
            Column("kind"),
            Column("what", 1, 20),
            Column("registered", 2),
        ]
        rows = [[e["name"], e["version"], e["kind"], _packages(e["environment"]), ago(e["created_at"])] for e in found]
        print_table(
            columns, rows, "None is registered; `shunter env list --curated` shows those that come with Shunter."
        )


@app.command()
def show(which: Which, as_json: Json = False) -> None:
    """Show an environment."""
    use_json(as_json)
    found = _find(which)
    environment = workspace().environments.get(found) if isinstance(found, str) else found
    wire = environment.to_wire()
    if as_json:
        print_json({"name": environment.name, "version": environment.version, "kind": environment.kind,
                    "content_id": environment.content_id, "environment": wire})  # fmt: skip
        return
    facts: dict[str, Any] = {"Name": environment.name, "Version": environment.version, "Kind": environment.kind}
    for key, value in wire.items():
        if key not in ("name", "version"):
            facts[key.replace("_", " ").capitalize()] = _text(value)
    print_facts(facts)


@app.command()
def lock(
    which: Which,
    target: Target = "local",
    again: Annotated[bool, typer.Option("--again", help="Solve anew, also when a lock is kept.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the lock's text there.")] = None,
    as_json: Json = False,
) -> None:
    """Solve an environment for a target: exact versions and hashes, kept for all runs that ask for the same."""
    use_json(as_json)
    from shunter.cli.spinner import waiting

    with waiting(f"Solving {which} for {target}", enabled=not as_json):
        found = workspace().environments.lock(_find(which), target, again)
    if output is not None:
        output.write_text((found["conda"] or "") + (found["pip"] or ""), "utf-8")
    if as_json:
        print_json(found)
        return
    print(f"Lock {found['id'][:12]} for {found['platform']}, Python {found['python']}, from {found['source']}:")
    print_table(
        [Column("package"), Column("version")], [[k, v] for k, v in sorted(found["packages"].items())], "No packages."
    )
    if found["ours"]:
        print(f"Satisfied by Shunter itself: {', '.join(found['ours'])}")


@app.command()
def build(
    which: Which,
    target: Target = "local",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file of one that is there; build it again if one differs.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Build an environment on a target before a run needs it, and stream what the installer says."""
    use_json(as_json)
    from shunter.cli.submitting import follow_or_leave

    run = workspace().environments.build(_find(which), target, verify)
    if not as_json and is_terminal():
        from shunter.cli.building import watch_build

        return watch_build(run)
    return follow_or_leave(run, False, as_json, {})


@app.command()
def diff(before: Which, after: Which, target: Target = "", as_json: Json = False) -> None:
    """Compare two environments; with --target also the versions that their locks have there."""
    use_json(as_json)
    environments = workspace().environments
    one, other = _find(before), _find(after)
    found = [{"what": d.what, "before": d.before, "after": d.after} for d in environments.diff(one, other)]
    if target:
        left, right = (environments.lock(e, target)["packages"] for e in (one, other))
        found += [
            {"what": name, "before": left.get(name, ""), "after": right.get(name, "")}
            for name in sorted(left.keys() | right.keys())
            if left.get(name) != right.get(name)
        ]
    if as_json:
        print_json(found)
        return
    rows = [[d["what"], d["before"] or "–", d["after"] or "–"] for d in found]
    print_table([Column("what"), Column(before, 0, 10), Column(after, 0, 10)], rows, "They are the same.")


@app.command()
def delete(which: Which, yes: Yes = False, as_json: Json = False) -> None:
    """Forget a registered environment, or one version of it. Runs keep what they were given."""
    use_json(as_json)
    if not yes and not as_json and is_interactive():
        typer.confirm(f"Delete environment {which}?", abort=True)
    name, _, version = which.partition(":")
    gone = workspace().environments.delete(name, version)
    print_json({"deleted": gone}) if as_json else print(f"Environment {which} is gone ({count(gone, 'version')}).")


@app.command()
def gc(
    target: Target = "local",
    older_than: Annotated[str, typer.Option(metavar="TIME", help="Not used for so long, as 30d.")] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Say what a target's built environments take, and free those that were not used for long; never one in use."""
    use_json(as_json)
    from shunter.sdk.snapshots import in_words

    environments, seconds = workspace().environments, parse_seconds(older_than) or 0.0
    would = environments.clean(target, seconds)
    if not as_json:
        _print_built(would)
        print(f"Would free {len(would['freed'])} environments, {in_words(would['freed_bytes'])}.")
    ask = not yes and not as_json and is_interactive()
    if dry_run or not would["freed"] or (not yes and not ask) or (ask and not typer.confirm("Free them?")):
        if as_json:
            print_json(would)
        return
    done = environments.clean(target, seconds, really=True)
    print_json(done) if as_json else print(f"Freed {in_words(done['freed_bytes'])}.")


_USUAL = ("requirements.txt", "conda_dependencies.yml", "environment.yml", "pyproject.toml", "uv.lock", "Dockerfile")


def _find(which: str) -> Any:
    from shunter.sdk.environment import from_name_or_file

    return from_name_or_file(which)


def _packages(wire: dict[str, Any]) -> str:
    box = wire.get("container") or {}
    parts = [box.get("image") or ("a Dockerfile" if box.get("dockerfile") else "")] if box else []
    parts += [wire.get("interpreter") or ""] if wire.get("user_managed") else []
    return ", ".join([p for p in parts if p] + list(wire.get("conda_packages", ())) + list(wire.get("packages", ())))


def _print_built(found: dict[str, Any]) -> None:
    import time
    from datetime import UTC, datetime

    from shunter.sdk.snapshots import in_words

    rows = []
    for e in found["environments"]:
        used = ago(datetime.fromtimestamp(e["used_at"] or time.time(), UTC).isoformat())
        state = "in use" if e["in_use"] else "freeable" if e["key"] in found["freed"] else "kept"
        rows.append([e["key"][:12], e["python"], in_words(e["bytes"]), used, state])
    columns = [Column("lock"), Column("python"), Column("size", right=True), Column("used", 1), Column("state")]
    print_table(columns, rows, "Nothing is built there.")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{k}={v}" for k, v in value.items())
    if isinstance(value, list):
        return "\n".join(str(v) for v in value)
    return str(value)
