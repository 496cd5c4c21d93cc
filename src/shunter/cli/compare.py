"""`shunter run compare`: what differs between runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shunter.cli.finding import workspace
from shunter.cli.metrics import finite
from shunter.cli.options import Json, RunIds
from shunter.cli.screen import Column, clean, paint, print_json, print_table, use_json


def command(
    runs: RunIds,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Show the lines of code that differ.")] = True,
    every: Annotated[bool, typer.Option("--all", help="Show also what is the same.")] = False,
    as_json: Json = False,
) -> None:
    """Show what differs between runs: code, environment, arguments, metrics, time, cost."""
    use_json(as_json)
    ws = workspace()
    found = ws.compare(*[ws.run(run) for run in runs])
    if as_json:
        print_json(finite(found))
        return
    titles = [about["id"][:8] for about in found["runs"]]
    names = [Column("run"), Column("name", 1, 8), Column("status", 1), Column("target", 2)]
    print_table(names, [[a["id"][:8], a["name"], a["status"], a["target"]] for a in found["runs"]])
    for section, rows in found["sections"].items():
        shown = [row for row in rows if every or not row["same"] or section in ("time", "metrics")]
        _print_section(section, titles, [row for row in shown if any(value is not None for value in row["values"])])
    for title, about in zip(titles[1:], found["code"], strict=True):
        _print_code(titles[0], title, about, code)


def _print_section(section: str, titles: list[str], rows: list[dict[str, Any]]) -> None:
    from shunter.sdk.compare import shown

    if not rows:
        return
    print("\n" + paint(section.capitalize(), "bold"))
    columns = [Column(section, 0, 10), *[Column(title, 0, 8) for title in titles]]
    print_table(columns, [[row["name"], *[shown(value) for value in row["values"]]] for row in rows])


def _print_code(first: str, second: str, about: dict[str, Any], lines: bool) -> None:
    changed = about["changed"]
    what = f"{len(changed)} file{'s' if len(changed) != 1 else ''} of {second}" if changed else ""
    print(
        "\n"
        + paint(f"Code: {what} differ from {first}" if changed else f"Code: {second} ran the same as {first}", "bold")
    )
    if not lines:
        for path in changed:
            print("  " + clean(path))
        return
    for line in about["diff"].split("\n") if about["diff"] else ():
        color = "green" if line.startswith("+") else "red" if line.startswith("-") else ""
        print(paint(clean(line), color) if color else clean(line))
