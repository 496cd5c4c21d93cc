"""A run as its own script sees it: `from shunter.run import Run; Run.get_context().log("loss", 0.25)`.

Inside a run the launcher puts the same module on the script's path, also where Shunter is not installed.
"""

from shunter.node.client.shunter.run import (
    Experiment,
    OfflineRun,
    Run,
    RunEnvironmentError,
    RunUnreachable,
    RunUsageError,
    Workspace,
    get_context,
)

__all__ = [
    "Experiment", "OfflineRun", "Run", "RunEnvironmentError", "RunUnreachable", "RunUsageError", "Workspace", "get_context",
]  # fmt: skip
