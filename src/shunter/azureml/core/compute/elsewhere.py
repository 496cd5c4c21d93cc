"""Targets that are not there yet: their names can be imported and their configurations written; attaching says so."""

from __future__ import annotations

from typing import Any, ClassVar

from shunter.azureml.core.compute.compute import ComputeConfiguration, ComputeTarget
from shunter.azureml.exceptions import NotYetException


class _Elsewhere(ComputeTarget):
    _use: ClassVar[str] = "Take a cluster (AmlCompute) or a machine (RemoteCompute)."

    @classmethod
    def attach_configuration(cls, *args: Any, **kwargs: Any) -> ComputeConfiguration:
        raise cls._not_yet()

    @classmethod
    def provisioning_configuration(cls, *args: Any, **kwargs: Any) -> ComputeConfiguration:
        raise cls._not_yet()

    @classmethod
    def _not_yet(cls) -> NotYetException:
        return NotYetException(f"{cls.__name__} is not there yet. {cls._use}")


class HDInsightCompute(_Elsewhere):
    """Spark clusters. Not yet; the documents' spelling `private_key_phrase` will be accepted beside the real one."""

    _compute_type = "HDInsight"
    _use = "Spark on the local machine: a script with pyspark in its environment; clusters of Spark come later."

    @classmethod
    def attach_configuration(
        cls, username: str = "", subscription_id: str | None = None, resource_group: str | None = None,
        cluster_name: str | None = None, resource_id: str | None = None, address: str | None = None, ssh_port: Any = "22",
        password: str | None = "", private_key_file: str | None = "", private_key_passphrase: str | None = "",
        private_key_phrase: str | None = "",
    ) -> ComputeConfiguration:  # fmt: skip
        raise cls._not_yet()


class DatabricksCompute(_Elsewhere):
    _compute_type = "Databricks"


class AdlaCompute(_Elsewhere):
    _compute_type = "DataLakeAnalytics"


class BatchCompute(_Elsewhere):
    _compute_type = "Batch"


class DataFactoryCompute(_Elsewhere):
    _compute_type = "DataFactory"


class KustoCompute(_Elsewhere):
    _compute_type = "Kusto"


class SynapseCompute(_Elsewhere):
    _compute_type = "SynapseSpark"


class KubernetesCompute(_Elsewhere):
    _compute_type = "Kubernetes"


class AksCompute(_Elsewhere):
    _compute_type = "AKS"


class DsvmCompute(_Elsewhere):
    _compute_type = "VirtualMachine"
    _use = "Make the machine, then attach it with RemoteCompute.attach_configuration."


class ComputeInstance(_Elsewhere):
    _compute_type = "ComputeInstance"
    _use = "Work on your own machine, or attach one with RemoteCompute."
