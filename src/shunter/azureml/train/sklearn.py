"""`azureml.train.sklearn`."""

from __future__ import annotations

from shunter.azureml.train.estimator import Estimator


class SKLearn(Estimator):
    """An estimator with scikit-learn in its environment; `framework_version` names the release."""

    _FRAMEWORK_PACKAGES = ("scikit-learn",)
