"""The check list of an attach: everything a machine needs, step by step, each with its verdict and what to do."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import asyncssh

from shunter.drivers.base import Facts
from shunter.drivers.ssh.config import SshConfig
from shunter.drivers.ssh.link import Link
from shunter.drivers.ssh.login import where
from shunter.errors import HostKeyChanged, HostKeyUnknown, LoginRefused, ShunterError, TargetUnreachable

#: Clocks further apart than this are worth a word.
SKEW_SECONDS = 5.0
LITTLE_DISK_BYTES = 2 << 30
DETAILS = (
    "machine",
    "libc",
    "interpreter",
    "engines",
    "load",
    "user",
    "root",
    "launches",
    "kept_bytes",
    "round_trip_seconds",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the list."""

    name: str
    verdict: Literal["ok", "warning", "failed"]
    message: str
    hint: str = ""

    def to_wire(self) -> dict[str, str]:
        return {"check": self.name, "verdict": self.verdict, "message": self.message, "hint": self.hint}


Say = Callable[[Check], None]


async def check_machine(link: Link, say: Say) -> Facts:
    """Go through the list; raises at the first step that fails, after telling it."""
    config = link.config
    sock = await _check_address(config, link.name, say)
    connection, verifier = await _check_login(link, sock, say)
    try:
        session = await link.settle_in(connection, verifier)
    except ShunterError as error:
        connection.abort()
        say(
            Check(
                "write access" if "cannot be written" in error.message else "python",
                "failed",
                error.message,
                error.hint,
            )
        )
        raise
    found, _ = await session.call("facts")
    found["round_trip_seconds"] = await _round_trip(session)
    for line in judge_facts(found, time.time()):
        say(line)
    if link.tunnel_problem:
        say(
            Check(
                "forwarding",
                "warning",
                f"Not allowed ({link.tunnel_problem}): reports come home over the session instead.",
            )
        )
    else:
        say(Check("forwarding", "ok", "Runs reach this server through the connection."))
    return facts_of(found, link)


def judge_facts(found: Mapping[str, Any], now: float) -> list[Check]:
    """What the machine said of itself, line by line. Pure."""
    free = int(found["disk_free_bytes"])
    checks = [
        Check("python", "ok", f"Python {found['python']} ({found['interpreter']})."),
        Check("write access", "ok", f"{found['root']} can be written."),
    ]
    if free < LITTLE_DISK_BYTES:
        checks.append(
            Check("disk", "warning", f"Only {_gib(free)} are free.", "Environments and snapshots need room there.")
        )
    else:
        checks.append(Check("disk", "ok", f"{_gib(free)} are free."))
    engines = found.get("engines") or []
    if engines:
        checks.append(Check("containers", "ok", f"{' and '.join(engines)} can be used."))
    else:
        checks.append(Check("containers", "warning", "No container engine: environments in images will not run here.",
                            "Install podman or docker there if you want them."))  # fmt: skip
    gpus = found.get("gpus") or []
    names = sorted({str(card["name"]) for card in gpus})
    checks.append(Check("gpu", "ok", f"{len(gpus)} × {', '.join(names)}." if gpus else "None; runs use its CPUs."))
    skew = float(found["time"]) - now
    if abs(skew) > SKEW_SECONDS:
        off = f"{_duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}"
        checks.append(Check("clock", "warning", f"It is {off}; times of runs are corrected.",
                            "Have it set by NTP: certificates and file times suffer."))  # fmt: skip
    else:
        checks.append(Check("clock", "ok", f"Within {max(0.1, abs(skew)):.1f} s of ours."))
    if found.get("ends_with_session"):
        checks.append(Check("logout", "warning", "It ends a user's processes at logout: runs would die with the connection.",
                            f"`sudo loginctl enable-linger {found['user']}` there lets them live."))  # fmt: skip
    return checks


def facts_of(found: Mapping[str, Any], link: Link) -> Facts:
    details = {key: found[key] for key in DETAILS if key in found}
    details["clock_skew_seconds"] = round(float(found["time"]) - time.time(), 1)
    details["way_home"] = "session" if link.tunnel_problem else "tunnel"
    return Facts(
        hostname=found["hostname"], system=found["system"], cpus=int(found["cpus"]), memory_bytes=int(found["memory_bytes"]),
        gpus=tuple(found["gpus"]), disk_free_bytes=int(found["disk_free_bytes"]), python=found["python"], details=details,
    )  # fmt: skip


async def _check_address(config: SshConfig, name: str, say: Say) -> socket.socket | None:
    """Name and port, when we are to reach them ourselves: not through a jump host or a name of ~/.ssh/config.

    The connection that was made for it is the one to log in over."""
    if config.jump:
        say(Check("name", "ok", f"{config.address} is looked up by {config.jump}."))
        return None
    try:
        options = await asyncssh.SSHClientConnectionOptions.construct(
            host=config.address, port=config.port or (), config=()
        )
        host, port = str(options.host or config.address), int(options.port or 22)
        if options.tunnel or options.proxy_command:
            say(Check("name", "ok", f"{config.address} is reached as ~/.ssh/config says."))
            return None
    except (OSError, ValueError, AttributeError, TypeError):
        host, port = config.address, config.port or 22
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        words = TargetUnreachable(f"{name}: the name {host!r} cannot be resolved ({error.strerror}).",
                                  hint="Is it spelled right? An IP address works too.")  # fmt: skip
        say(Check("name", "failed", words.message, words.hint))
        raise words from error
    say(Check("name", "ok", f"{host} is {found[0][4][0]}."))
    try:
        async with asyncio.timeout(config.connect_timeout_seconds):
            sock = await _connect([entry[4] for entry in found])
    except OSError as error:  # TimeoutError is one of these
        refused = isinstance(error, ConnectionRefusedError)
        words = TargetUnreachable(
            f"{name}: {'nothing listens at' if refused else 'no answer from'} {host}:{port}"
            + (
                ": the connection is refused."
                if refused
                else f" ({error.strerror or f'in {config.connect_timeout_seconds:.0f} s'})."
            ),
            hint="Does sshd run there, and on this port (--port)?"
            if refused
            else "Is the machine on, and let through by firewalls?",
        )
        say(Check("port", "failed", words.message, words.hint))
        raise words from error
    say(Check("port", "ok", f"Port {port} answers."))
    return sock


async def _connect(addresses: Sequence[Any]) -> socket.socket:
    """To the first of these that answers."""
    problem: OSError | None = None
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
    raise problem or OSError("it has no address")


async def _check_login(link: Link, sock: socket.socket | None, say: Say) -> tuple[asyncssh.SSHClientConnection, Any]:
    try:
        connection, verifier = await link.connect(sock)
    except (HostKeyUnknown, HostKeyChanged) as error:
        say(Check("host key", "failed", error.message, error.hint))
        raise
    except LoginRefused as error:
        say(Check("host key", "ok", "It is the one that is known, or was accepted."))
        say(Check("login", "failed", error.message, error.hint))
        raise
    except ShunterError as error:
        say(Check("login", "failed", error.message, error.hint))
        raise
    key = connection.get_server_host_key()
    shown = key.get_fingerprint() if key else "?"
    said = "accepted now and kept" if verifier.accepted_key() else "known"
    say(Check("host key", "ok", f"{shown}: {said}."))
    say(Check("login", "ok", f"Logged in to {where(link.config)}."))
    return connection, verifier


async def _round_trip(session: Any) -> float:
    began = time.monotonic()
    await session.call("ping")
    return round(time.monotonic() - began, 4)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


__all__ = ["Check", "Say", "check_machine", "facts_of", "judge_facts"]
