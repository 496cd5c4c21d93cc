"""Every error we raise.

ShunterError
├── UsageError                what was asked for makes no sense
│   ├── NameInvalid           a name that cannot be used
│   ├── NotFound              no such thing
│   ├── AlreadyExists         a thing of that name is there already
│   ├── Conflict              not now: the thing's state forbids it
│   ├── Infeasible            a run that could never start
│   ├── InputChanged          data that is not what it was at submit
│   └── SnapshotError         a folder that cannot be frozen
│       ├── SnapshotTooLarge
│       ├── SnapshotChanged
│       └── SnapshotUnknown   the server does not hold this snapshot yet
├── AuthError                 no token, a wrong one, or one that does not reach this far
├── ConfigError               a setting or a file that cannot be used
│   └── ExtraMissing          an optional library is not installed
├── EnvironmentInvalid        an environment that cannot be had
├── ServerError               the server could not do it
│   ├── ServerUnreachable
│   ├── DatabaseTooNew
│   ├── DatabaseBusy
│   ├── StorageFull
│   └── BlobCorrupt
├── DriverError               a compute target could not do it
│   ├── TargetUnreachable
│   ├── HostKeyUnknown        a machine that nobody has vouched for yet
│   ├── HostKeyChanged        a machine that is not the one it was
│   ├── LoginRefused          the machine does not let this user in
│   └── NodeUnfit             the machine answers, and cannot be used as it is
├── RunFailed                 raised by `run.wait(raise_on_error=True)`
└── StaleState                somebody else moved the row first; loops try again

The `code` crosses the wire, so the SDK raises the very class that the server raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar


class ShunterError(Exception):
    """Something went wrong."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def to_wire(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


class UsageError(ShunterError):
    """This request makes no sense."""

    code = "usage"
    http_status = 422


class NameInvalid(UsageError):
    """This name cannot be used."""

    code = "name_invalid"


class NotFound(UsageError):
    """There is no such thing."""

    code = "not_found"
    http_status = 404


class AlreadyExists(UsageError):
    """A thing of that name is there already."""

    code = "already_exists"
    http_status = 409


class Conflict(UsageError):
    """The state of the thing forbids it now."""

    code = "conflict"
    http_status = 409


class Infeasible(UsageError):
    """This run could never start on its target."""

    code = "infeasible"


class InputChanged(UsageError):
    """The input has changed since the run was submitted."""

    code = "input_changed"
    http_status = 409


class SnapshotError(UsageError):
    """This folder cannot be frozen."""

    code = "snapshot_invalid"


class SnapshotTooLarge(SnapshotError):
    """The folder is larger than the set limit."""

    code = "snapshot_too_large"


class SnapshotChanged(SnapshotError):
    """A file changed while it was being sent."""

    code = "snapshot_changed"


class SnapshotUnknown(SnapshotError):
    """The server does not hold this snapshot."""

    code = "snapshot_unknown"
    http_status = 409


class AuthError(ShunterError):
    """The token is missing, wrong, or does not reach this far."""

    code = "auth"
    http_status = 401


class ConfigError(ShunterError):
    """A setting or a configuration file cannot be used."""

    code = "config"
    http_status = 422


class ExtraMissing(ConfigError):
    """An optional library is not installed."""

    code = "extra_missing"


class EnvironmentInvalid(ShunterError):
    """The environment cannot be had."""

    code = "environment_invalid"
    http_status = 422


class ServerError(ShunterError):
    """The server could not do it."""

    code = "server"


class ServerUnreachable(ServerError):
    """The server does not answer."""

    code = "server_unreachable"
    http_status = 503


class DatabaseTooNew(ServerError):
    """The database was written by a newer release."""

    code = "database_too_new"


class DatabaseBusy(ServerError):
    """The database is locked by somebody else."""

    code = "database_busy"
    http_status = 503


class StorageFull(ServerError):
    """The disk is full."""

    code = "storage_full"
    http_status = 507


class BlobCorrupt(ServerError):
    """Stored or sent bytes are not what their name says."""

    code = "blob_corrupt"
    http_status = 422


class DriverError(ShunterError):
    """The compute target could not do it."""

    code = "driver"
    http_status = 502


class TargetUnreachable(DriverError):
    """The compute target did not answer."""

    code = "target_unreachable"


class HostKeyUnknown(DriverError):
    """The host key of the machine is not known."""

    code = "host_key_unknown"
    http_status = 409


class HostKeyChanged(DriverError):
    """The host key of the machine is not the one that is known."""

    code = "host_key_changed"
    http_status = 409


class LoginRefused(DriverError):
    """The machine does not let this user in."""

    code = "login_refused"
    http_status = 422


class NodeUnfit(DriverError):
    """The machine answers, and cannot be used as it is."""

    code = "node_unfit"
    http_status = 422


class RunFailed(ShunterError):
    """The run failed."""

    code = "run_failed"


class StaleState(ShunterError):
    """Somebody else changed it first."""

    code = "stale_state"
    http_status = 409


def from_wire(error: dict[str, Any]) -> ShunterError:
    """The error a server sent, as the class that was raised there."""
    cls = _by_code().get(str(error.get("code")), ServerError)
    return cls(str(error.get("message", "")), hint=str(error.get("hint", "")))


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence that names the nearest known name, or lists a few; empty when nothing is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"Did you mean {close[0]!r}?"
    if not names:
        return ""
    return "Known: " + ", ".join(names[:8]) + (", …" if len(names) > 8 else "") + "."


def _by_code() -> dict[str, type[ShunterError]]:
    found: dict[str, type[ShunterError]] = {}
    todo: list[type[ShunterError]] = [ShunterError]
    while todo:
        cls = todo.pop()
        found.setdefault(cls.code, cls)
        todo.extend(cls.__subclasses__())
    return found
