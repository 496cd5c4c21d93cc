"""`shunter secret`: values that scripts need and nobody else may see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shunter.cli.finding import workspace
from shunter.cli.options import Json, Yes
from shunter.cli.screen import Column, clean, is_interactive, print_json, print_table, use_json
from shunter.cli.units import ago

app = typer.Typer(help="Secrets for scripts: set, list, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The secret's name.")]


@app.command("set")
def set_secret(
    name: Name,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read the value from this file.", exists=True, dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Keep a secret, sealed. The value is asked for, or read from standard input or a file: never from the command
    line, which other users of this machine can see."""
    use_json(as_json)
    if file is not None:
        value = file.read_text()
    elif is_interactive():
        value = typer.prompt("Value", hide_input=True, confirmation_prompt=True)
    else:
        value = sys.stdin.read()
    done = workspace().secrets.set(name, value.removesuffix("\n"))
    if as_json:
        print_json(done)
        return
    word = "set" if done["new"] else "changed"
    print(f"Secret {clean(name)} is {word}. `shunter submit --secret {clean(name)} …` gives it to a run.")
    if done["warning"]:
        print(f"Warning: {done['warning']}", file=sys.stderr)


@app.command("list")
def list_secrets(as_json: Json = False) -> None:
    """List the names of secrets. Values are never shown."""
    use_json(as_json)
    found = workspace().secrets.list()
    if as_json:
        print_json(found)
        return
    rows = [[one["name"], ago(one["updated_at"]), ago(one["created_at"])] for one in found]
    print_table(
        [Column("secret", 0, 12), Column("changed"), Column("created", 1)],
        rows,
        "No secrets. `shunter secret set NAME` keeps one.",
    )


@app.command()
def delete(name: Name, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a secret. Runs that have it go on; runs that ask for it later are refused."""
    use_json(as_json)
    if not yes and not as_json and is_interactive():
        typer.confirm(f"Delete the secret {clean(name)}?", abort=True)
    workspace().secrets.delete(name)
    print_json({"deleted": name}) if as_json else print(f"Secret {clean(name)} is deleted.")
