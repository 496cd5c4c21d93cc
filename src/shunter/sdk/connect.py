"""Finds the server: the one that SHUNTER_URL names, else this person's own, started when nobody is there."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from typing import Any

from shunter.errors import ConfigError, ExtraMissing, ServerError, ServerUnreachable, ShunterError, from_wire
from shunter.home import HomeFolder, network_file_system
from shunter.sdk.client import Client

START_SECONDS = 60.0


def connect(start: bool = True) -> Client:
    """A client for the server in use. Raises ServerUnreachable when there is none and `start` is False."""
    url = os.environ.get("SHUNTER_URL")
    if url:
        token = os.environ.get("SHUNTER_TOKEN")
        if not token:
            raise ConfigError("SHUNTER_URL names a server, but SHUNTER_TOKEN is not set.", hint="Ask its owner for a token.")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"SHUNTER_URL is {url!r}.", hint="It looks like http://HOST:PORT.")
        return Client(url, token)
    home = HomeFolder.find()
    found = running(home)
    if found is not None and _answers(found):
        return found
    if not start:
        raise ServerUnreachable(f"No server is running for {home.path}.", hint="`shunter server start` starts one.")
    return start_embedded(home)


def running(home: HomeFolder) -> Client | None:
    """The server of this home if one answers to its lock, else None."""
    endpoint = home.endpoint()
    if endpoint is None or not _is_held(home):
        return None
    return Client(str(endpoint["url"]), home.read_or_make(home.token_file))


def start_embedded(home: HomeFolder) -> Client:
    """Start a server in the background and wait for its first answer. When two start one, one of the two gives way."""
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("sqlalchemy") is None:
        raise ExtraMissing(
            "No server is named by SHUNTER_URL, and the libraries to run one here are not installed.",
            hint="pip install 'shunter[server]' brings them; or set SHUNTER_URL and SHUNTER_TOKEN.",
        )
    home.make()
    kind = network_file_system(home.path)
    if kind:
        print(f"Warning: {home.path} is on a network file system ({kind}); point SHUNTER_HOME at a local disk.", file=sys.stderr)
    token = home.read_or_make(home.token_file)
    error_file = home.log_file.with_suffix(".error")
    error_file.unlink(missing_ok=True)
    process = _start(home)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        endpoint = home.endpoint()
        if endpoint is not None and _is_held(home):
            client = Client(str(endpoint["url"]), token)
            try:
                client.get("/api/v1/server")
                process.returncode = process.poll() or 0  # it is meant to outlive us
                return client
            except ServerUnreachable:
                client.close()
        if process.poll() not in (None, 0):
            raise _why(error_file, home)
        if process.poll() == 0 and not _is_held(home):
            process = _start(home)  # the server that it gave way to was just ending
        time.sleep(0.005)
    raise ServerUnreachable(f"The server did not come up in {START_SECONDS:.0f} s.", hint=f"Its log: {home.log_file}")


def _start(home: HomeFolder) -> subprocess.Popen[bytes]:
    with home.log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "shunter.server.main", "--embedded"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=str(home.path),
            env=_environment(),
        )  # fmt: skip


def _answers(client: Client) -> bool:
    """A server that is being killed may hold its lock a moment longer than it listens."""
    try:
        client.get("/api/v1/server")
    except ServerUnreachable:
        return False
    return True


def status(home: HomeFolder) -> dict[str, Any] | None:
    client = running(home)
    if client is None:
        return None
    try:
        found: dict[str, Any] = client.get("/api/v1/server")
    except ShunterError:
        return None
    return found


def stop(home: HomeFolder) -> bool:
    """Ask the server of this home to end and wait until it has. False when none was running. Runs go on."""
    client = running(home)
    if client is None:
        return False
    try:
        client.post("/api/v1/server/stop")
    except ServerUnreachable:
        pass
    until = time.monotonic() + 15
    while _is_held(home):
        if time.monotonic() > until:
            raise ServerError(f"The server of {home.path} does not stop.", hint=f"Its log: {home.log_file}")
        time.sleep(0.01)
    return True


def _is_held(home: HomeFolder) -> bool:
    """Whether a server lives: the kernel knows, a stale file does not."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fd = os.open(home.lock_file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _environment() -> dict[str, str]:
    """What the server's process gets: ours, able to import the very package that is running now."""
    from pathlib import Path

    import shunter

    package = str(Path(shunter.__file__).parent.parent)
    env = {k: v for k, v in os.environ.items() if k not in ("SHUNTER_URL", "SHUNTER_TOKEN", "SHUNTER_SPOOL")}
    if "site-packages" not in package:
        env["PYTHONPATH"] = package + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
    return env


def _why(error_file: Any, home: HomeFolder) -> ShunterError:
    try:
        return from_wire(json.loads(error_file.read_text()))
    except (OSError, ValueError):
        lines = home.log_file.read_text(errors="replace").strip().splitlines()[-1:]
        return ServerError(f"The server could not start: {''.join(lines)}", hint=f"Its log: {home.log_file}")
