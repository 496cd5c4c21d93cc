"""`from azureml.core import Run`, as scripts of the first SDK spell it."""

from azureml.core.run import Run

__all__ = ["Run"]
