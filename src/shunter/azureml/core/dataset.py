"""`azureml.core.dataset`: its place."""

from shunter.azureml._places import place

Dataset = place("Dataset")
