"""Machines reached over SSH."""

from shunter.drivers.ssh.driver import SshDriver

__all__ = ["SshDriver"]
