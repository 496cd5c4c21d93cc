"""`shunter run`: look at runs, wait for them, end them, fetch what they made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shunter.cli import CANCELED, COMPLETED, FAILED, INTERRUPTED
from shunter.cli.finding import complete_experiments, complete_targets, find_run, workspace
from shunter.cli.options import Json, RunId, RunIds, Yes
from shunter.cli.screen import clean, is_interactive, print_json, use_json
from shunter.cli.units import count, parse_pairs, parse_seconds

app = typer.Typer(help="Runs: list, show, watch, wait, cancel, download.", no_args_is_help=True)


@app.command("list")
def list_runs(
    experiment: Annotated[
        str | None, typer.Option(metavar="E", help="Only of this experiment.", autocompletion=complete_experiments)
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="T", help="Only on this target.", autocompletion=complete_targets)
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="S[,S]", help="Only in these states, as Running,Queued.")
    ] = None,
    tag: Annotated[str | None, typer.Option(metavar="K=V", help="Only with this tag.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 20,
    as_json: Json = False,
) -> None:
    """List runs, the newest first."""
    use_json(as_json)
    tags = parse_pairs([tag] if tag else None, "--tag")
    found = workspace().runs(experiment=experiment, target=target, status=status, tags=tags, limit=limit)
    _print_runs([run.data for run in found], as_json)


@app.command()
def show(run: RunId, as_json: Json = False) -> None:
    """Show all about a run."""
    use_json(as_json)
    from shunter.cli.run_pages import print_run

    found = find_run(run)
    details = found.details()
    if as_json:
        print_json(details)
    else:
        print_run(details, found.files())


@app.command()
def logs(
    run: RunId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
    attempt: Annotated[int, typer.Option(metavar="N", min=0, help="Which attempt.", show_default="the last")] = 0,
    node: Annotated[int, typer.Option(metavar="N", min=0, help="Which node.")] = 0,
    as_json: Json = False,
) -> int:
    """Print what a run has said. With --json and --follow the log goes to stderr as it comes."""
    use_json(as_json)
    found = find_run(run)
    try:
        said = bytearray()
        for chunk in found.follow(attempt=attempt, node=node) if follow else _log_so_far(found, attempt, node):
            if as_json:
                said += chunk
            if not as_json or follow:
                out = sys.stderr.buffer if as_json else sys.stdout.buffer
                out.write(chunk)
                out.flush()
    except KeyboardInterrupt:
        print(f"\nRun {found.id[:8]} goes on.", file=sys.stderr if as_json else sys.stdout)
        return INTERRUPTED
    if as_json:
        print_json({"id": found.id, "status": found.data["status"], "log": said.decode("utf-8", "replace")})
    return COMPLETED


@app.command()
def wait(
    runs: RunIds,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Give up after so long, as 10min.")] = None,
    as_json: Json = False,
) -> int:
    """Wait until runs are over. The exit status is 0 when all completed, 1 when one failed, 3 when one was canceled."""
    use_json(as_json)
    from shunter.cli.streaming import outcome_line
    from shunter.cli.waiting import wait_for

    ws = workspace()
    found = [ws.run(run) for run in runs]
    try:
        for over in wait_for(ws, found, parse_seconds(timeout)):
            if not as_json:
                print(outcome_line(over), flush=True)
    except KeyboardInterrupt:
        print("\nThe runs go on.", file=sys.stderr if as_json else sys.stdout)
        return INTERRUPTED
    if as_json:
        print_json([run.data for run in found] if len(found) > 1 else found[0].data)
    ends = {run.data["status"] for run in found}
    return FAILED if "Failed" in ends else CANCELED if "Canceled" in ends else COMPLETED


@app.command()
def cancel(runs: RunIds, as_json: Json = False) -> None:
    """Cancel runs and their children. May be repeated; a run that is over stays as it is."""
    use_json(as_json)
    ws = workspace()
    done = [ws.run(run).cancel() for run in runs]
    if as_json:
        print_json([run.data for run in done] if len(done) > 1 else done[0].data)
        return
    for run in done:
        over = run.data["status"] in ("Completed", "Failed", "Canceled")
        print(f"Run {run.id[:8]} is {run.data['status']}." if over else f"Run {run.id[:8]} is being canceled.")


@app.command()
def why(run: RunId, as_json: Json = False) -> None:
    """Say why a run is in its state, whether it can ever start, and what would help."""
    use_json(as_json)
    from shunter.cli.run_pages import print_why

    found = find_run(run)
    answer = found.why()
    if as_json:
        print_json({"id": found.id} | answer)
    else:
        print_why(found.data, answer)


@app.command()
def events(run: RunId, as_json: Json = False) -> None:
    """List all that happened to a run, oldest first."""
    use_json(as_json)
    from shunter.cli.run_pages import print_events

    found = find_run(run).events()
    print_json(found) if as_json else print_events(found)


@app.command()
def files(
    run: RunId,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="First bring home what a running script has written so far.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the files of a run."""
    use_json(as_json)
    from shunter.cli.run_pages import print_files

    found = find_run(run).files(refresh=refresh)
    print_json(found) if as_json else print_files(found)


