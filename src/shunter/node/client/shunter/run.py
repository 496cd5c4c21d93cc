"""A run as its own script sees it.

    from shunter.run import Run

    run = Run.get_context()
    run.log("loss", 0.25)

Logging appends a line to a file on this node and returns: it never waits for the server, and never fails because of it.
The launcher brings the lines home. Outside a run, `Run.get_context()` gives an object that prints. Standard library
only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import os
import time

from . import _relay, _uploads
from ._errors import RunEnvironmentError, RunUnreachable, RunUsageError
from ._lines import Lines
from ._offline import OfflineRun, inside
from ._values import clean_name, columns, plain, values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

__all__ = ["OfflineRun", "Run", "RunEnvironmentError", "RunUnreachable", "RunUsageError", "get_context"]

_now = time.time


class Run:
    """The run that this script is, or a child of it. Made by `Run.get_context()`, `child_run` and `create_children`."""

    def __init__(self, run_id, lines, folder, parent=None, name="", tags=None):
        # type: (str, Lines, str, Optional[Run], str, Optional[Dict[str, str]]) -> None
        self._id = run_id
        self._lines = lines
        self._write = lines.write
        self._folder = folder
        self._parent = parent
        self._name = name
        self._tags = dict(tags or {})
        self._properties = {}  # type: Dict[str, str]
        self._over = False
        # The end of every line: which run it is about, when it is not the one whose stream this is.
        self._end = "}\n" if parent is None else ',"r":"' + run_id + '"}\n'
        self._heads = {}  # type: Dict[Any, str]

    @classmethod
    def get_context(cls, allow_offline=True, used_for_context_manager=False, **kwargs):
        # type: (bool, bool, **Any) -> Union[Run, OfflineRun]
        """This script's run; outside one, an object that prints (or RunEnvironmentError, if not `allow_offline`)."""
        return get_context(allow_offline)

    # What it is

    @property
    def id(self) -> str:
        return self._id

    @property
    def name(self) -> str:
        return self._name

    @property
    def parent(self):
        # type: () -> Optional[Run]
        return self._parent

    @property
    def experiment(self):
        # type: () -> Experiment
        return Experiment(os.environ.get("SHUNTER_EXPERIMENT", ""), os.environ.get("SHUNTER_WORKSPACE", ""))

    @property
    def tags(self):
        # type: () -> Dict[str, str]
        return dict(self._tags)

    @property
    def properties(self):
        # type: () -> Dict[str, str]
        return dict(self._properties)

    @property
    def input_datasets(self):
        # type: () -> Dict[str, str]
        """The inputs given at submit: name → path on this node."""
        return json.loads(os.environ.get("SHUNTER_INPUTS") or "{}")  # type: ignore[no-any-return]

    # What it says: appended on the node, brought home later

    def log(self, name, value, description="", step=None):
        # type: (str, Any, str, Optional[int]) -> None
        """Log one value: a number, a string, a numpy or torch scalar. Without a step, the count is the step."""
        try:
            head = self._heads[name]
        except (KeyError, TypeError):
            head = self._head(name)
        # The way of nearly every call, kept short: a finite float or a plain int is its own JSON.
        if (type(value) is float and value - value == 0.0) or type(value) is int:
            text = repr(value)
        else:
            text = json.dumps(plain(value, name))
        if step is None:
            self._write((head + text + ',"t":%.3f' % _now() + self._end).encode())
        else:
            self._write((head + text + ',"s":%d,"t":%.3f' % (step, _now()) + self._end).encode())

    def log_list(self, name, value, description=""):
        # type: (str, Iterable[Any], str) -> None
        """Log a list, range, array or generator as one metric."""
        self._say({"n": clean_name(name), "k": "list", "v": values(value, name)})

    def log_row(self, name, description=None, **kwargs):
        # type: (str, Optional[str], **Any) -> None
        """Log one row of a table: a value for each column."""
        if not kwargs:
            raise RunUsageError("%s: a row needs at least one column, as in log_row(%r, x=1)." % (name, name))
        self._say({"n": clean_name(name), "k": "row", "v": {k: plain(v, name) for k, v in kwargs.items()}})

    def log_table(self, name, value, description=""):
        # type: (str, Mapping[str, Any], str) -> None
        """Log a table: a dict of columns."""
        self._say({"n": clean_name(name), "k": "table", "v": columns(value, name)})

    def log_image(self, name, path=None, plot=None, description=""):
        # type: (str, Optional[str], Any, str) -> None
        """Log an image: a file by its path, or a matplotlib figure (or pyplot itself)."""
        if (path is None) == (plot is None):
            raise RunUsageError("%s: log_image takes either a path or a plot." % name)
        stem = "".join(c if c.isalnum() or c in "-_ ." else "_" for c in clean_name(name))[:100].strip(". ") or "image"
        ending = os.path.splitext(str(path))[1] or ".png" if path is not None else ".png"
        kept = "images/%s_%d_%d%s" % (stem, int(_now() * 1000), os.getpid(), ending)
        if path is not None:
            self._keep(kept, path)
        else:
            import io

            picture = io.BytesIO()
            plot.savefig(picture, format="png", bbox_inches="tight")
            picture.seek(0)
            self._keep(kept, picture)
        self._say({"n": clean_name(name), "k": "image", "v": kept})

    def log_confusion_matrix(self, name, value, description=""):
        # type: (str, Any, str) -> None
        """Log a chart of the first SDK (also accuracy tables, residuals, predictions): a JSON object, kept as it is."""
        self._say({"n": clean_name(name), "k": "object", "v": json.loads(value) if isinstance(value, str) else value})

    log_accuracy_table = log_residuals = log_predictions = log_confusion_matrix

    def tag(self, key, value=None):
        # type: (str, Any) -> None
        self.set_tags({key: value})

    def set_tags(self, tags):
        # type: (Mapping[str, Any]) -> None
        found = {clean_name(k): "" if v is None else str(plain(v, str(k))) for k, v in tags.items()}
        self._tags.update(found)
        self._say({"k": "tags", "v": found})

    def get_tags(self):
        # type: () -> Dict[str, str]
        return dict(self._tags)

    def remove_tags(self, tags):
        # type: (Iterable[str]) -> None
        gone = [tags] if isinstance(tags, str) else list(tags)
        for key in gone:
            self._tags.pop(key, None)
        self._say({"k": "untag", "v": gone})

    def add_properties(self, properties):
        # type: (Mapping[str, Any]) -> None
        """Properties are written once: a key that is there already is refused."""
        found = {clean_name(k): "" if v is None else str(plain(v, str(k))) for k, v in properties.items()}
        taken = sorted(set(found) & set(self._properties))
        if taken:
            raise RunUsageError("Properties cannot be changed; there already: %s." % ", ".join(taken))
        self._properties.update(found)
        self._say({"k": "properties", "v": found})

    def get_properties(self):
        # type: () -> Dict[str, str]
        return dict(self._properties)

    # Files

    def upload_file(self, name, path_or_stream, datastore_name=None):
        # type: (str, Any, Optional[str]) -> None
        """Keep a file under `name` in the run's files. It is copied now: what is done to it later does not matter."""
        if not hasattr(path_or_stream, "read") and not os.path.isfile(path_or_stream):
            raise RunUsageError("%s: there is no file %s." % (name, path_or_stream))
        self._keep(name, path_or_stream)

    def upload_files(self, names, paths, return_artifacts=False, timeout_seconds=None, datastore_name=None):
        # type: (List[str], List[str], bool, Optional[float], Optional[str]) -> None
        if len(names) != len(paths):
            raise RunUsageError("upload_files: %d names for %d paths." % (len(names), len(paths)))
        for name, path in zip(names, paths):
            self.upload_file(name, path)

    def upload_folder(self, name, path, datastore_name=None):
        # type: (str, str, Optional[str]) -> None
        if not os.path.isdir(path):
            raise RunUsageError("%s: there is no folder %s." % (name, path))
        for inner, full in _uploads.files_below(path):
            self._keep(name + "/" + inner, full)

    def register_model(self, model_name, model_path=None, tags=None, properties=None, description="", **kwargs):
        # type: (str, Optional[str], Optional[Mapping[str, Any]], Optional[Mapping[str, Any]], Optional[str], **Any) -> Any
        """A new version of a model of this run's files at `model_path`: what lies there now is uploaded first."""
        from . import _models

        kept = dict(tags or {})
        kept.update({"azureml.property." + str(k): v for k, v in (properties or {}).items()})
        return _models.register(self, model_name, model_path or model_name, kept, description or "")

    # Children

    def child_run(self, name=None, run_id=None, outputs=None):
        # type: (Optional[str], Optional[str], Optional[str]) -> Run
        """A child run, usable at once: the server hears of it with the next lines."""
        return self._child(name or "", {})

    def create_children(self, count=None, tag_key=None, tag_values=None):
        # type: (Optional[int], Optional[str], Optional[List[Any]]) -> List[Run]
        if (count is None) == (tag_values is None) or (tag_key is None) != (tag_values is None):
            raise RunUsageError("create_children takes either count, or tag_key and tag_values.")
        if tag_values is not None:
            return [self._child("", {str(tag_key): str(value)}) for value in tag_values]
        return [self._child("", {}) for _ in range(count or 0)]

    def _child(self, name, tags):
        # type: (str, Dict[str, str]) -> Run
        import uuid

        child = Run(uuid.uuid4().hex, self._lines, self._folder, self, name, tags)
        child._say({"k": "child", "v": {"parent": self._id, "name": name, "tags": tags}})
        return child

    # Answers

    def get_metrics(self, name=None, recursive=False, run_type=None, populate=False):
        # type: (Optional[str], bool, Optional[str], bool) -> Dict[str, Any]
        """What was logged so far, by this process and its siblings: flushed, then read back from the server."""
        self.flush()
        found = _relay.ask("metrics", {"run": self._id, "name": name, "recursive": recursive})
        return _readable(found["metrics"])  # type: ignore[no-any-return]

    def get_file_names(self):
        # type: () -> List[str]
        self.flush()
        return list(_relay.ask("files", {"run": self._id})["files"])

    def get_secret(self, name):
        # type: (str) -> str
        """A secret that was given to this run with `--secret`."""
        return str(_relay.ask("secret", {"name": name})["value"])

    def get_secrets(self, secrets):
        # type: (Iterable[str]) -> Dict[str, Optional[str]]
        found = {}  # type: Dict[str, Optional[str]]
        for name in secrets:
            try:
                found[name] = self.get_secret(name)
            except RunUsageError:
                found[name] = None
        return found

    def get_status(self) -> str:
        return "Running" if not self._over else "Completed"

    def flush(self, timeout_seconds=300):
        # type: (float) -> None
        """Wait until all that was said so far is home. Returns without it after `timeout_seconds`: nothing is lost."""
        try:
            _relay.ask("flush", timeout_seconds=float(timeout_seconds))
        except RunUnreachable:
            pass

    # The end

    def complete(self, _set_status=True):
        # type: (bool) -> None
        """For a child: it is done. The script's own run ends with the script, and that decides."""
        if not self._over:
            self._over = True
            self._say({"k": "complete", "v": {}})

    def fail(self, error_details=None, error_code=None):
        # type: (Any, Optional[str]) -> None
        """The run failed, whatever the script's exit code will say."""
        self._over = True
        message = str(error_details or "The script said that it failed.")
        words = {"code": str(error_code or "script_said_so"), "message": message}
        self._say({"k": "fail", "v": words})
        if self._parent is None:
            with open(os.path.join(self._folder, "failed"), "w") as file:
                json.dump(words, file)

    def cancel(self) -> None:
        if self._parent is None:
            with open(os.path.join(self._folder, "cancel"), "w"):
                pass
        else:
            self._over = True
            self._say({"k": "cancel", "v": {}})

    def start(self) -> None:
        pass

    def __enter__(self):
        # type: () -> Run
        return self

    def __exit__(self, kind, error, trace):
        # type: (Any, Any, Any) -> None
        if error is None:
            self.complete()
        else:
            self.fail(error_details=error, error_code=kind.__name__)

    def __repr__(self) -> str:
        return "Run(" + self._id + ")"

    def _head(self, name):
        # type: (Any) -> str
        head = '{"n":' + json.dumps(clean_name(name)) + ',"v":'
        if len(self._heads) < 10000 and isinstance(name, str) and len(name) < 1000:
            self._heads[name] = head
        return head

    def _say(self, line):
        # type: (Dict[str, Any]) -> None
        line["t"] = round(_now(), 3)
        self._write((json.dumps(line)[:-1] + self._end).encode())

    def _keep(self, name, source):
        # type: (str, Any) -> None
        prefix = "" if self._parent is None else ".children/" + self._id + "/"
        size = _uploads.keep(os.path.join(self._folder, "uploads"), prefix + _uploads.clean_path(name), source)
        self._say({"k": "upload", "v": {"name": _uploads.clean_path(name), "bytes": size}})


