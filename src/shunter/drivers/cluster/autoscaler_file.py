"""What Ray's autoscaler reads in every round, written from what the cluster is."""

from __future__ import annotations

import json

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.drivers.cluster.ray_engine import autoscaler_config
from shunter.node import contract


def write_autoscaler(folder: ClusterFolder) -> None:
    """Holds from the autoscaler's next round on: this resizes a cluster."""
    spec = folder.spec()
    config = autoscaler_config(spec.name, spec.shape(), spec.idle_seconds, {"folder": str(folder.path)})
    contract.write_whole(str(folder.autoscaler_file), json.dumps(config).encode())
