"""Whether the key that a host shows is the one we trust. The decision is pure; asyncssh asks it through `Verifier`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import asyncssh

Verdict = Literal["known", "accepted", "unknown", "changed"]


def judge(shown: str, trusted: Sequence[str], expected: str | None, accept: bool) -> Verdict:
    """`shown` and `trusted` are fingerprints; `trusted` those known for this host, `expected` what the person named.

    A host that has a known key is never accepted with another one, whatever flag was given.
    """
    if shown in trusted:
        return "known"
    if trusted:
        return "changed"
    if expected is not None:
        return "accepted" if _bare(shown) == _bare(expected) else "changed"
    return "accepted" if accept else "unknown"


class Verifier(asyncssh.SSHClient):
    """Asked by asyncssh during the key exchange. Keeps what it saw, for the message."""

    def __init__(self, known_hosts_file: str | None, pinned: str | None, expected: str | None, accept: bool) -> None:
        self.file = Path(known_hosts_file or "~/.ssh/known_hosts").expanduser()
        self.pinned = asyncssh.import_public_key(pinned) if pinned else None
        self.expected = expected
        self.accept = accept
        self.trusted: list[str] = []
        self.shown: asyncssh.SSHKey | None = None
        self.verdict: Verdict = "known"
        self.on_lost: Callable[[], None] = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_lost()

    def known_hosts(self, host: str, addr: str, port: int | None) -> Sequence[object]:
        """What is trusted for this host, in asyncssh's form: keys, authorities, revoked keys and the X.509 lists."""
        found: list[Sequence[object]] = [[], [], [], [], [], [], []]
        if os.access(self.file, os.R_OK):
            found = [list(part) for part in asyncssh.match_known_hosts(str(self.file), host, addr, port)]
        keys: list[asyncssh.SSHKey] = [key for key in found[0] if isinstance(key, asyncssh.SSHKey)]
        if self.pinned is not None:
            keys.append(self.pinned)
        self.trusted = [key.get_fingerprint() for key in keys]
        return [keys, *found[1:]]

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called for a key that is not among the trusted ones."""
        self.shown = key
        self.verdict = judge(key.get_fingerprint(), self.trusted, self.expected, self.accept)
        return self.verdict in ("known", "accepted")

    def fingerprint(self) -> str:
        return self.shown.get_fingerprint() if self.shown else ""

    def accepted_key(self) -> str | None:
        """The key to be remembered, when it was new and accepted."""
        if self.verdict != "accepted" or self.shown is None:
            return None
        return self.shown.export_public_key().decode().strip()


def _bare(fingerprint: str) -> str:
    return fingerprint.removeprefix("SHA256:").rstrip("=")
