"""Managed clusters: from zero nodes to many and back, on Ray."""

from importlib.util import find_spec
from typing import Any

if find_spec("ray") is None:  # said here, without importing it: the server itself never needs Ray in its process
    raise ImportError("Ray is not installed", name="ray")

__all__ = ["ClusterDriver"]


def __getattr__(name: str) -> Any:
    """The driver on first use: keeper, head and nodes are processes of their own and need little of it."""
    if name == "ClusterDriver":
        from shunter.drivers.cluster.driver import ClusterDriver

        return ClusterDriver
    raise AttributeError(name)
