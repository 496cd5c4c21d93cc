"""`azureml.core.datastore`: its place."""

from shunter.azureml._places import place

Datastore = place("Datastore")