class Experiment:
    """The experiment that the run belongs to."""

    def __init__(self, name, workspace):
        # type: (str, str) -> None
        self.name = name
        self.workspace_name = workspace

    @property
    def workspace(self):
        # type: () -> Workspace
        return Workspace(self.workspace_name)


class Workspace:
    """The workspace that the run belongs to, as far as a run's own token reaches: its name and its models."""

    def __init__(self, name):
        # type: (str) -> None
        self.name = name

    @staticmethod
    def from_config(*args, **kwargs):
        # type: (*Any, **Any) -> Workspace
        """Inside a run there is one workspace, whatever a file says."""
        return Workspace(os.environ.get("SHUNTER_WORKSPACE", ""))

    get = from_config

    @property
    def models(self):
        # type: () -> Dict[str, Any]
        """The newest version of each registered model, by its name."""
        from . import _models

        return {model.name: model for model in _models.listed()}

    def __getattr__(self, name):
        # type: (str) -> Any
        if name.startswith("_"):
            raise AttributeError(name)
        raise RunUsageError("Workspace.%s is not there inside a run: its token reaches its own run, and models." % name)

    def __repr__(self) -> str:
        return "Workspace(" + self.name + ")"


def get_context(allow_offline=True):
    # type: (bool) -> Union[Run, OfflineRun]
    global _current
    if not inside():
        if not allow_offline:
            raise RunEnvironmentError("There is no run here: Shunter did not start this script. `shunter submit` does.")
        return OfflineRun()
    folder, run_id = os.environ["SHUNTER_SPOOL"], os.environ["SHUNTER_RUN_ID"]
    if _current is None or _current._id != run_id or _current._folder != folder:
        tags = json.loads(os.environ.get("SHUNTER_TAGS") or "{}")
        lines = Lines(os.path.join(folder, "metrics"))
        _current = Run(run_id, lines, folder, None, os.environ.get("SHUNTER_RUN_NAME", ""), tags)
    return _current


_current = None  # type: Optional[Run]


def _readable(found):
    # type: (Any) -> Any
    """The wire writes what JSON has no number for as {"float": "nan"}."""
    if isinstance(found, dict):
        if list(found) == ["float"]:
            return float(found["float"])
        return {k: _readable(v) for k, v in found.items()}
    if isinstance(found, list):
        return [_readable(v) for v in found]
    return found
