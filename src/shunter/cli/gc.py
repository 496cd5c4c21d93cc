"""`shunter gc`: free what nothing refers to any more."""

from __future__ import annotations

from typing import Annotated

import typer

from shunter.cli.finding import workspace
from shunter.cli.options import Json
from shunter.cli.screen import Column, is_interactive, print_json, print_table, use_json
from shunter.cli.units import parse_seconds


def command(
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Also delete runs that ended longer ago than this, as 30d.")
    ] = None,
    keep_checkpoints: Annotated[
        bool, typer.Option("--keep-checkpoints", help="Keep the checkpoints of completed runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be freed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Say what can be freed, and free it: snapshots and inputs that no run needs, checkpoints of completed runs, pieces
    of files that never became whole."""
    use_json(as_json)
    from shunter.sdk.snapshots import in_words

    ws = workspace()
    seconds = parse_seconds(older_than)
    asked = {"older_than_days": None if seconds is None else seconds / 86400, "checkpoints": not keep_checkpoints}
    would = ws.collect_garbage(dry_run=True, **asked)
    if dry_run and as_json:
        print_json(would)
        return
    if not as_json:
        rows = [[kind, found["count"], in_words(found["bytes"])] for kind, found in would["kinds"].items()]
        print_table(
            [Column("what"), Column("count", right=True), Column("size", right=True)], rows, "There is nothing to free."
        )
    if dry_run or not would["kinds"]:
        if as_json:
            print_json(would)
        return
    if not yes and not as_json and is_interactive():
        typer.confirm(f"Free {in_words(would['bytes'])}?", abort=True)
    done = ws.collect_garbage(dry_run=False, **asked)
    print_json(done) if as_json else print(f"Freed {in_words(would['bytes'])}.")
