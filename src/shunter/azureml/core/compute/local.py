"""The machine that the server runs on, which is a target like any other."""

from __future__ import annotations

from shunter.azureml.core.compute.compute import ComputeTarget


class LocalTarget(ComputeTarget):
    """Always there, under the name `local`."""

    _compute_type, _kind = "Local", "local"
