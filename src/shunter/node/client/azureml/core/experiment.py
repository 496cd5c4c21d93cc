"""`azureml.core.experiment` inside a run: the one that the run belongs to."""

from shunter.run import Experiment

__all__ = ["Experiment"]
