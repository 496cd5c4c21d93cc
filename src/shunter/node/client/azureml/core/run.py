"""`azureml.core.run`: Run, and the private name by which scripts tell that they are not in one."""

from shunter.run import OfflineRun as _OfflineRun
from shunter.run import Run, get_context

__all__ = ["Run", "_OfflineRun", "get_run"]


def get_run(experiment, run_id, rehydrate=True, clean_up=True):  # type: ignore[no-untyped-def]
    """The run of this script; another one cannot be had from inside."""
    return get_context()
