"""`azureml.core.keyvault`: its place."""

from shunter.azureml._places import place

Keyvault = place("Keyvault")
