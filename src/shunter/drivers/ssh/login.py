"""One login: host key, credentials, jump host; and what can go wrong with them, in words."""

from __future__ import annotations

import asyncio
import logging
import socket
from datetime import UTC, datetime
from typing import Any

import asyncssh

from shunter.drivers.ssh.config import SshConfig
from shunter.drivers.ssh.hostkeys import Verifier
from shunter.errors import ConfigError, DriverError, HostKeyChanged, HostKeyUnknown, LoginRefused, TargetUnreachable

#: A cut link is noticed after about three silent intervals.
KEEPALIVE_SECONDS = 4.0
KEEPALIVE_COUNT = 2
#: Both ends have AES in hardware nearly always, and a snapshot is large: the quickest first.
MSG_IGNORE = 2
CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"

logging.getLogger("asyncssh").setLevel(logging.ERROR)  # what matters is raised to us, and told in our words


async def log_in(
    config: SshConfig, name: str, sock: socket.socket | None = None
) -> tuple[asyncssh.SSHClientConnection, Verifier]:
    """A connection that is logged in. Raises TargetUnreachable, HostKeyUnknown, HostKeyChanged, LoginRefused, ConfigError."""
    tunnel: asyncssh.SSHClientConnection | None = None
    if config.jump:
        tunnel, _ = await log_in(_jump_config(config), f"{name}'s jump host {config.jump}")
    verifier = Verifier(config.known_hosts_file, config.host_key, config.host_key_fingerprint, config.accept_host_key)
    options: dict[str, Any] = {
        "client_factory": lambda: verifier,
        "known_hosts": verifier.known_hosts,
        "connect_timeout": config.connect_timeout_seconds,
        "login_timeout": config.connect_timeout_seconds,
        "keepalive_interval": KEEPALIVE_SECONDS,
        "keepalive_count_max": KEEPALIVE_COUNT,
        "encryption_algs": CIPHERS,
        "compression_algs": ["none", "zlib@openssh.com"],
        **_credentials(config, name),
    }
    if tunnel is not None:
        options["tunnel"] = tunnel
        verifier.on_lost = tunnel.abort  # the way through the jump host is ours alone, and ends with us
    if sock is not None:
        options["sock"] = sock
    if config.port is not None:
        options["port"] = config.port
    if config.username is not None:
        options["username"] = config.username
    try:
        async with asyncio.timeout(config.connect_timeout_seconds + 5):
            connection = await asyncssh.connect(config.address, **options)
    except Exception as error:
        if tunnel is not None:
            tunnel.close()
        found = _in_words(error, config, name, verifier)
        if found is None:
            raise
        raise found from error
    _send_no_padding(connection)
    return connection, verifier


def where(config: SshConfig) -> str:
    return f"{config.address}{':' + str(config.port) if config.port else ''}"


def _send_no_padding(connection: asyncssh.SSHClientConnection) -> None:
    """asyncssh sends an empty packet before each packet, which only old CBC ciphers need; it halves what a link carries."""
    if "cbc" in str(connection.get_extra_info("send_cipher")):
        return
    send = connection.send_packet

    def send_packet(pkttype: int, *args: bytes, handler: Any = None) -> None:
        if pkttype != MSG_IGNORE:
            send(pkttype, *args, handler=handler)

    connection.send_packet = send_packet  # type: ignore[method-assign]


def load_key(config: SshConfig, name: str) -> asyncssh.SSHKey | None:
    """The private key of the options, None when there is none. ConfigError when it cannot be used."""
    text = config.private_key
    if text is None and config.private_key_file:
        try:
            with open(config.private_key_file.replace("~", _home(), 1) if config.private_key_file.startswith("~/")
                      else config.private_key_file) as file:  # fmt: skip
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{name}: the private key file {config.private_key_file} cannot be read: {error}."
            ) from error
    if text is None:
        return None
    what = config.private_key_file or "the private key"
    try:
        return asyncssh.import_private_key(text, config.passphrase)
    except asyncssh.KeyEncryptionError as error:
        raise ConfigError(
            f"{name}: {what} is not opened by this passphrase.", hint="Give it again with --passphrase."
        ) from error
    except (asyncssh.KeyImportError, ValueError) as error:
        if config.passphrase is None and "passphrase" in str(error).lower():
            raise ConfigError(
                f"{name}: {what} has a passphrase.", hint="Give it with --passphrase; it is asked for."
            ) from error
        raise ConfigError(f"{name}: {what} is not a private key that can be used: {error}.",
                          hint="An OpenSSH or PEM private key is needed, not its .pub half.") from error  # fmt: skip


