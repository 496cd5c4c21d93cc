"""`azureml.train.dnn`."""

from __future__ import annotations

from shunter.azureml.core.runconfig import MpiConfiguration as Mpi
from shunter.azureml.core.runconfig import PyTorchConfiguration, TensorflowConfiguration
from shunter.azureml.train.estimator import Estimator

__all__ = ["Mpi", "PyTorch", "PyTorchConfiguration", "TensorFlow", "TensorflowConfiguration"]


class PyTorch(Estimator):
    """An estimator with PyTorch in its environment."""

    _FRAMEWORK_PACKAGES = ("torch",)


class TensorFlow(Estimator):
    """An estimator with TensorFlow in its environment."""

    _FRAMEWORK_PACKAGES = ("tensorflow",)
