"""What node and server agree on about MLflow: the ids and places that both work out by themselves, and its messages."""

from __future__ import annotations

import json
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

#: The default experiment of every MLflow.
DEFAULT_EXPERIMENT = "Default"
#: Where experiments and logged models keep their files, below the root of all artifacts.
ARTIFACTS = "mlflow/artifacts"

RUNNING = "RUNNING"
#: How a run ends in MLflow's words, and the line of the stream `metrics` that says so.
ENDS = {"FINISHED": "complete", "FAILED": "fail", "KILLED": "cancel"}


def experiment_name(workspace, experiment):
    # type: (str, str) -> str
    """The name in MLflow, which knows no workspaces of ours."""
    return experiment if workspace == "default" else workspace + "/" + experiment


def experiment_id(workspace, experiment):
    # type: (str, str) -> str
    """The same everywhere without asking anybody. MLflow's own count from 1, so ours lie far above; 31 bits at most."""
    name = experiment_name(workspace, experiment)
    if name == DEFAULT_EXPERIMENT:
        return "0"
    import hashlib

    number = int(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16)
    return str((1 << 30) + number % (1 << 30))


def run_folder(run_id):
    # type: (str) -> str
    """Where a run's files lie below the root of all artifacts."""
    return "runs/" + run_id[:2] + "/" + run_id + "/files"


def artifact_uri(run_id):
    # type: (str) -> str
    return "mlflow-artifacts:/" + run_folder(run_id)


def number_to_wire(value):
    # type: (Any) -> Any
    """JSON has no NaN and no infinity: MLflow's messages name them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def number_from_wire(value):
    # type: (Any) -> float
    if isinstance(value, str):
        value = {"Infinity": "inf", "-Infinity": "-inf"}.get(value, value)
    return float(value)


def refusal(message, code="INVALID_PARAMETER_VALUE"):
    # type: (str, str) -> bytes
    """An error as MLflow's client understands it."""
    return json.dumps({"error_code": code, "message": message}).encode()


def pairs(found):
    # type: (Dict[str, Any]) -> Any
    return [{"key": k, "value": v} for k, v in found.items()]
