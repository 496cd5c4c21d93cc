"""Secrets of workspaces, sealed: what lies in the database cannot be read without the key, which does not lie there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from shunter.errors import ConfigError, NotFound, nearest
from shunter.server.storage.database import Database
from shunter.server.storage.schema import secrets

_SERVICE = "shunter"


class Secrets:
    def __init__(self, database: Database, home: Path) -> None:
        self.database = database
        self.home = home

    def set(self, workspace: str, name: str, value: str, now: float) -> bool:
        """Keep a value; True when the name is new."""
        sealed = self._fernet.encrypt(value.encode("utf-8", "surrogateescape"))
        key = {"workspace": workspace, "name": name}
        with self.database.begin() as connection:
            changed = sa.update(secrets).where(secrets.c.workspace == workspace, secrets.c.name == name)
            if connection.execute(changed.values(sealed=sealed, updated_at=now)).rowcount:
                return False
            connection.execute(sa.insert(secrets), key | {"sealed": sealed, "created_at": now, "updated_at": now})
            return True

    def get(self, workspace: str, name: str) -> str:
        """The value in clear. Only for a run that was given it."""
        query = sa.select(secrets.c.sealed).where(secrets.c.workspace == workspace, secrets.c.name == name)
        with self.database.read() as connection:
            sealed = connection.execute(query).scalar()
        if sealed is None:
            raise NotFound(f"There is no secret {name!r}.", hint=self._hint(workspace, name))
        from cryptography.fernet import InvalidToken

        try:
            value: bytes = self._fernet.decrypt(bytes(sealed))
            return value.decode("utf-8", "surrogateescape")
        except InvalidToken as error:
            raise ConfigError(
                f"The secret {name!r} was sealed with another key.",
                hint=f"Is {self.home / KEY_FILE} the one that belongs to this database? Else set the secret again.",
            ) from error

    def list(self, workspace: str) -> list[dict[str, Any]]:
        """Names and times, never values."""
        query = sa.select(secrets.c.name, secrets.c.created_at, secrets.c.updated_at)
        query = query.where(secrets.c.workspace == workspace).order_by(secrets.c.name)
        with self.database.read() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def delete(self, workspace: str, name: str) -> None:
        with self.database.begin() as connection:
            gone = sa.delete(secrets).where(secrets.c.workspace == workspace, secrets.c.name == name)
            if not connection.execute(gone).rowcount:
                raise NotFound(f"There is no secret {name!r}.", hint=self._hint(workspace, name))

    def check(self, workspace: str, names: Iterable[str]) -> None:
        """Raise NotFound, with the nearest name, when one of these is not there."""
        known = {found["name"] for found in self.list(workspace)}
        for name in names:
            if name not in known:
                raise NotFound(f"There is no secret {name!r}.", hint=self._hint(workspace, name))

    def _hint(self, workspace: str, name: str) -> str:
        return (
            nearest(name, [found["name"] for found in self.list(workspace)])
            or f"`shunter secret set {name}` makes one."
        )

    @cached_property
    def _fernet(self) -> Any:
        from cryptography.fernet import Fernet

        return Fernet(_key(self.home))


KEY_FILE = "secrets.key"


def _key(home: Path) -> bytes:
    """The key, made on first use: in the OS keyring where SHUNTER_KEYRING asks for it, else in a 0600 file."""
    if os.environ.get("SHUNTER_KEYRING"):
        return _keyring_key(str(home))
    path = home / KEY_FILE
    try:
        return path.read_bytes().strip()
    except FileNotFoundError:
        pass
    from cryptography.fernet import Fernet

    fd, temporary = tempfile.mkstemp(dir=home)
    try:
        os.write(fd, Fernet.generate_key())
        os.fsync(fd)
        os.close(fd)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
    finally:
        os.unlink(temporary)
    return path.read_bytes().strip()


def _keyring_key(home: str) -> bytes:
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]
        from keyring.errors import KeyringError  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise ConfigError(
            "SHUNTER_KEYRING is set, and the package `keyring` is not installed.",
            hint="pip install 'shunter[keyring]' brings it; or unset SHUNTER_KEYRING to keep the key in a file.",
        ) from error
    from cryptography.fernet import Fernet

    try:
        found = keyring.get_password(_SERVICE, home)
        if found is None:
            found = Fernet.generate_key().decode()
            keyring.set_password(_SERVICE, home, found)
        return str(found).encode()
    except KeyringError as error:
        raise ConfigError(
            f"The keyring cannot be used: {error}.", hint="Unset SHUNTER_KEYRING to keep the key in a file."
        ) from error
