"""Commands of `shunter compute` for targets with nodes of their own: sizes to choose from, nodes that are there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shunter.cli.finding import workspace
from shunter.cli.options import Json, TargetName
from shunter.cli.screen import Column, print_json, print_table, use_json
from shunter.cli.units import ago


def sizes(
    text: Annotated[str | None, typer.Argument(help="Part of a name, in any case.")] = None,
    cloud: Annotated[str | None, typer.Option(metavar="NAME", help="azure, aws, gcp, or own.")] = None,
    region: Annotated[str | None, typer.Option(metavar="NAME", help="Only sizes sold there, with its prices.")] = None,
    cpus: Annotated[int | None, typer.Option(metavar="N", help="At least so many cores.")] = None,
    memory: Annotated[float | None, typer.Option(metavar="GIB", help="At least so much memory.")] = None,
    gpus: Annotated[float | None, typer.Option(metavar="N", help="At least so many GPUs.")] = None,
    gpu: Annotated[str | None, typer.Option(metavar="MODEL", help="With this model of GPU, as T4 or A100.")] = None,
    gpu_memory: Annotated[float | None, typer.Option(metavar="GIB", help="At least so much memory on each GPU.")] = None,
    price: Annotated[float | None, typer.Option(metavar="USD", help="At most so many dollars an hour.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Show so many.")] = 25,
    as_json: Json = False,
) -> None:
    """List machine sizes, cheapest first. A `sizes.csv` in SHUNTER_HOME adds your own."""
    use_json(as_json)
    found = workspace().compute.sizes(
        text=text, cloud=cloud, region=region, min_cpus=cpus, min_memory_gib=memory, min_gpus=gpus, gpu_model=gpu,
        min_gpu_memory_gib=gpu_memory, max_usd_per_hour=price, limit=limit,
    )  # fmt: skip
    if as_json:
        print_json(list(found))
        return
    columns = [Column("size", 0, 12), Column("cores"), Column("memory GiB"), Column("GPUs", 1)]
    columns += [Column("$/hour"), Column("spot $/h", 2)]
    print_table(columns, [_row(size) for size in found], "No size fits. Ask for less, or leave the region out.")


def nodes(name: TargetName, as_json: Json = False) -> None:
    """List the nodes of a cluster: those that are there, and those that came to nothing a short while ago."""
    use_json(as_json)
    found = workspace().compute.get(name).show()
    if as_json:
        print_json({"node_counts": found.get("node_counts", {}), "nodes": found.get("nodes", [])})
        return
    columns = [Column("node"), Column("state"), Column("asked for"), Column("runs", 0, 10), Column("why", 1, 10)]
    rows = [
        [n["name"], n["state"], ago(n["asked_at"]), ", ".join(r[:8] for r in n["runs"]), n["why"]] for n in found.get("nodes", [])
    ]
    print_table(columns, rows, f"{name} has no nodes now.")


def _row(size: dict[str, Any]) -> list[str]:
    gpus = f"{size['gpus']:g} × {size['gpu_model'] or '?'}" if size["gpus"] else ""
    prices = [_dollars(size["usd_per_hour"]), _dollars(size["spot_usd_per_hour"])]
    return [size["name"], str(size["cpus"]), f"{size['memory_gib']:g}", gpus, *prices]


def _dollars(price: float | None) -> str:
    return "" if price is None else f"{price:.4g}"
