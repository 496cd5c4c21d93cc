"""`azureml.core.container_registry`."""

from __future__ import annotations

from dataclasses import dataclass

from shunter.azureml._strict import Strict


@dataclass
class ContainerRegistry(Strict):
    """Where an image comes from. Passwords are not taken: log in to the registry on the target."""

    address: str | None = None
    username: str | None = None
    password: str | None = None
