"""MLflow spoken by hand, as its client does: for machines and images that have Python and nothing else."""

from __future__ import annotations

#: Logs, makes a nested run and a file, and reads back what only the server knows. Prints what it got as JSON.
SCRIPT = """
import http.client, json, os
run, token = os.environ["MLFLOW_RUN_ID"], os.environ["MLFLOW_TRACKING_TOKEN"]
host = os.environ["MLFLOW_TRACKING_URI"].partition("://")[2]

def call(method, path, body=None, token=token):
    relay = http.client.HTTPConnection(host, timeout=120)
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    head = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    relay.request(method, "/api/2.0/" + path, data, head)
    answer = relay.getresponse()
    found = answer.read()
    return answer.status, json.loads(found or b"{}")

said = {"stranger": call("GET", "mlflow/runs/get?run_id=" + run, token="wrong")[0]}
for step in range(3):
    call("POST", "mlflow/runs/log-metric", {"run_id": run, "key": "loss", "value": 3.0 - step, "timestamp": 1700000000000 + step, "step": step})
points = [{"key": "m", "value": float(i), "timestamp": 1700000000000 + i, "step": i} for i in range(1000)]
call("POST", "mlflow/runs/log-batch", {"run_id": run, "metrics": points, "params": [{"key": "lr", "value": "0.1"}]})
inner = call("POST", "mlflow/runs/create", {"run_name": "inner", "tags": []})[1]["run"]["info"]["run_id"]
call("POST", "mlflow/runs/log-metric", {"run_id": inner, "key": "depth", "value": 1.0, "timestamp": 1700000000000, "step": 0})
call("POST", "mlflow/runs/update", {"run_id": inner, "status": "FINISHED"})
place = call("GET", "mlflow/runs/get?run_id=" + run)[1]["run"]["info"]["artifact_uri"].partition(":/")[2]
said["put"] = call("PUT", "mlflow-artifacts/artifacts/" + place + "/notes/a.txt", b"hello")[0]
history = call("GET", "mlflow/metrics/get-history?metric_key=loss&run_id=" + run)
said["history"] = [m["value"] for m in history[1]["metrics"]]
found = call("POST", "mlflow/runs/search", {"max_results": 10})[1]["runs"]
said["found"] = len(found)
said["other"] = call("GET", "mlflow/runs/get?run_id=" + "0" * 32)[0]
print("SAID " + json.dumps(said))
"""  # noqa: E501

#: What it prints where all is well.
EXPECTED = {"stranger": 401, "put": 200, "history": [3.0, 2.0, 1.0], "found": 2, "other": 403}


def check(run: object, said: object) -> None:
    """That what was said came home. `run` is the SDK's, over."""
    from shunter.sdk.run import Run

    assert isinstance(run, Run)
    run.refresh()
    assert run.status == "Completed", run.logs()
    assert said == EXPECTED, run.logs()
    assert run.metrics("loss")["loss"] == [3.0, 2.0, 1.0]
    assert len(run.metrics("m")["m"]) == 1000
    assert run.params == {"lr": "0.1"}
    assert [file["path"] for file in run.files()] == ["notes/a.txt"]
    (inner,) = run.children()
    assert (inner.name, inner.status, inner.metrics()) == ("inner", "Completed", {"depth": 1.0})


def said_by(run: object) -> object:
    """What the script printed."""
    import json

    from shunter.sdk.run import Run

    assert isinstance(run, Run)
    lines = [line for line in run.logs().splitlines() if line.startswith("SAID ")]
    return json.loads(lines[0][5:]) if lines else None
