"""Options and arguments that many commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from shunter.cli.finding import complete_runs, complete_targets

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, the beginning of it, or its name.", autocompletion=complete_runs),
]
RunIds = Annotated[
    list[str],
    typer.Argument(metavar="RUN...", help="Runs: ids, their beginnings, or names.", autocompletion=complete_runs),
]
TargetName = Annotated[
    str, typer.Argument(metavar="NAME", help="The compute target's name.", autocompletion=complete_targets)
]
