"""Pools of nodes, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from shunter.errors import NotFound, nearest

if TYPE_CHECKING:
    from shunter.drivers.cluster.pools.base import NodePool

POOLS = {
    "local": "shunter.drivers.cluster.pools.local:LocalPool",
    "ssh": "shunter.drivers.cluster.pools.ssh:SshPool",
}


def pool_class(kind: str) -> type[NodePool]:
    if kind not in POOLS:
        raise NotFound(f"There is no pool of nodes named {kind!r}.", hint=nearest(kind, POOLS))
    module, _, name = POOLS[kind].partition(":")
    return cast("type[NodePool]", getattr(importlib.import_module(module), name))
