"""`shunter model`: what became of runs: registered, listed, downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shunter.cli.finding import complete_runs, workspace
from shunter.cli.options import Json, Yes
from shunter.cli.screen import Column, clean, is_interactive, print_json, print_table, use_json
from shunter.cli.units import ago

app = typer.Typer(help="Models: register, list, show, download, delete.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The model's name.")]
Version = Annotated[str | None, typer.Option(metavar="N", help="Its version or alias; the newest if not given.")]


@app.command()
def register(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="The run that made it; else PATH is here.", autocompletion=complete_runs)
    ],
    path: Annotated[str | None, typer.Argument(help="A file or folder of the run, or the name of a model it logged.")] = None,
    *,
    name: Annotated[str, typer.Option("--name", help="The model's name.")],
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A tag; may be repeated.")] = None,
    alias: Annotated[list[str] | None, typer.Option(help="An alias; may be repeated.")] = None,
    description: Annotated[str, typer.Option(help="What it is.")] = "",
    as_json: Json = False,
) -> None:
    """Register a new version of a model from the files of a run: RUN PATH; or from a file or folder here: PATH."""
    use_json(as_json)
    tags = dict(t.partition("=")[::2] for t in tag or ())
    of, where = (run, path) if path is not None else (None, run)
    model = workspace().models.register(of, where, name, tags=tags, aliases=alias or (), description=description)
    if as_json:
        print_json(model.data)
    else:
        print(f"{clean(model.name)} version {model.version} is registered: {clean(model.uri)}")


@app.command("list")
def list_models(as_json: Json = False) -> None:
    """List the models, with the newest version of each."""
    use_json(as_json)
    found = [m.data for m in workspace().models.list()]
    if as_json:
        print_json(found)
        return
    _table(found, "No models. `shunter model register [RUN] PATH --name NAME` makes one.")


@app.command()
def show(name: Name, version: Version = None, as_json: Json = False) -> None:
    """Show a model: its versions, or one of them with its run, snapshot, environment and metrics."""
    use_json(as_json)
    models = workspace().models
    if version is None:
        found = [m.data for m in models.versions(name)]
        print_json(found) if as_json else _table(found, "It has no versions.")
        return
    data = models.get(name, version).data
    if as_json:
        print_json(data)
        return
    for key in ("name", "version", "aliases", "run_id", "snapshot_id", "environment_lock", "metrics", "tags", "uri"):
        print(f"{key:17} {clean(str(data.get(key) if data.get(key) is not None else '-'))}")


@app.command()
def download(
    name: Name,
    version: Version = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to; this folder if not given.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a model's files into DIR/NAME."""
    use_json(as_json)
    target = workspace().models.download(name, version, output)
    print_json({"path": str(target)}) if as_json else print(f"{clean(name)} is in {target}")


@app.command()
def delete(name: Name, version: Version = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete a version of a model, or the model with all of them. Its runs stay."""
    use_json(as_json)
    what = f"version {version} of {name}" if version else f"{name} with all its versions"
    if not yes and not as_json and is_interactive():
        typer.confirm(f"Delete {clean(what)}?", abort=True)
    workspace().models.delete(name, version)
    print_json({"deleted": name, "version": version}) if as_json else print(f"Deleted {clean(what)}.")


@app.command()
def ui(as_json: Json = False) -> None:
    """Print a link that opens MLflow's pages in a browser. It works once, and soon."""
    use_json(as_json)
    client = workspace().client
    address = client.url + client.post("/api/v1/mlflow/link")["path"]
    print_json({"url": address}) if as_json else print(address)


def _table(found: list[dict[str, object]], empty: str) -> None:
    rows = [
        [str(m["name"]), str(m["version"] or "-"), str(m["run_id"] or "-")[:8], ", ".join(map(str, m["aliases"])),  # type: ignore[call-overload]
         ago(m["created_at"])]  # type: ignore[arg-type]
        for m in found
    ]  # fmt: skip
    columns = [Column("model", 0, 12), Column("version"), Column("run"), Column("aliases", 1), Column("registered", 1)]
    print_table(columns, rows, empty)
