"""`shunter server`: in the foreground, or the person's own one in the background."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from shunter.cli.options import Json
from shunter.cli.screen import print_facts, print_json, use_json

app = typer.Typer(help="The server: in the foreground, or your own in the background.", invoke_without_command=True)


@app.callback()
def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="The port.", show_default="the last one")] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="The database.", show_default="SQLite in SHUNTER_HOME")
    ] = None,
) -> int | None:
    """Serve in the foreground until Ctrl-C; or start, stop and look at the server in the background."""
    if ctx.invoked_subcommand is not None:
        return None
    _check_libraries()
    from shunter.server.main import main

    words = ["--host", host]
    words += ["--port", str(port)] if port is not None else []
    words += ["--database", database] if database is not None else []
    return main(words)


@app.command()
def start(as_json: Json = False) -> int:
    """Start your own server in the background, unless it is there."""
    use_json(as_json)
    from shunter.sdk.connect import connect

    return _show(connect().get("/api/v1/server"), as_json)


@app.command()
def stop(as_json: Json = False) -> int:
    """Stop your own server. Runs go on; the next command starts it again."""
    use_json(as_json)
    from shunter.home import HomeFolder
    from shunter.sdk.connect import stop

    home = HomeFolder.find()
    was_running = stop(home)
    if as_json:
        print_json({"stopped": was_running, "home": str(home.path)})
    else:
        print("The server has stopped." if was_running else f"No server was running for {home.path}.")
    return 0


@app.command()
def status(as_json: Json = False) -> int:
    """Say where the server is. The exit status is 1 when none is running."""
    use_json(as_json)
    from shunter.home import HomeFolder
    from shunter.sdk.connect import connect, status

    if os.environ.get("SHUNTER_URL"):
        return _show(connect().get("/api/v1/server"), as_json)
    home = HomeFolder.find()
    found = status(home)
    if found is not None:
        return _show(found, as_json)
    if as_json:
        print_json({"running": False, "home": str(home.path)})
    else:
        print(f"No server is running for {home.path}. The next command that needs one starts it.")
    return 1


def _show(info: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(info | {"running": True})
    else:
        print_facts({"Server": info["url"], "Version": info["version"], "Process": info["pid"],
                     "Home": info.get("home"), "Database": info["database"]})  # fmt: skip
    return 0


def _check_libraries() -> None:
    from importlib.util import find_spec

    from shunter.errors import ExtraMissing

    missing = [name for name in ("fastapi", "sqlalchemy", "uvicorn", "alembic") if find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            f"The server needs {', '.join(missing)}, which this installation does not have.",
            hint="pip install 'shunter[server]' brings the server's libraries.",
        )
