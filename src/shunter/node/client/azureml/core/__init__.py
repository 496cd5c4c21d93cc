"""`from azureml.core import Run`, as scripts of the first SDK spell it."""

from azureml.core.experiment import Experiment  # type: ignore[import-not-found,unused-ignore]
from azureml.core.run import Run, get_run  # type: ignore[import-not-found,unused-ignore]
from azureml.core.workspace import Workspace  # type: ignore[import-not-found,unused-ignore]

#: The release of the first SDK whose names these are.
VERSION = "1.61.0+shunter"

__all__ = ["VERSION", "Experiment", "Model", "Run", "Workspace", "get_run"]


def __getattr__(name):  # type: ignore[no-untyped-def]
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "Model":
        from azureml.core.model import Model  # type: ignore[import-not-found,unused-ignore]

        return Model
    # Said as an ImportError: that is what a script expects of a name that is not there, and catches.
    words = " is not there inside a run: a script has its run and models, the rest is for who submits it."
    raise ImportError("azureml.core." + name + words)
