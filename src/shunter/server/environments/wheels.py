"""Wheels for nodes that reach no package index: fetched here by a lock's own hashes, handed on to the node."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from shunter.errors import EnvironmentInvalid
from shunter.server.environments import pypi
from shunter.server.environments.platforms import Platform
from shunter.server.environments.pypi import Sources

FETCH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Wheel:
    file: str
    sha256: str
    size: int


class WheelStore:
    """`FOLDER/SHA256/FILE`: written whole, checked by its name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path | None:
        """The one file with that hash, None when it is not here."""
        if not sha256.isalnum():
            return None
        found = list((self.folder / sha256).glob("*.whl"))
        return found[0] if found else None

    def collect(self, pip_lock: str, python: str, platform: Platform, sources: Sources) -> list[Wheel]:
        """All wheels that a lock needs on a platform. What is missing is fetched."""
        if not pip_lock.strip():
            return []
        import tomllib

        listed = tomllib.loads(pypi.list_files(pip_lock, python, platform, sources))
        return [self._get(package, sources.secret_env()) for package in listed.get("packages", [])]

    def _get(self, package: Mapping[str, Any], secret: Mapping[str, str]) -> Wheel:
        for one in package.get("wheels", []):
            sha256 = str(one.get("hashes", {}).get("sha256") or "")
            address = str(one.get("url") or Path(one.get("path", "")).absolute().as_uri())
            name = unquote(urlsplit(address).path.rsplit("/", 1)[-1])
            path = self.path(sha256) or self._fetch(address, sha256, name, secret)
            return Wheel(path.name, sha256, path.stat().st_size)
        raise EnvironmentInvalid(
            f"{package['name']} {package.get('version', '')} has no wheel for this platform, and a node that is offline "
            "cannot build it.",
            hint="Take a version that has one, or build the wheel yourself and name its folder with find_links.",
        )

    def _fetch(self, address: str, sha256: str, name: str, secret: Mapping[str, str]) -> Path:
        import urllib.request

        folder = self.folder / sha256
        folder.mkdir(parents=True, exist_ok=True)
        request = urllib.request.Request(address, headers=_credentials(address, secret))
        handle, temporary = tempfile.mkstemp(dir=folder)
        seen = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as out, urllib.request.urlopen(request, timeout=FETCH_SECONDS) as answer:
                while piece := answer.read(1 << 20):
                    seen.update(piece)
                    out.write(piece)
            if seen.hexdigest() != sha256:
                raise EnvironmentInvalid(f"{name} is not the file that was locked: its hash differs.")
            os.replace(temporary, folder / name)
        except OSError as error:
            raise EnvironmentInvalid(
                f"{name} cannot be fetched: {error}.", hint="Does the package index answer? Try again."
            ) from error
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        return folder / name


def _credentials(address: str, secret: Mapping[str, str]) -> dict[str, str]:
    """The password of the index that the file is on, if that has one."""
    import base64

    for value in secret.values():
        for url in value.split():
            parts = urlsplit(url)
            if parts.username is not None and parts.hostname == urlsplit(address).hostname:
                pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
                return {"Authorization": "Basic " + base64.b64encode(pair).decode()}
    return {}