@app.command()
def download(
    run: RunId,
    prefix: Annotated[str, typer.Argument(help="Only files whose path begins with this, as outputs/model.")] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where to put them.", show_default="a folder named after the run"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Download the files of a run."""
    use_json(as_json)
    from shunter.cli.progress import Bar

    found = find_run(run)
    folder = output if output is not None else Path(found.id[:8])
    with Bar() as bar:
        written = found.download(folder, prefix=prefix, progress=bar)
    if as_json:
        print_json({"id": found.id, "output": str(folder), "files": [str(path) for path in written]})
    else:
        print(f"{count(len(written), 'file')} in {clean(folder)}." if written else f"Run {found.id[:8]} has no files.")


@app.command()
def rerun(
    run: RunId,
    target: Annotated[
        str | None, typer.Option(metavar="T", help="Elsewhere this time.", autocompletion=complete_targets)
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="On the whole of inputs that were sampled.")] = False,
    from_checkpoint: Annotated[
        bool, typer.Option("--from-checkpoint", help="Go on from the run's last checkpoints.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for it.")] = False,
    as_json: Json = False,
) -> int:
    """Start the same snapshot, arguments and configuration again, and stream the log."""
    use_json(as_json)
    from shunter.cli.submitting import follow_or_leave

    changes: dict[str, Any] = {"target": target} if target else {}
    again = find_run(run).rerun(full=full, from_checkpoint=from_checkpoint, **changes)
    return follow_or_leave(again, detach, as_json, {})


@app.command()
def delete(runs: RunIds, yes: Yes = False, as_json: Json = False) -> None:
    """Delete runs that are over, with their logs and files. On a terminal it asks first."""
    use_json(as_json)
    ws = workspace()
    found = [ws.run(run) for run in runs]
    if not yes and not as_json and is_interactive():
        names = ", ".join(f"{run.id[:8]} ({run.name})" for run in found)
        typer.confirm(f"Delete {names} with logs and files?", abort=True)
    for run in found:
        run.delete()
    if as_json:
        print_json({"deleted": [run.id for run in found]})
    else:
        print(f"Deleted {', '.join(run.id[:8] for run in found)}.")


@app.command()
def children(run: RunId, as_json: Json = False) -> None:
    """List the children of a run."""
    use_json(as_json)
    _print_runs([child.data for child in find_run(run).children()], as_json, "It has no children.")


@app.command()
def tag(
    run: RunId,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[K=V]...", help="Tags to set.")] = None,
    remove: Annotated[list[str] | None, typer.Option(metavar="K", help="A tag to remove; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Set and remove tags of a run."""
    use_json(as_json)
    given = parse_pairs(tags, "a tag")
    found = find_run(run)
    data = found.workspace.client.call("PATCH", found.path + "/tags", {"tags": given, "remove": remove or []})
    if as_json:
        print_json(data)
    else:
        print("\n".join(f"{clean(k)}={clean(v)}" for k, v in data["tags"].items()) or "It has no tags.")


def _print_runs(
    runs: list[dict[str, Any]], as_json: bool, empty: str = "No runs. `shunter submit SCRIPT` starts one."
) -> None:
    from shunter.cli.run_pages import print_runs

    print_json(runs) if as_json else print_runs(runs, empty)


def _log_so_far(run: Any, attempt: int, node: int) -> Any:
    """The log up to now, bytes as they are."""
    offset = 0
    while True:
        query = {"offset": offset, "attempt": attempt, "node": node}
        answer = run.workspace.client.raw("GET", run.path + "/log", query=query)
        if not answer.body:
            return
        yield answer.body
        offset, attempt = int(answer.headers["x-shunter-offset"]), int(answer.headers["x-shunter-attempt"])


def _join(module: str) -> None:
    """Commands of other modules that belong to this noun."""
    import importlib
    import importlib.util

    if importlib.util.find_spec(f"shunter.cli.{module}") is not None:
        app.command(module)(importlib.import_module(f"shunter.cli.{module}").command)


for _name in ("metrics", "compare", "shell"):
    _join(_name)
