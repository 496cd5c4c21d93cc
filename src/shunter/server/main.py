"""`shunter server`: one process for one home, held by a lock that a crash lets go."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shunter import __version__
from shunter.errors import ConfigError, ShunterError
from shunter.home import HomeFolder, network_file_system

if TYPE_CHECKING:
    from shunter.server.api.door import Door
    from shunter.server.services.parts import Parts

IDLE_SECONDS = 900.0


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop. Exit status 0: ended in order, or another server has this home."""
    parser = argparse.ArgumentParser(prog="shunter server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=None)
    parser.add_argument("--database", default=None)
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument("--idle-seconds", type=float, default=float(os.environ.get("SHUNTER_IDLE_SECONDS", IDLE_SECONDS)))
    options = parser.parse_args(argv)
    home = HomeFolder.find()
    try:
        home.make()
        with held(home) as mine:
            if not mine:
                where = (home.endpoint() or {}).get("url", "?")
                print(f"A server is running for {home.path} already: {where}", file=sys.stderr)
                return 0 if options.embedded else 2
            warn_of_network_home(home)
            with asyncio.Runner(loop_factory=_fast_loop()) as runner:
                return runner.run(serve(home, options))
    except ShunterError as error:
        print(f"shunter server: {error}", file=sys.stderr)
        home.log_file.with_suffix(".error").write_text(json.dumps(error.to_wire()))
        return 1


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one: a third less work for each call."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def serve(home: HomeFolder, options: argparse.Namespace) -> int:
    import uvicorn

    from shunter.server.app import build, create_app

    listener = listen(home, options.host, options.port)
    host, port = listener.getsockname()[:2]
    url = f"http://{'[' + host + ']' if ':' in host else host}:{port}"
    parts = build(home, url, options.database)
    parts.info["pid"] = os.getpid()
    door = create_app(parts)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = uvicorn.Config(
        door, log_config=None, access_log=False, lifespan="on", timeout_keep_alive=3600, timeout_graceful_shutdown=2,
        server_header=False, date_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)

    def stop() -> None:
        server.should_exit = True

    parts.stop = stop
    home.log_file.with_suffix(".error").unlink(missing_ok=True)
    write_endpoint(home, {**parts.info, "started_at": time.time()})
    if not options.embedded:
        print(f"Shunter {__version__} serves {home.path} at {url}", file=sys.stderr, flush=True)
    # What is there now stays: the collector need not look at it again, nor look up after every few calls.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    idle = asyncio.create_task(end_when_idle(parts, door, stop, options.idle_seconds)) if options.embedded else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if idle is not None:
            idle.cancel()
        found = home.endpoint()
        if found and found.get("pid") == os.getpid():
            home.endpoint_file.unlink(missing_ok=True)
    return 0


async def end_when_idle(parts: Parts, door: Door, stop: Callable[[], None], idle_seconds: float) -> None:
    """An embedded server goes away by itself when nobody has called and nothing is waiting or running."""
    from shunter.server.api.context import in_thread

    while True:
        await asyncio.sleep(min(idle_seconds / 4, 30.0))
        if door.under_way or parts.signals.waiting or time.monotonic() - door.last_call < idle_seconds:
            continue
        if not await in_thread(lambda: parts.runs.queues() or parts.runs.placed()):
            stop()
            return


@contextlib.contextmanager
def held(home: HomeFolder) -> Iterator[bool]:
    """Hold the home's lock; False when another server has it. The kernel lets go of it when we die, however we die."""
    fd = os.open(home.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _take(fd):
            yield False
            return
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
        yield True
    finally:
        os.close(fd)


def _take(fd: int) -> bool:
    """Lock it for ourselves. Clients look whether a server lives by sharing it for a moment: we must not give way to those."""
    import fcntl

    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            pass
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False  # whoever does not share it is a server
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.002)


def listen(home: HomeFolder, host: str, port: int | None) -> socket.socket:
    """A listening socket: the port that was asked for, else the one we had last time, else any."""
    last = home.path / "port"
    wanted = [port] if port is not None else [_number(last), 0]
    for number in wanted:
        if number is None:
            continue
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit it: an answer in two writes would else wait 40 ms for the caller's delayed ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listener.bind((host, number))
        except OSError as error:
            listener.close()
            if port is not None:
                raise ConfigError(f"{host}:{port} cannot be used: {error.strerror}.", hint="Take another --port.") from error
            continue
        listener.listen(1024)
        if port is None:
            last.write_text(str(listener.getsockname()[1]))
        return listener
    raise ConfigError(f"No port can be opened on {host}.")


def write_endpoint(home: HomeFolder, info: dict[str, object]) -> None:
    temporary = home.endpoint_file.with_suffix(".tmp")
    temporary.write_text(json.dumps(info))
    temporary.chmod(0o600)
    temporary.replace(home.endpoint_file)


def warn_of_network_home(home: HomeFolder) -> None:
    kind = network_file_system(home.path)
    if kind:
        print(
            f"Warning: {home.path} is on a network file system ({kind}), where SQLite's locks are not safe.\n"
            "Point SHUNTER_HOME at a local disk, or use `shunter server --database postgresql://…`.",
            file=sys.stderr,
        )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main())
