"""Managed clusters: from zero nodes to many and back, on Ray."""

from importlib.util import find_spec

if find_spec("ray") is None:  # said here, without importing it: the server itself never needs Ray in its process
    raise ImportError("Ray is not installed", name="ray")

from shunter.drivers.cluster.driver import ClusterDriver

__all__ = ["ClusterDriver"]
