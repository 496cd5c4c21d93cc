"""What a person says about a cluster, and what follows from it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from shunter.catalogue import sizes
from shunter.catalogue.sizes import Size
from shunter.drivers.cluster.folder import Spec
from shunter.drivers.cluster.ray_engine import RECONNECT_SECONDS
from shunter.errors import UsageError
from shunter.model.compute import Compute
from shunter.node import interfaces

if TYPE_CHECKING:
    from shunter.drivers.ssh.config import SshConfig

FIXED: dict[str, Any] = {"fixed": True}
SECRET: dict[str, Any] = {"secret": True}
#: Options by which addresses of the pool `ssh` are logged in to.
_LOGIN = ("username", "password", "private_key_file", "private_key", "passphrase", "known_hosts_file")


class ClusterConfig(BaseModel):
    """Options of a managed cluster."""

    model_config = ConfigDict(extra="forbid")

    vm_size: str | None = Field(
        None, json_schema_extra=FIXED,
        description="Size of each node, by name: `shunter compute sizes` lists them. "
        "May be left out with --pool ssh: then it is what the smallest machine has.",
    )  # fmt: skip
    min_nodes: int = Field(0, ge=0, description="Nodes that stay when there is no work.")
    max_nodes: int | None = Field(
        None, ge=1, description="The most nodes there may be; 1, or with --pool ssh all machines, when not given."
    )
    idle_seconds_before_scaledown: float = Field(120, ge=0, description="A node goes when it had no work for so long.")
    pool: Literal["local", "ssh"] = Field(
        "local", description="Where nodes come from: this machine, or machines that are logged in to.", json_schema_extra=FIXED
    )
    machines: list[str] = Field(
        [], json_schema_extra={"targets": True},
        description="With --pool ssh: names of attached machines, or addresses. May be repeated.",
    )  # fmt: skip
    username: str | None = Field(None, description="Who logs in to addresses.")
    password: str | None = Field(None, repr=False, json_schema_extra=SECRET, description="Password of that user.")
    private_key_file: str | None = Field(
        None, json_schema_extra={"contents_to": "private_key"}, description="File with the private key to log in with."
    )
    private_key: str | None = Field(None, repr=False, json_schema_extra=SECRET, description="The private key itself.")
    passphrase: str | None = Field(
        None, repr=False, json_schema_extra=SECRET, description="Passphrase of the private key."
    )
    known_hosts_file: str | None = Field(None, description="Host keys to trust; ~/.ssh/known_hosts when not given.")
    bind_address: str = Field("127.0.0.1", description="The address of this machine at which nodes find the head.")
    subnet: str | None = Field(
        None, description="The network in which nodes find each other, as 10.1.0.0/16, when they are in several."
    )
    lease_seconds: float = Field(
        RECONNECT_SECONDS, ge=5, le=3600,
        description="A node that is cut off ends its work after so long; only then another attempt starts.",
    )  # fmt: skip
    region: str | None = Field(None, description="The region whose prices count.")
    price_per_hour: float | None = Field(None, ge=0, description="What an hour of a node costs.")
    description: str | None = Field(None, description="What it is for.")
    only_run: str | None = Field(
        None, description="Made for this run, and deleted after it.", json_schema_extra={"internal": True}
    )
    targets: dict[str, Any] | None = Field(
        None, description="The machines that are attached targets, as they are now.", json_schema_extra={"internal": True}
    )
    machine_size: dict[str, Any] | None = Field(
        None, description="What the smallest machine has.", json_schema_extra={"internal": True, "learned": True}
    )

    @field_validator("machines", mode="before")
    @classmethod
    def _one_by_one(cls, value: Any) -> Any:
        words = [value] if isinstance(value, str) else value
        return [name.strip() for word in words for name in str(word).split(",") if name.strip()]

    @field_validator("subnet")
    @classmethod
    def _is_network(cls, value: str | None) -> str | None:
        return None if value is None else str(ipaddress.ip_network(value, strict=False))

    @model_validator(mode="after")
    def _in_order(self) -> ClusterConfig:
        if self.pool == "local":
            if self.vm_size is None:
                raise ValueError("vm_size is needed: `shunter compute sizes` lists them")
            if self.machines:
                raise ValueError("machines are for --pool ssh")
        elif not self.machines:
            raise ValueError("the pool ssh needs machines: names of attached machines, or addresses")
        elif len(set(self.machines)) != len(self.machines):
            raise ValueError(f"the machine {max(self.machines, key=self.machines.count)!r} is named twice")
        if self.min_nodes > self.most_nodes:
            raise ValueError(f"min_nodes ({self.min_nodes}) is more than max_nodes ({self.most_nodes})")
        return self

    @property
    def most_nodes(self) -> int:
        return self.max_nodes or len(self.machines) or 1

    def size(self, home: Path) -> Size:
        if self.vm_size is not None:
            return sizes.load(home).get(self.vm_size)
        found = self.machine_size or {"cpus": 1, "memory_gib": 1.0}  # before the machines were looked at
        return Size("machine", int(found["cpus"]), float(found["memory_gib"]), gpus=float(found.get("gpus") or 0))

    def machine_configs(self, cluster: str) -> dict[str, SshConfig]:
        """How each machine is logged in to: as the attached target of that name is, else by the options here."""
        if self.pool != "ssh":
            return {}
        from shunter.drivers.ssh.config import SshConfig

        known, found = self.targets or {}, {}
        for name in self.machines:
            if name not in known:
                given = {k: v for k in _LOGIN if (v := getattr(self, k)) is not None}
                found[name] = SshConfig(address=name, **given)
            elif known[name]["kind"] == "ssh":
                found[name] = SshConfig(**known[name]["config"])
            else:
                raise UsageError(f"{cluster}: {name} is of kind {known[name]['kind']!r}; a pool ssh needs machines.")
        return found


def spec_of(compute: Compute, config: ClusterConfig, size: Size, home: Path, machines: Mapping[str, SshConfig]) -> Spec:
    options: dict[str, Any] = {"workspace": compute.workspace, "subnet": config.subnet}
    if machines:
        from shunter.drivers.cluster.machines import seal

        options["machines"] = seal(home, machines)
    return Spec(
        name=compute.name, size=size.name, cpus=size.cpus, gpus=int(size.gpus), memory_bytes=size.memory_bytes,
        min_nodes=config.min_nodes, max_nodes=config.most_nodes, idle_seconds=config.idle_seconds_before_scaledown,
        pool=config.pool, address=_address(config), only_run=config.only_run or "",
        lease_seconds=config.lease_seconds, options=options,
    )  # fmt: skip


def _address(config: ClusterConfig) -> str:
    """Where the head listens. Raises UsageError when this machine has no such address."""
    own = [*interfaces.addresses().values()]
    if config.subnet and config.pool == "local":
        network = ipaddress.ip_network(config.subnet)
        found = next((a for a in own if ipaddress.ip_address(a) in network), None)
        if found is None:
            raise UsageError(f"No address of this machine is in {config.subnet}: it has {', '.join(own)}.")
        return found
    if not config.bind_address.startswith("127.") and config.bind_address not in own:
        raise UsageError(f"This machine has no address {config.bind_address}: it has {', '.join(own)}.")
    return config.bind_address
