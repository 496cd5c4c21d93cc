"""This machine as a compute target."""

from shunter.drivers.local.driver import LocalDriver

__all__ = ["LocalDriver"]
