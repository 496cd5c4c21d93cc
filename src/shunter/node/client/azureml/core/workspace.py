"""`azureml.core.workspace` inside a run: the workspace that the run belongs to, as far as a run's own token reaches."""

from shunter.run import Workspace

__all__ = ["Workspace"]
