"""`shunter snapshot`: what a submit would freeze, and how to get it back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.cli.options import Json
from shunter.cli.screen import Column, print_json, print_list, print_table, use_json
from shunter.cli.units import count

app = typer.Typer(help="Snapshots: preview what a submit would freeze, restore what one froze.", no_args_is_help=True)

SHOWN_FILES = 15


@app.command()
def preview(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The source folder.")] = Path(),
    everything: Annotated[bool, typer.Option("--all", help="List every file, not only the largest.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a submit of a folder would freeze and what it would leave out. Nothing is sent."""
    use_json(as_json)
    from shunter.cli.progress import Bar
    from shunter.cli.submitting import describe, snapshot_line
    from shunter.home import HomeFolder
    from shunter.sdk.snapshots import freeze, in_words

    with Bar() as bar:
        cache = HomeFolder.find().cache
        frozen = freeze(folder, cache_dir=cache, progress=lambda p: bar("Reading", p.bytes_done, p.bytes_total))
    entries = frozen.manifest.entries
    if as_json:
        paths = [{"path": e.path, "bytes": e.size} for e in entries]
        largest = [{"path": s.path, "bytes": s.bytes, "files": s.files} for s in frozen.largest()]
        print_json(describe(frozen) | {"paths": paths, "largest": largest, "git": _git(frozen.git)})
        return
    print(snapshot_line(frozen))
    ordered = entries if everything else sorted(entries, key=lambda e: -e.size)[:SHOWN_FILES]
    rows = [[entry.path + (f" -> {entry.target}" if entry.target else ""), in_words(entry.size)] for entry in ordered]
    print_table([Column("path", 0, 12), Column("size", right=True)], rows)
    if len(entries) > len(ordered):
        print(f"… and {count(len(entries) - len(ordered), 'smaller file')}; --all lists them.")
    print_list("Left out", [f"{path} (by {rule})" for path, rule in frozen.ignored.paths])
    if frozen.ignored.count > len(frozen.ignored.paths):
        print(f"  … and {frozen.ignored.count - len(frozen.ignored.paths)} more")


@app.command()
def restore(
    what: Annotated[
        str, typer.Argument(metavar="SNAPSHOT|RUN", help="A snapshot's id, or a run whose snapshot it is.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    as_json: Json = False,
) -> None:
    """Bring a snapshot back into a new folder."""
    use_json(as_json)
    from shunter.cli.finding import workspace
    from shunter.cli.progress import Bar
    from shunter.sdk.snapshots.restore import restore

    ws = workspace()
    snapshot_id = what if re.fullmatch(r"[0-9a-f]{64}", what) else ws.run(what).data["snapshot_id"]
    with Bar() as bar:
        manifest = restore(ws.client, snapshot_id, folder, progress=bar)
    if as_json:
        print_json({"snapshot_id": snapshot_id, "output": str(folder), "files": len(manifest.entries)})
    else:
        print(f"{count(len(manifest.entries), 'file')} of snapshot {snapshot_id[:8]} in {folder}.")


def _git(found: Any) -> dict[str, Any] | None:
    return None if found is None else found._asdict()
