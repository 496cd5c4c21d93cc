"""Kinds of compute targets, loaded on first use: a missing library harms only its own kind."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import cast

from shunter.drivers.base import Driver
from shunter.errors import ExtraMissing, NotFound, nearest

DRIVERS = {
    "cluster": "shunter.drivers.cluster:ClusterDriver",
    "local": "shunter.drivers.local:LocalDriver",
    "ssh": "shunter.drivers.ssh:SshDriver",
}
#: The kind of which one is made for a run that names a size instead of a target.
FOR_ONE_RUN = "cluster"


def kinds() -> dict[str, str]:
    """Every known kind with where it is implemented; third parties join by the entry point `shunter.drivers`."""
    found = {e.name: e.value for e in metadata.entry_points(group="shunter.drivers")}
    return found | DRIVERS


def driver_class(kind: str) -> type[Driver]:
    known = DRIVERS if kind in DRIVERS else kinds()
    if kind not in known:
        raise NotFound(f"There is no kind of compute target named {kind!r}.", hint=nearest(kind, known))
    module, _, name = known[kind].partition(":")
    try:
        return cast("type[Driver]", getattr(importlib.import_module(module), name))
    except ImportError as error:
        raise ExtraMissing(
            f"Compute targets of kind {kind!r} need {error.name or error}, which is not installed.",
            hint=f"pip install 'shunter[{kind}]' brings it.",
        ) from error
