"""`azureml.core`."""

# `import azureml.core` alone lets programs say azureml.core.runconfig…, as the first SDK does.
import shunter.azureml.core.runconfig  # noqa: F401
from shunter import __version__ as _ours
from shunter.azureml.core.compute import ComputeTarget
from shunter.azureml.core.container_registry import ContainerRegistry
from shunter.azureml.core.dataset import Dataset
from shunter.azureml.core.datastore import Datastore
from shunter.azureml.core.environment import Environment
from shunter.azureml.core.experiment import Experiment
from shunter.azureml.core.keyvault import Keyvault
from shunter.azureml.core.model import Model
from shunter.azureml.core.run import Run, ScriptRun, get_run
from shunter.azureml.core.runconfig import RunConfiguration
from shunter.azureml.core.script_run_config import ScriptRunConfig
from shunter.azureml.core.workspace import Workspace

#: The release of the first SDK whose names these are, and ours.
VERSION = f"1.61.0+shunter.{_ours}"

__all__ = [
    "VERSION", "ComputeTarget", "ContainerRegistry", "Dataset", "Datastore", "Environment", "Experiment", "Keyvault",
    "Model", "Run", "RunConfiguration", "ScriptRun", "ScriptRunConfig", "Workspace", "get_run",
]  # fmt: skip
