"""`azureml.core.compute.remote`: a machine that is reached by SSH."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shunter.azureml.core.compute.compute import ComputeConfiguration, ComputeTarget
from shunter.azureml.exceptions import ComputeTargetException, UserErrorException

if TYPE_CHECKING:
    from shunter.azureml.core.workspace import Workspace


class RemoteCompute(ComputeTarget):
    """An attached machine. Its host key must be known: see `~/.ssh/known_hosts`, or `shunter compute attach`."""

    _compute_type, _kind = "VirtualMachine", "ssh"

    @staticmethod
    def attach_configuration(
        username: str | None = None, subscription_id: str | None = None, resource_group: str | None = None,
        vm_name: str | None = None, resource_id: str | None = None, address: str | None = None, ssh_port: Any = 22,
        password: str | None = "", private_key_file: str | os.PathLike[str] | None = "", private_key_passphrase: str | None = "",
    ) -> ComputeConfiguration:  # fmt: skip
        """How it is reached. A machine is named by its address; names of cloud resources mean nothing to ours."""
        if not address:
            if resource_id or (subscription_id and resource_group and vm_name):
                raise ComputeTargetException("Say address: Shunter asks no cloud where a machine is.")
            raise UserErrorException("Say address: the host name or IP address of the machine.")
        options = {
            "address": address, "port": int(ssh_port) if ssh_port else None, "username": username or None,
            "password": password or None, "private_key_file": os.fspath(private_key_file) if private_key_file else None,
            "passphrase": private_key_passphrase or None,
        }  # fmt: skip
        return ComputeConfiguration("ssh", {k: v for k, v in options.items() if v is not None})

    @staticmethod
    def attach(  # type: ignore[override]
        workspace: Workspace, name: str, username: str, address: str, ssh_port: Any = 22, password: str = "",
        private_key_file: str = "", private_key_passphrase: str = "",
    ) -> Any:  # fmt: skip
        """The older way to attach."""
        if isinstance(username, ComputeConfiguration):
            return ComputeTarget.attach(workspace, name, username)
        made = RemoteCompute.attach_configuration(
            username, address=address, ssh_port=ssh_port, password=password, private_key_file=private_key_file,
            private_key_passphrase=private_key_passphrase,
        )  # fmt: skip
        return ComputeTarget.attach(workspace, name, made)

    @property
    def address(self) -> str:
        return str(self._ours.config.get("address", ""))

    @property
    def username(self) -> str:
        return str(self._ours.config.get("username") or "")

    @property
    def ssh_port(self) -> int:
        return int(self._ours.config.get("port") or 22)
