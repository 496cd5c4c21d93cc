"""Secret options of compute targets, sealed at rest: clear only in the driver that uses them.

Which options are secret is the driver's word: they are marked `"secret": true` in its schema. Stored they are
`{"sealed": "…"}`; nothing that leaves the server holds even that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from shunter.errors import ConfigError
from shunter.server.storage.secrets import _key as key_of_home


class Vault:
    def __init__(self, home: Path) -> None:
        self.home = home

    def seal(self, schema: type[BaseModel], config: Mapping[str, Any]) -> dict[str, Any]:
        """The options as they may be stored."""
        secret = marked(schema, "secret")
        return {k: {"sealed": self._seal(v)} if k in secret and isinstance(v, str) else v for k, v in config.items()}

    def unseal(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The options as a driver needs them."""
        return {k: self._open(k, v["sealed"]) if is_sealed(v) else v for k, v in config.items()}

    def _seal(self, value: str) -> str:
        found: bytes = self._fernet.encrypt(value.encode("utf-8", "surrogateescape"))
        return found.decode()

    def _open(self, name: str, sealed: str) -> str:
        from cryptography.fernet import InvalidToken

        try:
            found: bytes = self._fernet.decrypt(sealed.encode())
        except InvalidToken as error:
            raise ConfigError(
                f"The option {name!r} was sealed with another key than this server's.",
                hint="Give it again with `shunter compute update`.",
            ) from error
        return found.decode("utf-8", "surrogateescape")

    @cached_property
    def _fernet(self) -> Any:
        from cryptography.fernet import Fernet

        return Fernet(key_of_home(self.home))


def is_sealed(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"sealed"}


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they may leave the server: of a secret only that it is set."""
    return {k: "(kept secret)" if is_sealed(v) else v for k, v in config.items()}


def marked(schema: type[BaseModel], mark: str) -> set[str]:
    """The options that carry a mark in their schema."""
    found = set()
    for name, field in schema.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get(mark):
            found.add(name)
    return found
