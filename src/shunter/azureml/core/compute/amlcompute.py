"""`azureml.core.compute.amlcompute`: managed clusters that grow from zero and shrink again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shunter.azureml.core.compute.compute import ComputeConfiguration, ComputeTarget
from shunter.azureml.exceptions import ComputeTargetException, as_first_sdk

if TYPE_CHECKING:
    from shunter.azureml.core.workspace import Workspace

_LOOK_AGAIN_SECONDS = 0.5


class ScaleSettings:
    def __init__(self, minimum: int, maximum: int, idle_seconds: float) -> None:
        self.minimum_node_count, self.maximum_node_count = minimum, maximum
        self.idle_seconds_before_scaledown = idle_seconds

    def serialize(self) -> dict[str, Any]:
        return {"minNodeCount": self.minimum_node_count, "maxNodeCount": self.maximum_node_count,
                "nodeIdleTimeBeforeScaleDown": f"PT{int(self.idle_seconds_before_scaledown)}S"}  # fmt: skip


class AmlComputeStatus:
    """How a cluster stands now."""

    def __init__(self, shown: dict[str, Any], scale: ScaleSettings) -> None:
        counts = dict(shown.get("node_counts") or {})
        self.allocation_state = "Resizing" if counts.get("preparing") or counts.get("leaving") else "Steady"
        self.node_state_counts = {
            "preparingNodeCount": counts.get("preparing", 0), "runningNodeCount": counts.get("running", 0),
            "idleNodeCount": counts.get("idle", 0), "unusableNodeCount": counts.get("unusable", 0),
            "leavingNodeCount": counts.get("leaving", 0), "preemptedNodeCount": counts.get("preempted", 0),
        }  # fmt: skip
        self.current_node_count = sum(counts.values())
        self.target_node_count = max(self.current_node_count, scale.minimum_node_count)
        self.provisioning_state = str(shown["state"])
        self.scale_settings = scale
        self.vm_size = str(shown["config"].get("vm_size", ""))
        self.vm_priority = "Dedicated"
        self.errors: list[Any] = []
        self.creation_time = self.modified_time = shown["created_at"]

    def serialize(self) -> dict[str, Any]:
        return {
            "currentNodeCount": self.current_node_count, "targetNodeCount": self.target_node_count,
            "nodeStateCounts": self.node_state_counts, "allocationState": self.allocation_state,
            "provisioningState": self.provisioning_state, "errors": self.errors, "creationTime": self.creation_time,
            "scaleSettings": self.scale_settings.serialize(), "vmPriority": self.vm_priority, "vmSize": self.vm_size.upper(),
        }  # fmt: skip


class AmlCompute(ComputeTarget):
    """A managed cluster."""

    _compute_type, _kind = "AmlCompute", "cluster"

    @staticmethod
    def provisioning_configuration(
        vm_size: str = "", vm_priority: str = "dedicated", min_nodes: int = 0, max_nodes: int | None = None,
        idle_seconds_before_scaledown: float | None = 1800, admin_username: str | None = None,
        admin_user_password: str | None = None, admin_user_ssh_key: str | None = None,
        vnet_resourcegroup_name: str | None = None, vnet_name: str | None = None, subnet_name: str | None = None,
        tags: dict[str, str] | None = None, description: str | None = None,
        remote_login_port_public_access: str = "NotSpecified", identity_type: str | None = None,
        identity_id: Any = None, location: str | None = None, enable_node_public_ip: bool = True,
    ) -> ComputeConfiguration:  # fmt: skip
        """How a cluster shall be. Users, networks and identities of nodes are accepted: ours has none."""
        if max_nodes is None:
            raise _invalid("the max nodes count is mandatory")
        if not vm_size:
            raise _invalid("say vm_size; AmlCompute.supported_vmsizes(ws) lists them")
        if min_nodes > max_nodes:
            raise _invalid(f"min_nodes ({min_nodes}) is more than max_nodes ({max_nodes})")
        vnet = (vnet_resourcegroup_name, vnet_name, subnet_name)
        if any(vnet) and not all(vnet):
            raise _invalid("a network needs vnet_resourcegroup_name, vnet_name and subnet_name")
        if admin_username and not (admin_user_password or admin_user_ssh_key):
            raise _invalid("a user needs a password or a key")
        options = {
            "vm_size": vm_size, "min_nodes": min_nodes, "max_nodes": max_nodes, "region": location,
            "description": description, "idle_seconds_before_scaledown": idle_seconds_before_scaledown,
        }  # fmt: skip
        return ComputeConfiguration("cluster", {k: v for k, v in options.items() if v is not None}, tags)

    @staticmethod
    def supported_vmsizes(workspace: Workspace, location: str | None = None) -> list[dict[str, Any]]:
        with as_first_sdk(ComputeTargetException):
            found = workspace._ours.compute.sizes(region=location, limit=100_000)
        return [
            {"name": one["name"], "vCPUs": one.get("cpus"), "gpus": int(one.get("gpus") or 0),
             "memoryGB": round((one.get("memory_bytes") or 0) / (1 << 30), 2)}
            for one in found
        ]  # fmt: skip

    @property
    def vm_size(self) -> str:
        return str(self._ours.config.get("vm_size", ""))

    @property
    def vm_priority(self) -> str:
        return "dedicated"

    @property
    def scale_settings(self) -> ScaleSettings:
        config = self._ours.config
        return ScaleSettings(
            int(config.get("min_nodes", 0)), int(config.get("max_nodes", 1)),
            float(config.get("idle_seconds_before_scaledown", 120)),
        )  # fmt: skip

    @property
    def status(self) -> AmlComputeStatus:
        return self.get_status()

    @as_first_sdk(ComputeTargetException)
    def get_status(self) -> AmlComputeStatus:
        shown = self._ours.show()
        self._ours.data = shown
        return AmlComputeStatus(shown, self.scale_settings)

    @as_first_sdk(ComputeTargetException)
    def list_nodes(self) -> list[dict[str, Any]]:
        return [
            {"nodeId": node.get("name"), "nodeState": node.get("state"), "privateIpAddress": node.get("address"),
             "runId": node.get("run_id")}
            for node in self._ours.show().get("nodes", [])
        ]  # fmt: skip

    @as_first_sdk(ComputeTargetException)
    def update(
        self, min_nodes: int | None = None, max_nodes: int | None = None, idle_seconds_before_scaledown: float | None = None
    ) -> None:
        said = {"min_nodes": min_nodes, "max_nodes": max_nodes, "idle_seconds_before_scaledown": idle_seconds_before_scaledown}
        self._ours.update(**{k: v for k, v in said.items() if v is not None})

    def wait_for_completion(  # type: ignore[override]
        self, show_output: bool = False, min_node_count: int | None = None, timeout_in_minutes: float = 25,
        is_delete_operation: bool = False,
    ) -> None:  # fmt: skip
        """Until it is there and has as many nodes as it must have at least."""
        if is_delete_operation:
            return
        until = time.monotonic() + 60 * timeout_in_minutes
        wanted = min_node_count if min_node_count is not None else self.scale_settings.minimum_node_count
        wanted = min(wanted, self.scale_settings.minimum_node_count)  # nodes beyond come with runs
        told = ""
        while True:
            status = self.get_status()
            ready = status.node_state_counts["idleNodeCount"] + status.node_state_counts["runningNodeCount"]
            if show_output and status.provisioning_state != told:
                told = status.provisioning_state
                print(told, flush=True)
            self._check()
            if told in ("", "Succeeded") and status.provisioning_state == "Succeeded" and ready >= wanted:
                break
            if time.monotonic() > until:
                raise ComputeTargetException(
                    f"{self.name} has {ready} of {wanted} nodes and is {status.provisioning_state} after {timeout_in_minutes} min"
                )
            time.sleep(_LOOK_AGAIN_SECONDS)
        if show_output:
            print("AmlCompute wait for completion finished\n")
            print("Minimum number of nodes requested have been provisioned", flush=True)


def _invalid(why: str) -> ComputeTargetException:
    return ComputeTargetException(f"Invalid provisioning configuration: {why}.")
