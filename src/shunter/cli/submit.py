"""`shunter submit` as Typer sees it: its help, its completion, its errors. What it does is in `submitting.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from shunter.cli.finding import complete_experiments, complete_targets
from shunter.cli.options import Json, Yes
from shunter.cli.submit_words import arrange
from shunter.cli.submitting import SNAPSHOT_LIMIT, submit


def command(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, by its path inside the source folder.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Its arguments, passed on untouched.")
    ] = None,
    source: Annotated[Path, typer.Option(metavar="DIR", help="The folder to freeze and run from.")] = Path(),
    target: Annotated[
        str | None,
        typer.Option(metavar="T", help="The compute target.", show_default="local", autocompletion=complete_targets),
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option(
            metavar="E", help="The experiment.", show_default="the folder's name", autocompletion=complete_experiments
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="N", help="A name for the run.")] = None,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="An environment's name, or a requirements, conda or pyproject file."),
    ] = None,
    run_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .runconfig file; options given here win over it.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(metavar="N", help="How many nodes.")] = None,
    vm_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Make a cluster of this size for the run, and delete it after.")
    ] = None,
    processes_per_node: Annotated[int | None, typer.Option(metavar="N", help="Processes on each node.")] = None,
    communicator: Annotated[
        str | None, typer.Option(metavar="NAME", help="How the processes of a distributed run talk: Gloo, Nccl, Mpi.")
    ] = None,
    cpus: Annotated[float | None, typer.Option(metavar="N", help="Cores for it.")] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs for it.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory for it, as 4GB.")] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="An environment variable for the script; may be repeated.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A tag; may be repeated.")] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH|URL",
            help="Data for the script, sent once; node:/path is there already; may be repeated.",
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="K%", help="Try it on so much of the inputs first; `run rerun --full` takes all."),
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option(metavar="[VAR=]NAME", help="A secret as environment variable; may be repeated.")
    ] = None,
    notify: Annotated[
        list[str] | None, typer.Option(metavar="URL|COMMAND", help="Whom to tell when it is over; may be repeated.")
    ] = None,
    keep_checkpoints: Annotated[
        int | None, typer.Option(metavar="N", help="How many checkpoints to keep.", show_default="5")
    ] = None,
    max_silence: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Name the rank that others wait for when all were silent so long, and end the run."),
    ] = None,
    max_duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="End it after so long, as 90s or 2h.")
    ] = None,
    snapshot_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Ask before sending more than this (or SHUNTER_SNAPSHOT_LIMIT).",
            show_default=SNAPSHOT_LIMIT,
        ),
    ] = None,
    yes: Yes = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for it.")] = False,
    as_json: Json = False,
) -> int:
    """Submit SCRIPT and stream its log. The exit status is the run's: 0 completed, 1 failed, 2 refused, 3 canceled.

    Options may also follow SCRIPT. The first word there that is none of them, and everything after it, goes to the
    script; `--` says so at once.
    """
    return submit(**locals())


class Command(TyperCommand):
    """Sorts the words first: which are options of submit and which belong to the script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with_value: set[str] = set()
        flags: set[str] = set()
        for param in self.params:
            if getattr(param, "param_type_name", "") == "option":
                names = [*param.opts, *param.secondary_opts]
                (flags if getattr(param, "is_flag", False) else with_value).update(names)
        return super().parse_args(ctx, arrange(args, with_value, flags | {"-h", "--help"}))
