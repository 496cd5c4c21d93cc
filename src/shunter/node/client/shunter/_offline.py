"""What `Run.get_context()` gives outside a run: the same calls, printed. It is not a Run, and scripts test for that."""

from __future__ import annotations

import os
import uuid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional


class OfflineRun:
    """Prints what it is told. Has what a script may call on its run without a server, and nothing else.

    >>> run = OfflineRun("OfflineRun_0")
    >>> run.log("loss", 0.5)
    Attempted to log scalar metric loss:
    0.5
    """

    def __init__(self, run_id=None):
        # type: (Optional[str]) -> None
        self._id = run_id or "OfflineRun_" + str(uuid.uuid4())

    @property
    def id(self) -> str:
        return self._id

    @property
    def _run_id(self) -> str:
        return self._id

    def log(self, name, value, description="", step=None):
        # type: (str, Any, str, Optional[int]) -> None
        _say("log scalar metric " + str(name), value)

    def log_list(self, name, value, description=""):
        # type: (str, Any, str) -> None
        _say("log list metric " + str(name), list(value))

    def log_row(self, name, description=None, **kwargs):
        # type: (str, Optional[str], **Any) -> None
        _say("log row metric " + str(name), kwargs)

    def log_table(self, name, value, description=""):
        # type: (str, Any, str) -> None
        _say("log table metric " + str(name), value)

    def log_image(self, name, path=None, plot=None, description=""):
        # type: (str, Optional[str], Any, str) -> None
        _say("log image metric " + str(name), path or plot)

    def log_accuracy_table(self, name, value, description=""):
        # type: (str, Any, str) -> None
        _say("log accuracy table metric " + str(name), value)

    log_confusion_matrix = log_residuals = log_predictions = log_accuracy_table

    def tag(self, key, value=None):
        # type: (str, Any) -> None
        _say("tag the run with " + str(key), value)

    def set_tags(self, tags):
        # type: (Dict[str, Any]) -> None
        _say("set tags", tags)

    def remove_tags(self, tags):
        # type: (List[str]) -> None
        _say("remove tags", tags)

    def add_properties(self, properties):
        # type: (Dict[str, Any]) -> None
        _say("add properties", properties)

    def upload_file(self, name, path_or_stream, datastore_name=None):
        # type: (str, Any, Optional[str]) -> None
        _say("upload file " + str(name), path_or_stream)

    def upload_files(self, names, paths, return_artifacts=False, timeout_seconds=None, datastore_name=None):
        # type: (List[str], List[str], bool, Optional[float], Optional[str]) -> None
        _say("upload files", dict(zip(names, paths)))

    def upload_folder(self, name, path, datastore_name=None):
        # type: (str, str, Optional[str]) -> None
        _say("upload folder " + str(name), path)

    def child_run(self, name=None, run_id=None, outputs=None):
        # type: (Optional[str], Optional[str], Optional[str]) -> OfflineRun
        return type(self)()

    def create_children(self, count=None, tag_key=None, tag_values=None):
        # type: (Optional[int], Optional[str], Optional[List[Any]]) -> List[OfflineRun]
        return [type(self)() for _ in range(count if count is not None else len(tag_values or []))]

    def flush(self, timeout_seconds=300):
        # type: (float) -> None
        pass

    def start(self) -> None:
        pass

    def complete(self, _set_status=True):
        # type: (bool) -> None
        pass

    def cancel(self) -> None:
        pass

    def fail(self, error_details=None, error_code=None):
        # type: (Any, Optional[str]) -> None
        print("Run failed with error code %s and details: %s" % (error_code, error_details))

    def __enter__(self):
        # type: () -> OfflineRun
        return self

    def __exit__(self, kind, error, trace):
        # type: (Any, Any, Any) -> None
        if error is not None:
            self.fail(error_details=error, error_code=kind.__name__)

    def __repr__(self) -> str:
        return "OfflineRun(" + self._id + ")"


def inside() -> bool:
    """Is this process part of a run?"""
    return bool(os.environ.get("SHUNTER_SPOOL") and os.environ.get("SHUNTER_RUN_ID"))


def _say(what, value):
    # type: (str, Any) -> None
    print("Attempted to %s:\n%s" % (what, value))
