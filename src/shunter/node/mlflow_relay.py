"""MLflow's tracking address inside a run: a small HTTP server on the node's loopback that demands the run's token.

What a script logs is appended to the stream `metrics` and answered at once. What needs an answer that only the server
has is passed on, after everything said before is home; a server that is away is waited for.
"""

from __future__ import annotations

import hmac
import json
import os
import time

from shunter.node import mlflow_words as words
from shunter.node.mlflow_http import Listener, pass_on, receive_file
from shunter.node.mlflow_lines import line, metric_lines
from shunter.node.mlflow_runs import LocalRuns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    from shunter.node.mlflow_http import Answer, Request
    from shunter.node.mlflow_runs import LocalRun
    from shunter.node.relay import Relay

API = "/api/2.0/mlflow/"
FILES = "/api/2.0/mlflow-artifacts/artifacts/"
#: How long the client is told to wait for an answer: the server may be away for a while.
PATIENCE_SECONDS = 3600


class MlflowRelay:
    """Listens from the start, works from the first call on."""

    def __init__(self, folder, job, relay, port=0):
        # type: (str, Dict[str, Any], Relay, int) -> None
        self.folder = folder
        self.job = job
        self.relay = relay
        self.listener = Listener(self.answer, port)
        self.url = "http://127.0.0.1:" + str(self.listener.port)
        self._runs = None  # type: Optional[LocalRuns]
        self._fd = -1
        self._is_warm = False
        self._token = ("Bearer " + str(job["home"]["token"])).encode()

    def fileno(self) -> int:
        return self.listener.fileno()

    @property
    def is_open(self) -> bool:
        return self.listener.is_open

    def open_up(self) -> None:
        """Somebody calls: serve, in threads, until `close`."""
        import threading

        self._lock = threading.Lock()
        self._runs = LocalRuns(self.folder, self.job)
        self._fd = os.open(self._runs.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.listener.open_up()

    def close(self) -> None:
        self.listener.close()

    def variables(self):
        # type: () -> Dict[str, str]
        """What tells a script's `mlflow` of us."""
        return {
            "MLFLOW_TRACKING_URI": self.url, "MLFLOW_TRACKING_TOKEN": str(self.job["home"]["token"]),
            "MLFLOW_RUN_ID": str(self.job["run_id"]), "MLFLOW_HTTP_REQUEST_TIMEOUT": str(PATIENCE_SECONDS),
        }  # fmt: skip

    def answer(self, request):
        # type: (Request) -> Optional[Answer]
        """The answer to one call; None when it was answered on the way."""
        if not hmac.compare_digest(request.headers.get("authorization", "").encode("utf-8", "replace"), self._token):
            return 401, words.refusal("The token is not the one of this run.", "UNAUTHENTICATED")
        from urllib.parse import parse_qs, unquote, urlsplit

        parts = urlsplit(request.target)
        path = unquote(parts.path)
        try:
            if request.method == "PUT" and path.startswith(FILES):
                return self._put(request, path[len(FILES) :])
            if path.startswith(API):
                name = path[len(API) :]
                if name == "runs/log-batch" and self._log_quickly(request.body()):
                    return 200, b"{}"
                local = _LOCAL.get((request.method, name))
                if local is not None:
                    body = request.json() if request.method == "POST" else {k: v[0] for k, v in parse_qs(parts.query).items()}
                    found = local(self, body)
                    if found is not None:
                        return found
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            return 400, words.refusal("The call cannot be understood: " + repr(error))
        except OSError as error:
            return 503, words.refusal("It cannot be written on the node now: " + str(error), "TEMPORARILY_UNAVAILABLE")
        except Exception as error:
            return 500, words.refusal("The launcher failed: " + repr(error), "INTERNAL_ERROR")
        return self._pass_on(request, path)

    # What is answered here. None: somebody else's run, or more than we can do; it is passed on.

    def _log_metric(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        if body.get("model_id"):
            return self._log_batch({"run_id": _run_id(body), "metrics": [body]})
        of = self._known(body)
        if of is None:
            return None
        self._say(metric_lines([body], self._of(of)))
        return 200, b"{}"

    def _log_parameter(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        return self._log_batch({"run_id": _run_id(body), "params": [body]})

    def _set_tag(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        return self._log_batch({"run_id": _run_id(body), "tags": [body]})

    def _delete_tag(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        of = self._known(body)
        if of is None:
            return None
        self._say([line("untag", [str(body["key"])], self._of(of))])
        return 200, b"{}"

    def _log_quickly(self, body):
        # type: (bytes) -> bool
        """Nothing but points of a run of ours: the usual batch."""
        from shunter.node.mlflow_batch import quick_batch

        found = quick_batch(body, self._local.own)
        if found is None or self._known({"run_id": found[0]}) is None:
            return False
        self._append(found[1])
        return True

    def _log_batch(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        of = self._known(body)
        if of is None:
            return None
        about = self._of(of)
        metrics = body.get("metrics") or []
        of_models = [m for m in metrics if m.get("model_id")]
        lines = metric_lines(self._fresh_points(of, metrics) if of_models else metrics, about)
        tags = {str(t["key"]): str(t.get("value", "")) for t in body.get("tags") or []}
        if tags:
            lines.append(line("tags", tags, about))
        if "mlflow.autologging" in tags and not self._is_warm:
            self._warm()
        with self._lock:
            params = self._fresh_params(of, body.get("params") or [])
            if isinstance(params, bytes):
                return 400, params
            if params:
                lines.append(line("params", params, about))
            if lines:
                self._say(lines)
        return None if of_models else (200, b"{}")

    def _fresh_points(self, of, metrics):
        # type: (str, List[Dict[str, Any]]) -> List[Dict[str, Any]]
        """Without those that are there already: the client logs the points of a run again for each model it makes."""
        known = self._local.points(of, {str(m["key"]) for m in metrics})
        return [
            m for m in metrics
            if (str(m["key"]), int(m["timestamp"]), int(m.get("step") or 0), words.number_from_wire(m["value"])) not in known
        ]  # fmt: skip

    def _fresh_params(self, of, given):
        # type: (str, List[Dict[str, Any]]) -> Any
        """Those that are new; or the words of a refusal, as a parameter is written once."""
        if not given:
            return {}
        known = self._catch_up()[of].params
        fresh = {}  # type: Dict[str, str]
        for one in given:
            name, value = str(one["key"]), str(one.get("value", ""))
            before = known.get(name, fresh.get(name))
            if before is None:
                fresh[name] = value
            elif before != value:
                return words.refusal(
                    "Changing param values is not allowed. Param with key='%s' was already logged with value='%s' for run "
                    "ID='%s'. Attempted logging new value '%s'." % (name, before, of, value)
                )  # fmt: skip
        return fresh

    def _update(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        of = self._known(body)
        if of is None:
            return None
        about = self._of(of)
        with self._lock:
            run = self._catch_up()[of]
            if body.get("run_name"):
                self._say([line("name", str(body["run_name"]), about)])
            status = str(body.get("status") or "")
            end = int(body["end_time"]) if body.get("end_time") else None
            if about and status in words.ENDS:
                self._say([line(words.ENDS[status], {}, about, end)])
                run = self._catch_up()[of]
            elif status:
                # The script's own run ends with the script, and that decides.
                run.status, run.end_time = status, end
            return _json({"run_info": self._local.to_wire(self._catch_up()[of])["info"]})

    def _get(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        of = self._known(body)
        if of is None:
            return None
        with self._lock:
            return _json({"run": self._local.to_wire(self._catch_up()[of])})

    def _create(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        import uuid

        tags = {str(t["key"]): str(t.get("value", "")) for t in body.get("tags") or []}
        with self._lock:
            known = self._catch_up()
            run_id = uuid.uuid4().hex
            parent = tags.pop("mlflow.parentRunId", self._local.own)
            name = str(body.get("run_name") or tags.pop("mlflow.runName", "") or "run-" + run_id[:8])
            tags.pop("mlflow.runName", None)
            if parent not in known:
                return 403, words.refusal("Run " + parent + " is not one of this script's.", "PERMISSION_DENIED")
            about = {"parent": parent, "name": name, "tags": tags}
            self._say([line("child", about, {"r": run_id}, int(body.get("start_time") or 0) or None)])
            return _json({"run": self._local.to_wire(self._catch_up()[run_id])})

    def _experiment(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        if str(body.get("experiment_id") or self._local.experiment_id) != self._local.experiment_id:
            return 403, words.refusal("A run reaches only its own experiment.", "PERMISSION_DENIED")
        return _json({"experiment": self._local.experiment_to_wire()})

    def _experiment_by_name(self, body):
        # type: (Dict[str, Any]) -> Optional[Answer]
        """`set_experiment` in a script: the run was submitted to one, and stays there."""
        return _json({"experiment": self._local.experiment_to_wire(str(body["experiment_name"]))})

    def _put(self, request, path):
        # type: (Request, str) -> Optional[Answer]
        """A file for a run of this script is handed over as an upload; any other goes to the server."""
        parts = path.split("/")
        own = len(parts) > 4 and path.startswith(words.run_folder(parts[2]) + "/") and not self.job.get("node_index")
        if not own or parts[2] not in self._catch_up():
            return self._pass_on(request, path)
        below = "/".join(parts[4:])
        if any(p in ("", ".", "..") for p in parts[4:]) or "\\" in below or "\0" in below:
            return 400, words.refusal(repr(below) + " cannot be the path of a file.")
        held = receive_file(request, self.folder)
        top = "uploads" if parts[2] == self._local.own else "uploads/.children/" + parts[2]
        target = os.path.join(self.folder, top, below)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(held, target)
        return 200, b"{}"

    def _pass_on(self, request, path):
        # type: (Request, str) -> Optional[Answer]
        held = receive_file(request, self.folder) if request.left > (1 << 20) else None
        data = b"" if held else request.body()
        try:
            until = time.monotonic() + PATIENCE_SECONDS
            if not self.relay.flush(until):
                return 503, words.refusal("What was said before is not home yet.", "TEMPORARILY_UNAVAILABLE")
            status = pass_on(request, self.job, data, held, until)
            if status == 200:
                self._remember(path, data)
            return None
        finally:
            if held:
                os.unlink(held)

    def _remember(self, path, data):
        # type: (str, bytes) -> None
        """Inputs and models of a run are MLflow's alone: our copy shows them too."""
        if path not in (API + "runs/log-inputs", API + "runs/outputs"):
            return
        body = json.loads(data)
        run = self._local.runs.get(_run_id(body))
        if run is not None:
            run.inputs += body.get("datasets") or []
            run.models += body.get("models") or []

    # Means

    @property
    def _local(self):
        # type: () -> LocalRuns
        assert self._runs is not None
        return self._runs

    def _warm(self) -> None:
        """A model will follow: MLflow, which takes seconds to start, may do so while the script trains."""
        import threading

        from shunter.node.home import Home, Refused

        def call() -> None:
            home = Home(self.job["id"], self.job["home"])
            try:
                home.request("GET", "/mlflow/version")
            except (OSError, Refused):
                pass
            finally:
                home.close()

        self._is_warm = True
        threading.Thread(target=call, daemon=True).start()

    def _catch_up(self):
        # type: () -> Dict[str, LocalRun]
        return self._local.catch_up()

    def _known(self, body):
        # type: (Dict[str, Any]) -> Optional[str]
        of = _run_id(body)
        if of == self._local.own or of in self._local.runs:
            return of
        with self._lock:
            return of if of in self._catch_up() else None

    def _of(self, run_id):
        # type: (str) -> Dict[str, str]
        return {} if run_id == self._local.own else {"r": run_id}

    def _say(self, lines):
        # type: (List[str]) -> None
        self._append(("\n".join(lines) + "\n").encode())

    def _append(self, data):
        # type: (bytes) -> None
        if os.write(self._fd, data) != len(data):
            os.write(self._fd, b"\n")
            raise OSError(28, "the disk is full")


def port_of(pid):
    # type: (int) -> int
    """Where a script that is running already believes us to be; 0 when there is none."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as file:
            for one in file.read().split(b"\0"):
                if one.startswith(b"MLFLOW_TRACKING_URI=http://127.0.0.1:"):
                    return int(one.rpartition(b":")[2])
    except (OSError, ValueError):
        pass
    return 0


def _run_id(body):
    # type: (Dict[str, Any]) -> str
    return str(body.get("run_id") or body.get("run_uuid") or "")


def _json(value):
    # type: (Any) -> Answer
    return 200, json.dumps(value).encode()


_LOCAL = {
    ("POST", "runs/log-metric"): MlflowRelay._log_metric,
    ("POST", "runs/log-parameter"): MlflowRelay._log_parameter,
    ("POST", "runs/set-tag"): MlflowRelay._set_tag,
    ("POST", "runs/delete-tag"): MlflowRelay._delete_tag,
    ("POST", "runs/log-batch"): MlflowRelay._log_batch,
    ("POST", "runs/update"): MlflowRelay._update,
    ("POST", "runs/create"): MlflowRelay._create,
    ("GET", "runs/get"): MlflowRelay._get,
    ("GET", "experiments/get"): MlflowRelay._experiment,
    ("GET", "experiments/get-by-name"): MlflowRelay._experiment_by_name,
}  # type: Dict[Tuple[str, str], Callable[[MlflowRelay, Dict[str, Any]], Optional[Answer]]]
