"""The machines of an SSH pool: how each is logged in to, kept sealed in the cluster's folder; and who may be lent.

A cluster's part on a machine lies in one folder there for all the times that it is lent. Beside it is another for the hand
that holds the lease: the server's own connection must not push it aside.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shunter.drivers.ssh.config import SshConfig
from shunter.errors import TargetUnreachable, UsageError
from shunter.home import HomeFolder

if TYPE_CHECKING:
    import asyncssh

    from shunter.catalogue.sizes import Size
    from shunter.drivers.cluster.folder import ClusterFolder, Spec
    from shunter.drivers.ssh.checks import Check
    from shunter.drivers.ssh.session import AgentSession

HAND = "-hand"


def seal(home: Path, machines: Mapping[str, SshConfig]) -> dict[str, Any]:
    """The machines as they may be written down."""
    from shunter.server.vault import Vault

    vault = Vault(home)
    return {n: vault.seal(SshConfig, m.model_dump(mode="json", exclude_none=True)) for n, m in machines.items()}


def unseal(folder: ClusterFolder, machine: str) -> SshConfig:
    from shunter.server.vault import Vault

    options = folder.spec().options or {}
    return SshConfig(**Vault(folder.home).unseal(options["machines"][machine]))


def machine_root(home: Path, workspace: str, cluster: str, config: SshConfig) -> str:
    """Where a cluster keeps its things on a machine. Each server, and each cluster of it, has a folder of its own."""
    folder = HomeFolder(home)
    server = folder.read_or_make(folder.path / "server-id")[:12]
    own = hashlib.sha256(f"{workspace}/{cluster} machine".encode()).hexdigest()[:8]
    return f"{config.folder or '~/.shunter-node'}/{server}-{own}"


async def connect(
    config: SshConfig, name: str, root: str
) -> tuple[asyncssh.SSHClientConnection, AgentSession]:
    """A login, and an agent below `root` there. Raises what the login raises, and nothing that only asyncssh knows."""
    import asyncssh

    from shunter.drivers.ssh.login import log_in
    from shunter.drivers.ssh.session import AgentSession

    connection, _ = await log_in(config, name)
    try:
        session = await AgentSession.start(connection, name, root, config.python, config.connect_timeout_seconds)
    except (asyncssh.Error, OSError) as error:
        connection.abort()
        raise TargetUnreachable(f"{name}: the connection was lost while it was being set up ({error}).") from error
    except BaseException:
        connection.abort()
        raise
    return connection, session


async def take_away(folder: ClusterFolder, spec: Spec, machine: str, seconds: float) -> None:
    """Remove everything of a cluster from a machine, if it answers."""
    config = unseal(folder, machine)
    options = spec.options or {}
    root = machine_root(folder.home, options["workspace"], spec.name, config)
    async with asyncio.timeout(seconds):
        for place in (root, root + HAND):
            connection, session = await connect(config, machine, place)
            try:
                await session.call("tether", node="all", beside=Path(root).name, end=True, all=True)
                await session.call("remove", seconds=seconds)
            finally:
                connection.abort()


@dataclass(frozen=True)
class Seen:
    """What the machines have in common: the least of each, and what environments are built for."""

    size: dict[str, Any]
    facts: dict[str, Any]


async def look_at(
    machines: Mapping[str, SshConfig], size: Size | None, gpus: int, say: Callable[[Check], None]
) -> Seen:
    """Log in to every machine; raises when one cannot be reached or is too small."""
    from shunter.drivers.ssh.checks import Check

    found = {}
    for name, config in machines.items():
        connection, session = await connect(config, name, f"{config.folder or '~/.shunter-node'}/look")
        try:
            facts, _ = await session.call("facts")
            await session.call("remove")
        finally:
            connection.abort()
        has = f"{facts['cpus']} CPUs, {facts['memory_bytes'] / 2**30:.1f} GiB, {len(facts['gpus'])} GPUs"
        if size is not None and (
            facts["cpus"] < size.cpus or facts["memory_bytes"] < size.memory_bytes * 0.9 or len(facts["gpus"]) < gpus
        ):
            wants = f"{size.cpus} CPUs, {size.memory_gib:g} GiB, {gpus} GPUs"
            raise UsageError(
                f"{name} has {has}; {size.name} has {wants}.", hint="Leave the size out, and it is what the machines have."
            )
        say(Check(name, "ok", f"{facts['hostname']}: {has}."))
        found[name] = facts
    first = next(iter(found.values()))
    other = next((n for n, f in found.items() if (f["machine"], f["libc"]) != (first["machine"], first["libc"])), None)
    if other is not None:
        say(Check(other, "warning", "It is of another architecture or C library than the first machine.",
                  "Environments are solved for the first machine."))  # fmt: skip
    least = {
        "cpus": min(f["cpus"] for f in found.values()),
        "memory_gib": round(min(f["memory_bytes"] for f in found.values()) / 2**30, 2),
        "gpus": min(len(f["gpus"]) for f in found.values()),
    }
    details = {k: first.get(k) for k in ("machine", "libc", "interpreter", "engines")}
    details["machines"] = {n: {k: f[k] for k in ("hostname", "cpus", "memory_bytes")} for n, f in found.items()}
    return Seen(least, {
        "hostname": ", ".join(found), "system": first["system"], "cpus": least["cpus"], "python": first["python"],
        "memory_bytes": int(least["memory_gib"] * 2**30), "gpus": tuple(first["gpus"][: least["gpus"]]), "details": details,
    })  # fmt: skip


def free_machine(
    machines: Iterable[str], taken: Iterable[str], failed_at: Mapping[str, float]
) -> str | None:
    """The machine to lend next: a free one, those that did not come up lately last."""
    free = [m for m in machines if m not in set(taken)]
    return min(free, key=lambda m: failed_at.get(m, 0.0), default=None)


def address_among(addresses: Iterable[str], reached_at: str, subnet: str | None) -> str:
    """The address at which other machines find this one: in the subnet that was named, else the one we reached it at.

    >>> address_among(["127.0.0.1", "10.0.0.5", "192.168.1.5"], "10.0.0.5", None)
    '10.0.0.5'
    >>> address_among(["127.0.0.1", "10.0.0.5", "192.168.1.5"], "10.0.0.5", "192.168.1.0/24")
    '192.168.1.5'
    >>> address_among(["127.0.0.1", "10.0.0.5"], "203.0.113.9", None)
    '10.0.0.5'
    """
    own = list(addresses)
    if subnet:
        network = ipaddress.ip_network(subnet, strict=False)
        found = [a for a in own if ipaddress.ip_address(a) in network]
        if not found:
            raise UsageError(f"No address of the machine is in {subnet}: it has {', '.join(own) or 'none'}.")
        return found[0]
    if reached_at in own:
        return reached_at
    return next((a for a in own if not a.startswith("127.")), reached_at)
