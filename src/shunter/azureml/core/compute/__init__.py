"""`azureml.core.compute`."""

from shunter.azureml.core.compute.amlcompute import AmlCompute
from shunter.azureml.core.compute.compute import ComputeTarget
from shunter.azureml.core.compute.elsewhere import (
    AdlaCompute,
    AksCompute,
    BatchCompute,
    ComputeInstance,
    DatabricksCompute,
    DataFactoryCompute,
    DsvmCompute,
    HDInsightCompute,
    KubernetesCompute,
    KustoCompute,
    SynapseCompute,
)
from shunter.azureml.core.compute.local import LocalTarget
from shunter.azureml.core.compute.remote import RemoteCompute
from shunter.azureml.exceptions import ComputeTargetException

__all__ = [
    "AdlaCompute", "AksCompute", "AmlCompute", "BatchCompute", "ComputeInstance", "ComputeTarget", "ComputeTargetException",
    "DataFactoryCompute", "DatabricksCompute", "DsvmCompute", "HDInsightCompute", "KubernetesCompute", "KustoCompute",
    "LocalTarget", "RemoteCompute", "SynapseCompute",
]  # fmt: skip
