"""A node's own copy of the runs that a script logs to: read from the stream `metrics`, where every word of it is."""

from __future__ import annotations

import json
import os
import time

from shunter.node import mlflow_words as words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple


class LocalRun:
    """One run as far as this node knows it."""

    __slots__ = ("end_time", "id", "inputs", "metrics", "models", "name", "params", "parent", "start_time", "status", "tags")

    def __init__(self, run_id, name, start_time, parent=None):
        # type: (str, str, int, Optional[str]) -> None
        self.id = run_id
        self.name = name
        self.parent = parent
        self.start_time = start_time
        self.end_time = None  # type: Optional[int]
        self.status = words.RUNNING
        self.tags = {}  # type: Dict[str, str]
        self.params = {}  # type: Dict[str, str]
        self.metrics = {}  # type: Dict[str, Dict[str, Any]]
        self.inputs = []  # type: List[Any]
        self.models = []  # type: List[Any]


class LocalRuns:
    """The script's run and those it made. Whoever wrote a line (the script itself, or we for it), it is read here."""

    def __init__(self, folder, job):
        # type: (str, Dict[str, Any]) -> None
        self.path = os.path.join(folder, "metrics")
        self.own = str(job["run_id"])
        self.experiment_id = words.experiment_id(str(job.get("workspace") or "default"), str(job.get("experiment") or ""))
        self.experiment = words.experiment_name(str(job.get("workspace") or "default"), str(job.get("experiment") or ""))
        run = LocalRun(self.own, str(job.get("run_name") or ""), int(time.time() * 1000))
        run.tags.update({str(k): str(v) for k, v in (job.get("tags") or {}).items()})
        self.runs = {self.own: run}
        self._offset = 0

    def catch_up(self):
        # type: () -> Dict[str, LocalRun]
        """Read what was said since the last look. The last line may still be on its way."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return self.runs
        end = data.rfind(b"\n") + 1
        self._offset += end
        for line in _parse(data[:end]):
            try:
                self._take(line)
            except (AttributeError, KeyError, TypeError, ValueError):
                continue  # not a line of ours: the server counts it
        return self.runs

    def _take(self, line):
        # type: (Dict[str, Any]) -> None
        kind = line.get("k")
        of = line.get("r", self.own)
        at = _ms(line["t"])
        value = line["v"]
        if kind == "child" and of not in self.runs:
            run = self.runs[of] = LocalRun(of, str(value.get("name") or ""), at, str(value.get("parent") or self.own))
            run.tags.update({str(k): str(v) for k, v in (value.get("tags") or {}).items()})
            return
        run = self.runs[of]
        if kind is None:
            if isinstance(value, (int, float)):
                self._metric(run, str(line["n"]), value, at, int(line.get("s") or 0))
        elif kind == "params":
            for name, one in value.items():
                run.params.setdefault(str(name), str(one))
        elif kind == "tags":
            run.tags.update({str(k): str(v) for k, v in value.items()})
        elif kind == "untag":
            for name in value:
                run.tags.pop(name, None)
        elif kind == "name":
            run.name = str(value)
        elif kind in ("complete", "fail", "cancel"):
            run.status = next(status for status, said in words.ENDS.items() if said == kind)
            run.end_time = at

    def _metric(self, run, name, value, at, step):
        # type: (LocalRun, str, Any, int, int) -> None
        before = run.metrics.get(name)
        if before is None or (step, at) >= (before["step"], before["timestamp"]):
            run.metrics[name] = {"key": name, "value": value, "timestamp": at, "step": step}

    def points(self, run_id, names):
        # type: (str, Set[str]) -> Set[Tuple[str, int, int, float]]
        """Every point of these metrics of a run. Reads the whole stream: for the rare call that logs points again."""
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError:
            return set()
        found = set()  # type: Set[Tuple[str, int, int, float]]
        for line in _parse(data[: data.rfind(b"\n") + 1]):
            try:
                if line["n"] in names and line.get("r", self.own) == run_id and line.get("k") is None:
                    found.add((line["n"], _ms(line["t"]), int(line.get("s") or 0), float(line["v"])))
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
        return found

    def to_wire(self, run):
        # type: (LocalRun) -> Dict[str, Any]
        """The run as MLflow's `runs/get` answers."""
        tags = dict(run.tags)
        tags["mlflow.runName"] = run.name
        if run.parent:
            tags["mlflow.parentRunId"] = run.parent
        info = {
            "run_uuid": run.id, "run_id": run.id, "run_name": run.name, "experiment_id": self.experiment_id,
            "user_id": tags.get("mlflow.user", ""), "status": run.status, "start_time": run.start_time,
            "artifact_uri": words.artifact_uri(run.id), "lifecycle_stage": "active",
        }  # type: Dict[str, Any]  # fmt: skip
        if run.end_time is not None:
            info["end_time"] = run.end_time
        metrics = [dict(m, value=words.number_to_wire(m["value"])) for m in run.metrics.values()]
        found = {"info": info, "data": {"metrics": metrics, "params": words.pairs(run.params), "tags": words.pairs(tags)}}
        found["inputs"] = {"dataset_inputs": run.inputs} if run.inputs else {}
        if run.models:
            found["outputs"] = {"model_outputs": run.models}
        return found

    def experiment_to_wire(self, name=None):
        # type: (Optional[str]) -> Dict[str, Any]
        return {
            "experiment_id": self.experiment_id, "name": name or self.experiment, "lifecycle_stage": "active",
            "artifact_location": "mlflow-artifacts:/" + words.ARTIFACTS + "/" + self.experiment_id, "tags": [],
        }  # fmt: skip


def _ms(at):
    # type: (Any) -> int
    return round(float(at) * 1000)


def _parse(data):
    # type: (bytes) -> Iterable[Any]
    if not data:
        return ()
    try:
        # All at once is several times quicker than line by line.
        found = json.loads(b"[" + data[:-1].replace(b"\n", b",") + b"]")
        if len(found) == data.count(b"\n"):
            return found  # type: ignore[no-any-return]
    except ValueError:
        pass
    return _one_by_one(data)


def _one_by_one(data):
    # type: (bytes) -> Iterator[Any]
    for line in data.split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue
