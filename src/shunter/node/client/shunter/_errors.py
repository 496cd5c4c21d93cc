"""What can be wrong with a call on a run, inside its script."""

from __future__ import annotations


class RunUsageError(Exception):
    """This call on the run makes no sense. The first SDK's `UserErrorException`."""


class RunEnvironmentError(Exception):
    """There is no run here: the script was not started by Shunter."""


class RunUnreachable(Exception):
    """The server could not be asked, directly or through the launcher."""