def _credentials(config: SshConfig, name: str) -> dict[str, Any]:
    key = load_key(config, name)
    if key is not None:
        pair: Any = key
        if config.certificate:
            try:
                pair = (key, asyncssh.import_certificate(config.certificate))
            except (asyncssh.KeyImportError, ValueError) as error:
                raise ConfigError(f"{name}: the certificate cannot be used: {error}.",
                                  hint="An OpenSSH certificate is needed: a file …-cert.pub.") from error  # fmt: skip
        return {"client_keys": [pair], "password": config.password, "agent_path": None}
    if config.password is not None:
        return {"client_keys": None, "password": config.password, "agent_path": None}
    return {}  # the server's own agent, default keys, and what ~/.ssh/config says


def _jump_config(config: SshConfig) -> SshConfig:
    user, _, rest = (config.jump or "").rpartition("@")
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit():
        host, port = rest, ""
    return config.model_copy(update={
        "address": host, "port": int(port) if port else None, "username": user or config.username, "jump": None,
        "host_key": None, "host_key_fingerprint": None, "accept_host_key": False,
    })  # fmt: skip


def _in_words(error: Exception, config: SshConfig, name: str, verifier: Verifier) -> DriverError | ConfigError | None:
    place = where(config)
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        if verifier.verdict == "changed":
            known = ", ".join(verifier.trusted) or str(config.host_key_fingerprint)
            return HostKeyChanged(
                f"{name}: {place} shows the host key {verifier.fingerprint()}, but {known} is the one that is known. "
                "Somebody may be in between, or the machine was installed anew.",
                hint="If it was: remove the old key from known_hosts (`ssh-keygen -R`) or detach and attach it again.",
            )
        if verifier.verdict == "unknown" and verifier.shown is not None:
            return HostKeyUnknown(
                f"{name}: the host key of {place} is not known. It is {verifier.fingerprint()}.",
                hint="Compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` run there, then attach with "
                f"--host-key-fingerprint {verifier.fingerprint()}, or with --accept-host-key to trust it now.",
            )
        return HostKeyUnknown(f"{name}: the host key of {place} cannot be verified: {error}.")
    if isinstance(error, asyncssh.PermissionDenied):
        return _refused(config, name, place)
    if isinstance(error, socket.gaierror):
        return TargetUnreachable(f"{name}: the name {config.address!r} cannot be resolved ({error.strerror}).",
                                 hint="Is it spelled right? An IP address works too.")  # fmt: skip
    if isinstance(error, ConnectionRefusedError):
        return TargetUnreachable(f"{name}: nothing listens at {place}: the connection is refused.",
                                 hint="Does sshd run there, and on this port (--port)?")  # fmt: skip
    if isinstance(error, TimeoutError | asyncssh.ConnectionLost) or (
        isinstance(error, OSError) and error.errno in (101, 110, 113)
    ):
        why = str(error) or f"in {config.connect_timeout_seconds:.0f} s"
        return TargetUnreachable(
            f"{name}: no answer from {place} ({why}).",
            hint=f"Is it on, and let through by firewalls? `shunter compute probe {name}` tries again.",
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return DriverError(
            f"{name}: no way to talk to {place} was agreed on: {error}.",
            hint="Its SSH server is very old, or very strict.",
        )
    if isinstance(error, asyncssh.Error | OSError):
        return TargetUnreachable(f"{name}: {place}: {error}.", hint=f"`shunter compute probe {name}` tries again.")
    return None


def _refused(config: SshConfig, name: str, place: str) -> LoginRefused:
    who = config.username or "the user"
    if config.certificate:
        until = _valid_until(config.certificate)
        if until is not None and until < datetime.now(UTC):
            return LoginRefused(f"{name}: the certificate for {who} expired on {until:%Y-%m-%d %H:%M} UTC.",
                                hint=f"Have it signed again: `shunter compute update {name} --certificate-file …`.")  # fmt: skip
    if config.private_key or config.private_key_file:
        key = load_key(config, name)
        shown = f" {key.get_fingerprint()}" if key else ""
        return LoginRefused(
            f"{name}: {place} does not let {who} in with the key{shown}.",
            hint=f"Is its public half in ~{config.username or ''}/.ssh/authorized_keys there, not expired (expiry-time), and may "
            f"this user log in by key? `shunter compute update {name} --private-key-file …` changes it.",
        )
    if config.password is not None:
        return LoginRefused(
            f"{name}: {place} does not let {who} in with this password.",
            hint=f"Is it right, and does sshd there allow any? `shunter compute update {name} --password` asks for it again.",
        )
    return LoginRefused(f"{name}: {place} does not let {who} in with the keys that the server has.",
                        hint="Name a key with --private-key-file, or give --password.")  # fmt: skip


def _valid_until(certificate: str) -> datetime | None:
    try:
        found = asyncssh.import_certificate(certificate)
        return datetime.fromtimestamp(found._valid_before, UTC)  # type: ignore[attr-defined]
    except (asyncssh.KeyImportError, ValueError, OverflowError, OSError, AttributeError):
        return None


def _home() -> str:
    from pathlib import Path

    return str(Path.home())
