"""`azureml.core.compute_target`: where most programs import the exception from."""

from shunter.azureml.exceptions import ComputeTargetException

__all__ = ["ComputeTargetException"]
