"""`shunter experiment`: what was tried under which name."""

from __future__ import annotations

from typing import Annotated

import typer

from shunter.cli.finding import complete_experiments, workspace
from shunter.cli.options import Json
from shunter.cli.screen import Column, print_facts, print_json, print_table, use_json
from shunter.cli.units import ago, local_time

app = typer.Typer(help="Experiments: list, show.", no_args_is_help=True)


@app.command("list")
def list_experiments(as_json: Json = False) -> None:
    """List experiments."""
    use_json(as_json)
    ws = workspace()
    found = ws.client.get(f"{ws.path}/experiments")
    if as_json:
        print_json(found)
        return
    columns = [Column("experiment", 0, 12), Column("runs", right=True), Column("created", 1)]
    rows = [[e["name"], e["runs"], ago(e["created_at"])] for e in found]
    print_table(columns, rows, "No experiments. `shunter submit SCRIPT` starts one.")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="The experiment's name.", autocompletion=complete_experiments)],
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many runs.")] = 20,
    as_json: Json = False,
) -> None:
    """Show an experiment and its newest runs."""
    use_json(as_json)
    from shunter.cli.run_pages import print_runs
    from shunter.sdk.client import part

    ws = workspace()
    found = ws.client.get(f"{ws.path}/experiments/{part(name)}")
    runs = [run.data for run in ws.runs(experiment=name, limit=limit)]
    if as_json:
        print_json(found | {"newest": runs})
        return
    statuses = ", ".join(f"{number} {status}" for status, number in found["statuses"].items())
    print_facts(
        {"Experiment": found["name"], "Created": local_time(found["created_at"]), "Runs": statuses or "none yet"}
    )
    if runs:
        print()
        print_runs(runs, "")
