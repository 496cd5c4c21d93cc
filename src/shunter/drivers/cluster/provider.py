"""Ray's autoscaler asks here for nodes; a `NodePool` has them. Runs in the autoscaler's process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.autoscaler.node_provider import NodeProvider
from ray.autoscaler.tags import (
    NODE_KIND_HEAD,
    NODE_KIND_WORKER,
    STATUS_UP_TO_DATE,
    TAG_RAY_NODE_KIND,
    TAG_RAY_NODE_STATUS,
    TAG_RAY_USER_NODE_TYPE,
)

from shunter.drivers.cluster.folder import ClusterFolder
from shunter.drivers.cluster.pools import pool_class
from shunter.drivers.cluster.pools.base import PoolNode

#: The head must be among the nodes, by the id that it was started with: else nothing is ever launched, without a word.
HEAD = "head"
_HEAD_TAGS = {TAG_RAY_NODE_KIND: NODE_KIND_HEAD, TAG_RAY_USER_NODE_TYPE: HEAD, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}


class Provider(NodeProvider):  # type: ignore[misc]
    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self.folder = ClusterFolder(Path(provider_config["folder"]))
        spec = self.folder.spec()
        self.pool = pool_class(spec.pool)(self.folder, spec)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config

    def is_readonly(self) -> bool:
        return False

    def non_terminated_nodes(self, tag_filters: Mapping[str, str]) -> list[str]:
        tags = {HEAD: _HEAD_TAGS, **{node.name: _tags(node) for node in self.pool.nodes()}}
        return [name for name, has in tags.items() if all(has.get(k) == v for k, v in tag_filters.items())]

    def is_running(self, node_id: str) -> bool:
        return node_id == HEAD or self._find(node_id) is not None

    def is_terminated(self, node_id: str) -> bool:
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        if node_id == HEAD:
            return dict(_HEAD_TAGS)
        node = self._find(node_id)
        return _tags(node) if node is not None else {}

    def set_node_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        if node_id != HEAD:
            self.pool.set_tags(node_id, tags)

    def internal_ip(self, node_id: str) -> str:
        node = self._find(node_id)
        return node.address if node is not None else self.folder.place().address

    external_ip = internal_ip

    def create_node_with_resources_and_labels(
        self, node_config: Mapping[str, Any], tags: Mapping[str, str], count: int,
        resources: Mapping[str, float], labels: Mapping[str, str],
    ) -> dict[str, Any]:  # fmt: skip
        kept = {TAG_RAY_NODE_KIND: NODE_KIND_WORKER, **tags, TAG_RAY_NODE_STATUS: STATUS_UP_TO_DATE}
        return {self.pool.create(kept, resources): {} for _ in range(count)}

    def create_node(self, node_config: Mapping[str, Any], tags: Mapping[str, str], count: int) -> dict[str, Any]:
        return self.create_node_with_resources_and_labels(
            node_config, tags, count, self.folder.spec().shape().resources(), {}
        )

    def terminate_node(self, node_id: str) -> None:
        if node_id != HEAD:
            self.pool.terminate(node_id)

    def terminate_nodes(self, node_ids: list[str]) -> None:
        for node_id in node_ids:
            self.terminate_node(node_id)

    def _find(self, name: str) -> PoolNode | None:
        return next((node for node in self.pool.nodes() if node.name == name), None)


def _tags(node: PoolNode) -> dict[str, str]:
    return dict(node.tags)
