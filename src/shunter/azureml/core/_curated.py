"""The first SDK's curated environments (`AzureML-…`) by ours: the framework counts, not the release."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("azureml.core")

PREFIX = "azureml-"
#: The first word that is in a name decides. No packages at all: `AzureML-Minimal` and what is like it.
_FRAMEWORKS = (
    (("lightgbm", "xgboost"), "boosting"),
    (("pytorch", "acpt", "deepspeed"), "pytorch"),
    (("tensorflow", "keras"), "tensorflow"),
    (("rapids",), "rapids"),
    (("pyspark", "spark"), "pyspark"),
    (("sklearn", "scikit", "tutorial", "sidecar"), "scikit-learn"),
    (("minimal", "python-sdk"), ""),
)
_WITH_GPU = frozenset({"boosting", "pytorch", "tensorflow"})


def curated_name(name: str) -> str | None:
    """Our curated environment for a name of the first SDK; "" for one without packages, None for one we know nothing of."""
    asked = name.lower()
    if not asked.startswith(PREFIX):
        return None
    for words, ours in _FRAMEWORKS:
        if any(word in asked for word in words):
            gpu = ours in _WITH_GPU and ("gpu" in asked or "cuda" in asked)
            return ours + "-gpu" if gpu else ours
    return None


def curated(environments: Any, name: str) -> Any | None:
    """That environment; None when the name is not one of theirs."""
    ours = curated_name(name)
    if ours is None:
        return None
    if not ours:
        from shunter.sdk.environment import Environment

        return Environment(name=name)
    log.warning("%s is taken as the curated environment %s of Shunter, with today's releases.", name, ours)
    return environments.get(ours)
