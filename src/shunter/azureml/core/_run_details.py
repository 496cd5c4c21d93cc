"""What `run.get_details()` holds. Pure: from what the server says of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shunter.sdk.run import Run


def details_of(run: Run, log_names: Sequence[str]) -> dict[str, Any]:
    """The keys that programs read; `endTimeUtc` and `error` only when there is one."""
    data = run.data
    url = f"{run.workspace.client.url}{run.path}/log"
    found: dict[str, Any] = {
        "runId": data["alias"],
        "target": data["target"],
        "status": data["status"],
        "startTimeUtc": _time(data["started_at"]),
        "endTimeUtc": _time(data["ended_at"]),
        "properties": properties_of(run),
        "inputDatasets": [],
        "outputDatasets": [],
        "runDefinition": definition_of(data),
        "logFiles": {name: f"{url}?node={_node(name)}" for name in log_names},
        "submittedBy": str((data["properties"] or {}).get("submitted_by") or ""),
    }
    if data["error"]:
        error = data["error"]
        words = "\n".join(filter(None, (error["message"], error["hint"])))
        kind = "UserError" if data["exit_code"] else "ServiceError"
        found["error"] = {"error": {"code": kind, "message": words, "details": [{"code": error["code"]}]}}
    return {k: v for k, v in found.items() if not (v is None and k in ("endTimeUtc", "startTimeUtc"))}


def properties_of(run: Run) -> dict[str, str]:
    """Texts by name; what we know of the folder's git under the names that MLflow and the first SDK use."""
    given = dict(run.data["properties"] or {})
    git = given.pop("git", None) or {}
    found = {"ContentSnapshotId": str(run.data["snapshot_id"])}
    for name, value in (("repository_uri", git.get("remote")), ("branch", git.get("branch")),
                        ("commit", git.get("commit")), ("dirty", git.get("dirty"))):  # fmt: skip
        if value is not None:
            found[f"azureml.git.{name}"] = str(value)
            mlflow = {"repository_uri": "repoURL", "branch": "branch", "commit": "commit"}.get(name)
            if mlflow:
                found[f"mlflow.source.git.{mlflow}"] = str(value)
    return found | {k: v for k, v in given.items() if isinstance(v, str)}


def definition_of(data: dict[str, Any]) -> dict[str, Any]:
    """The run configuration, in the words of a `.runconfig`."""
    from shunter.sdk.environment import Environment
    from shunter.sdk.runconfig_environment import to_section

    config = data["config"]
    # Without one, the script ran with the interpreter that submitted it.
    environment = Environment.from_wire(config.get("environment") or {"user_managed": True})
    section = to_section(environment, None)
    dependencies: list[Any] = [*environment.conda_packages]
    if environment.packages:
        dependencies.append({"pip": list(environment.packages)})
    section["python"]["condaDependencies"] = {
        "name": "project_environment", "dependencies": dependencies, "channels": list(environment.channels),
    }  # fmt: skip
    return {
        "script": data["script"],
        "arguments": list(data["arguments"]),
        "target": data["target"],
        "framework": str(config.get("framework") or "python").capitalize(),
        "communicator": config.get("communicator") or "None",
        "maxRunDurationSeconds": config.get("max_duration_seconds"),
        "nodeCount": data["node_count"],
        "environment": section,
        "environmentVariables": dict(config.get("env") or {}),
        "history": {"outputCollection": True, "directoriesToWatch": ["logs"]},
        "amlCompute": {"vmSize": config.get("vm_size"), "vmPriority": config.get("vm_priority")},
        "dataReferences": {},
        "data": {},
    }


def _time(text: str | None) -> str | None:
    """`2019-01-04T12:00:00.000000Z`, as programs parse it."""
    return text and text.replace("Z", "000Z")


def _node(name: str) -> str:
    end = name.removesuffix(".txt").rpartition("_")[2]
    return end if end.isdigit() else "0"
