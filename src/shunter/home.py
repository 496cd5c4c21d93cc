"""SHUNTER_HOME: where a person's own server keeps its things, and how clients find it."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shunter.errors import ConfigError

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p",
            "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.glusterfs", "fuse.ceph"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """The files in SHUNTER_HOME that client and server share."""

    path: Path

    @classmethod
    def find(cls) -> HomeFolder:
        """SHUNTER_HOME, else ~/.shunter."""
        named = os.environ.get("SHUNTER_HOME")
        path = Path(named).expanduser().absolute() if named else Path.home() / ".shunter"
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is not a folder.", hint="Point SHUNTER_HOME at a folder that Shunter may use.")
        return cls(path)

    @property
    def endpoint_file(self) -> Path:
        return self.path / "endpoint.json"

    @property
    def token_file(self) -> Path:
        return self.path / "token"

    @property
    def secret_file(self) -> Path:
        return self.path / "secret"

    @property
    def lock_file(self) -> Path:
        return self.path / "server.lock"

    @property
    def log_file(self) -> Path:
        return self.path / "server.log"

    @property
    def cache(self) -> Path:
        return self.path / "cache"

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be made: {error.strerror}.", hint="Point SHUNTER_HOME at a folder you may write to."
            ) from error

    def endpoint(self) -> dict[str, Any] | None:
        """Where the running server is: url, pid, version, database. None when there is none, or a broken file."""
        try:
            found = json.loads(self.endpoint_file.read_text())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and found.get("url") else None

    def read_or_make(self, file: Path) -> str:
        """A random secret in a file that only this person can read; made on first use, the same for all who race."""
        try:
            return file.read_text().strip()
        except FileNotFoundError:
            pass
        self.make()
        fd, temporary = tempfile.mkstemp(dir=self.path)
        try:
            os.write(fd, secrets.token_urlsafe(32).encode())
            os.close(fd)
            try:
                os.link(temporary, file)
            except FileExistsError:
                pass
        finally:
            os.unlink(temporary)
        return file.read_text().strip()


def network_file_system(path: Path, mounts: str = "/proc/self/mounts") -> str | None:
    """The type of the network file system that holds `path`, None when it is a local one."""
    try:
        lines = Path(mounts).read_text().splitlines()
    except OSError:
        return None
    best, kind = "", ""
    where = str(path.resolve())
    for line in lines:
        _, point, found, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if (where == point or where.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, found
    return kind if kind in _NETWORK else None
