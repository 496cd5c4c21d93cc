"""A shell on a machine, in a session of its own on the pooled connection."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import asyncssh

from shunter.errors import NodeUnfit


class SshShell:
    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._process = process

    @classmethod
    async def open(
        cls,
        connection: asyncssh.SSHClientConnection,
        name: str,
        command: Sequence[str],
        term: str,
        columns: int,
        rows: int,
    ) -> SshShell:
        try:
            process = await connection.create_process(
                shlex.join(command), term_type=term, term_size=(columns, rows), encoding=None, stderr=asyncssh.STDOUT
            )
        except asyncssh.ChannelOpenError as error:
            raise NodeUnfit(f"{name}: its SSH server allows no second session ({error.reason}).",
                            hint="MaxSessions in its sshd_config must be at least 2 for a shell.") from error  # fmt: skip
        return cls(process)

    async def read(self) -> bytes:
        return await self._process.stdout.read(1 << 16)

    def write(self, data: bytes) -> None:
        self._process.stdin.write(data)

    def resize(self, columns: int, rows: int) -> None:
        self._process.change_terminal_size(columns, rows)

    def close(self) -> None:
        self._process.close()
