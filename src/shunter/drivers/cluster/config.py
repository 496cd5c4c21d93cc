"""What a person says about a cluster, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shunter.catalogue import sizes
from shunter.catalogue.sizes import Size
from shunter.drivers.cluster.folder import Spec


class ClusterConfig(BaseModel):
    """Options of a managed cluster."""

    model_config = ConfigDict(extra="forbid")

    vm_size: str = Field(
        description="Size of each node, by name: `shunter compute sizes` lists them.", json_schema_extra={"fixed": True}
    )
    min_nodes: int = Field(0, ge=0, description="Nodes that stay when there is no work.")
    max_nodes: int = Field(1, ge=1, description="The most nodes there may be.")
    idle_seconds_before_scaledown: float = Field(120, ge=0, description="A node goes when it had no work for so long.")
    pool: Literal["local"] = Field(
        "local", description="Where nodes come from: this machine.", json_schema_extra={"fixed": True}
    )
    bind_address: str = Field("127.0.0.1", description="The address at which nodes find the head.")
    region: str | None = Field(None, description="The region whose prices count.")
    price_per_hour: float | None = Field(None, ge=0, description="What an hour of a node costs.")
    description: str | None = Field(None, description="What it is for.")
    only_run: str | None = Field(
        None, description="Made for this run, and deleted after it.", json_schema_extra={"internal": True}
    )

    @model_validator(mode="after")
    def _in_order(self) -> ClusterConfig:
        if self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes ({self.min_nodes}) is more than max_nodes ({self.max_nodes})")
        return self

    def size(self, home: Path) -> Size:
        return sizes.load(home).get(self.vm_size)


def spec_of(name: str, config: ClusterConfig, size: Size) -> Spec:
    return Spec(
        name=name, size=size.name, cpus=size.cpus, gpus=int(size.gpus), memory_bytes=size.memory_bytes,
        min_nodes=config.min_nodes, max_nodes=config.max_nodes, idle_seconds=config.idle_seconds_before_scaledown,
        pool=config.pool, address=config.bind_address, only_run=config.only_run or "",
    )  # fmt: skip
