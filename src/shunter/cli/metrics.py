"""`shunter run metrics`: what a run measured, as numbers, as curves in the terminal, as a PNG."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.cli.finding import find_run
from shunter.cli.options import Json, RunId
from shunter.cli.screen import Column, clean, is_terminal, print_json, print_table, terminal_width, use_json


def command(
    run: RunId,
    names: Annotated[list[str] | None, typer.Argument(metavar="[METRIC]...", help="Only these.")] = None,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the curves to this picture.")] = None,
    plot: Annotated[bool, typer.Option("--plot/--no-plot", help="Draw curves of what was logged repeatedly.")] = True,
    points: Annotated[
        int, typer.Option(metavar="N", min=2, help="Points of each curve, thinned on the server.")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """Show the metrics of a run."""
    use_json(as_json)
    from shunter.sdk.metrics import draw, write_png

    found = find_run(run)
    wanted = list(names or ())
    if png is not None:
        written = write_png([(found.name, found.series(*wanted, points=points))], png)
        print_json({"id": found.id, "png": str(written)}) if as_json else print(f"Written to {clean(written)}.")
        return
    values = {name: value for name, value in found.metrics().items() if not wanted or name in wanted}
    if as_json:
        print_json(finite({"id": found.id, "metrics": values}))
        return
    series = {one.name: one for one in found.series(points=points) if not wanted or one.name in wanted}
    rows = [(name, kind_of(value), shown(value)) for name, value in values.items()]
    columns = [Column("metric", 0, 12), Column("logged", 1), Column("value", 0, 10)]
    print_table(columns, rows, "It has logged no metrics." if not wanted else "It has logged nothing by that name.")
    width = min(terminal_width(), 100) if is_terminal() else 72
    for one in series.values():
        if plot and one.count > 1:
            print("\n" + "\n".join(clean(line) for line in draw(one, width=width).split("\n")))


def kind_of(value: Any) -> str:
    """
    >>> kind_of(0.5), kind_of([1, 2]), kind_of({"a": [1, 2], "b": [3, 4]})
    ('once', '2 values', '2 columns')
    """
    if isinstance(value, list):
        return f"{len(value)} values"
    return f"{len(value)} columns" if isinstance(value, dict) else "once"


def shown(value: Any) -> str:
    """
    >>> shown([0.5, 0.25]), shown({"x": [1, 2]}), shown("images/a.png")
    ('last 0.25', 'x', 'images/a.png')
    """
    from shunter.sdk.metrics import number

    if isinstance(value, list):
        return f"last {number(value[-1])}" if value else "empty"
    if isinstance(value, dict):
        return ", ".join(value)
    return number(value)


def finite(value: Any) -> Any:
    """JSON has no NaN: it is shown by its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, list) else value
