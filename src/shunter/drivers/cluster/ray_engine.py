"""Ray's private parts, all of them, in one place: nodes without `ray start`, groups that outlive their maker.

Everything here was tried with exactly the Ray named in `RAY_VERSION`; another one is refused rather than half understood.
Why private: `ray start` takes twice as long, brings a dashboard, opens its ports to everybody, and refuses to bring a head
back beside living nodes (`docs/clusters.md`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RAY_VERSION = "2.60.0"
NAMESPACE = "shunter"
#: The label by which a Ray node tells which of our nodes it is.
NODE_LABEL = "shunter-node"
#: A node that lost its head keeps trying for so long; a head that died must be back before.
RECONNECT_SECONDS = 60
#: Ray wants at least 75 MiB of shared memory for its objects; we put none there.
_OBJECT_STORE_BYTES = 80 << 20

#: Keys that Ray's autoscaler reads without asking whether they are there.
_LEGACY_KEYS: Mapping[str, Any] = {
    "auth": {}, "docker": {}, "file_mounts": {}, "initialization_commands": [], "setup_commands": [],
    "head_setup_commands": [], "worker_setup_commands": [], "head_start_ray_commands": [],
    "worker_start_ray_commands": [], "cluster_synced_files": [], "rsync_exclude": [], "rsync_filter": [],
    "file_mounts_sync_continuously": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cluster's Ray lives: one port, one token file, one short folder, one address."""

    port: int
    address: str
    token_file: str
    temp_folder: str
    storage_folder: str
    metrics_port: int

    @property
    def gcs(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return self.address.startswith("127.")


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of node: how many there may be, and what each has."""

    name: str
    cpus: int
    gpus: int
    memory_bytes: int
    min_nodes: int
    max_nodes: int

    def resources(self) -> dict[str, float]:
        found: dict[str, float] = {"CPU": self.cpus, "memory": self.memory_bytes}
        if self.gpus:
            found["GPU"] = self.gpus
        return found


def worker_tags(kind: str) -> dict[str, str]:
    """The tags by which Ray's autoscaler knows a node of ours that it did not ask for itself, and takes it on."""
    return {"ray-node-type": "worker", "ray-user-node-type": kind, "ray-node-status": "up-to-date"}


def check_version() -> None:
    """Raise ImportError unless exactly the Ray that this module knows is installed."""
    from importlib.metadata import version

    found = version("ray")
    if found != RAY_VERSION:
        raise ImportError(f"ray {RAY_VERSION} (found {found})", name=f"ray=={RAY_VERSION}")


def environment(place: Place, node: str, kind: str) -> dict[str, str]:
    """The environment of every process of this cluster. Nothing of another Ray on the machine is taken over."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AUTOSCALER_", "SHUNTER_"))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # Ray starts a dozen interpreters; each would compile all of it again
    env.update(
        RAY_enable_autoscaler_v2="1",
        AUTOSCALER_UPDATE_INTERVAL_S="1",
        AUTOSCALER_METRIC_PORT=str(place.metrics_port),
        RAY_CLOUD_INSTANCE_ID=node,
        RAY_NODE_TYPE_NAME=kind,
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=place.token_file,
        # A node that is killed is missed after 5 s, one that is cut off after 25; a busy one is not taken for dead.
        RAY_health_check_period_ms="1000",
        RAY_health_check_timeout_ms="5000",
        RAY_health_check_failure_threshold="5",
        RAY_raylet_start_wait_time_s="110",
        RAY_gcs_storage="rocksdb",
        RAY_gcs_storage_path=place.storage_folder,
        RAY_gcs_rpc_server_reconnect_timeout_s=str(RECONNECT_SECONDS),
        # A group whose room was just given back is seen late: it is tried again soon, not after a second.
        RAY_gcs_create_placement_group_retry_min_interval_ms="20",
        RAY_gcs_create_placement_group_retry_max_interval_ms="200",
        # A node that died before the autoscaler saw it is asked for again after so long, not after ten minutes.
        RAY_AUTOSCALER_RECONCILE_REQUEST_STATUS_TIMEOUT_S="30",
        RAY_USAGE_STATS_ENABLED="0",
        RAY_DEDUP_LOGS="0",
    )
    if place.is_loopback:
        # Without it a loopback address is silently replaced by the machine's own, and the ports open to everybody.
        env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    return env


def autoscaler_config(name: str, shape: Shape, idle_seconds: float, provider: Mapping[str, Any]) -> dict[str, Any]:
    """What Ray's autoscaler reads, again in every round: writing it anew resizes the cluster."""
    return {
        **_LEGACY_KEYS,
        "cluster_name": name,
        "max_workers": shape.max_nodes,
        "idle_timeout_minutes": idle_seconds / 60,
        "upscaling_speed": 1000,  # else the first nodes come one for each round
        "head_node_type": "head",
        "available_node_types": {
            "head": {"resources": {"CPU": 0}, "labels": {}, "node_config": {}, "min_workers": 0, "max_workers": 0},
            shape.name: {
                "resources": shape.resources(), "labels": {}, "node_config": {},
                "min_workers": shape.min_nodes, "max_workers": shape.max_nodes,
            },
        },
        "provider": {
            "type": "external", "module": "shunter.drivers.cluster.provider.Provider",
            "disable_node_updaters": True, "disable_launch_config_check": True, **provider,
        },
    }  # fmt: skip


class HeadNode:
    """The head of a cluster: Ray's store, its scheduler and its autoscaler. Comes back on the state it has stored."""

    def __init__(self, place: Place, autoscaler_file: str, on_open: Callable[[], None] = lambda: None) -> None:
        """`on_open` is called when nodes can join, which is before all of the head is there."""
        from ray._private.node import Node
        from ray._private.parameter import RayParams

        class Quiet(Node):  # type: ignore[misc]
            def start_api_server(self, *_: object, **__: object) -> None:
                """No dashboard: nobody looks at it, and it is a third of the head."""

            def _write_cluster_info_to_kv(self) -> None:
                super()._write_cluster_info_to_kv()
                on_open()

        params = RayParams(
            gcs_server_port=place.port, node_ip_address=place.address, num_cpus=0, num_gpus=0, resources={}, labels={},
            autoscaling_config=autoscaler_file, dashboard_port=place.port + 1, **_common(place),
        )  # fmt: skip
        with _without_agents():
            self._node = Quiet(params, head=True, shutdown_at_exit=False, spawn_reaper=True)

    def look_after(self) -> bool:
        """Bring a dead autoscaler back; False when something died that cannot be replaced alone."""
        for kind, process in self._node.dead_processes():
            if kind != "monitor":
                return False
            process.wait()
            del self._node.all_processes[kind]
            self._node.start_monitor()
        return True

    def stop(self) -> None:
        self._node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


class WorkerNode:
    """A node that joins a cluster with what it has."""

    def __init__(self, place: Place, name: str, resources: Mapping[str, float], address: str) -> None:
        from ray._private.node import Node
        from ray._private.parameter import RayParams

        resources = dict(resources)
        params = RayParams(
            gcs_address=place.gcs, node_ip_address=address, num_cpus=int(resources.pop("CPU")),
            num_gpus=int(resources.pop("GPU", 0)), memory=int(resources.pop("memory")), resources=resources,
            labels={NODE_LABEL: name}, plasma_store_socket_name=f"{place.temp_folder}/{name}.plasma",
            raylet_socket_name=f"{place.temp_folder}/{name}.raylet", **_common(place),
        )  # fmt: skip
        with _without_agents():
            self._node = Node(params, head=False, shutdown_at_exit=False, spawn_reaper=True)

    def is_alive(self) -> bool:
        return not self._node.dead_processes()

    def was_released(self) -> bool:
        """Ray let it go in order, as the autoscaler does with a node that was idle for long enough."""
        return all(process.returncode == 0 for kind, process in self._node.dead_processes() if kind == "raylet")

    def stop(self) -> None:
        self._node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


class Groups:
    """Placement groups of a cluster: each holds the room of one attempt, whoever asked for it."""

    def __init__(self, place: Place) -> None:
        import logging

        import ray

        self._ray = ray
        ray.init(address=place.gcs, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)

    def create(self, name: str, bundles: Sequence[Mapping[str, float]]) -> Any:
        """Ask for room. The same name twice asks once."""
        found = self.find(name)
        if found is not None:
            return found
        strategy = "STRICT_SPREAD" if len(bundles) > 1 else "PACK"
        try:
            return self._ray.util.placement_group(
                [dict(b) for b in bundles], strategy=strategy, name=name, lifetime="detached"
            )
        except ValueError:  # somebody made it in between
            return self._ray.util.get_placement_group(name)

    def find(self, name: str) -> Any:
        try:
            return self._ray.util.get_placement_group(name)
        except ValueError:
            return None

    def wait(self, group: Any, seconds: float) -> Sequence[str] | None:
        """Our names of the nodes that hold the bundles, in their order; None when there is no room yet."""
        if not group.wait(seconds):
            return None
        return self.nodes_of(group)

    def nodes_of(self, group: Any) -> Sequence[str] | None:
        table = self._ray.util.placement_group_table(group)
        if table.get("state") != "CREATED":
            return None
        names = {n["NodeID"]: n["Labels"].get(NODE_LABEL, "") for n in self._ray.nodes()}
        where = table["bundles_to_node_id"]
        return [names.get(where[index], "") for index in sorted(where)]

    def remove(self, name: str) -> None:
        found = self.find(name)
        if found is not None:
            self._ray.util.remove_placement_group(found)

    def names(self) -> list[str]:
        """The groups that are there, with or without room."""
        tables = self._ray.util.placement_group_table().values()
        return [t["name"] for t in tables if t["state"] not in ("REMOVED",)]

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Our nodes that have joined: whether they are alive and what they have."""
        found = {}
        for node in self._ray.nodes():
            name = node["Labels"].get(NODE_LABEL)
            if name:
                found[name] = {"alive": bool(node["Alive"]), "why": node.get("DeathReasonMessage", "")}
        return found

    def autoscaler(self) -> dict[str, Any]:
        """What the autoscaler is doing: what it waits for, what failed."""
        from ray.autoscaler.v2.sdk import get_cluster_status

        status = get_cluster_status(self._ray.get_runtime_context().gcs_address)
        return {
            "pending": len(status.pending_nodes) + len(status.pending_launches),
            "failed": [str(getattr(f, "details", f)) for f in status.failed_nodes][-3:],
            "at": time.time(),
        }

    def close(self) -> None:
        self._ray.shutdown()


#: Two agents stand beside each raylet, for metrics and for the environments of workers. We use neither, and they are most of
#: what a node costs: 1.6 s of a core to start, 190 MB. The raylet wants them to tell their ports and to stay.
_AGENTS = {
    "--dashboard_agent_command=": ("dashboard_agent_listen", "metrics_agent", "metrics_export"),
    "--runtime_env_agent_command=": ("runtime_env_agent",),
}


@contextlib.contextmanager
def _without_agents() -> Iterator[None]:
    """While a node is made, its raylet is given a shell that waits for it in the place of each agent.

    When the raylet dies meanwhile, this process ends with it: Ray would wait for it to the end of its time.
    """
    from ray._private import services

    start = services.start_ray_process
    made = threading.Event()

    def watch(raylet: Any) -> None:
        while not made.wait(0.2):
            if raylet.poll() is not None:
                print(f"the raylet died while it started: {raylet.returncode}", file=sys.stderr, flush=True)
                os._exit(1)

    def instead(command: list[str], kind: str, *more: Any, **options: Any) -> Any:
        found = start([_stub(word, command) for word in command], kind, *more, **options)
        if kind == "raylet":
            threading.Thread(target=watch, args=(found.process,), daemon=True).start()
        return found

    services.start_ray_process = instead
    try:
        yield
    finally:
        made.set()
        services.start_ray_process = start


def _stub(word: str, command: Sequence[str]) -> str:
    option = next((o for o in _AGENTS if word.startswith(o)), None)
    if option is None:
        return word
    given = dict(w.removeprefix("--").split("=", 1) for w in command if w.startswith(("--session_dir=", "--node_id=")))
    files = [shlex.quote(f"{given['session_dir']}/{name}_port_{given['node_id']}") for name in _AGENTS[option]]
    # Whole at once: a raylet that finds the file empty dies of it.
    says = "; ".join(f"printf 1 > {file}.new && mv {file}.new {file}" for file in files)
    return option + shlex.join(["/bin/sh", "-c", f"{says}; while kill -0 $PPID; do sleep 2; done"])


def _common(place: Place) -> dict[str, Any]:
    return {
        "object_store_memory": _OBJECT_STORE_BYTES, "min_worker_port": 0, "max_worker_port": 0,
        "dashboard_agent_listen_port": 0, "include_log_monitor": False, "include_dashboard": False,
        "temp_dir": place.temp_folder,
    }  # fmt: skip
