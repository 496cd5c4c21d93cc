"""`azureml.core.script_run`."""

from shunter.azureml.core.run import ScriptRun

__all__ = ["ScriptRun"]
