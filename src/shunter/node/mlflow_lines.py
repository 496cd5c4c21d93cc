"""What MLflow's client logs, as lines of the stream `metrics`."""

from __future__ import annotations

import json
import time

from shunter.node import mlflow_words as words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

_LARGEST = 1.7976931348623157e308


def metric_lines(metrics, about):
    # type: (List[Dict[str, Any]], Dict[str, str]) -> List[str]
    """Written by hand: a batch has a thousand of them, and the encoder would take most of the time."""
    names = {}  # type: Dict[str, str]
    end = ', "r": ' + json.dumps(about["r"]) + "}" if about else "}"
    found = []
    for metric in metrics:
        key, value = metric["key"], metric["value"]
        name = names.get(key)
        if name is None:
            name = names[key] = '{"n": ' + json.dumps(str(key)) + ', "v": '
        if type(value) is not float:
            value = words.number_from_wire(value)
        text = repr(value) if -_LARGEST <= value <= _LARGEST else json.dumps(value)
        at = int(metric.get("timestamp") or time.time() * 1000) / 1000.0
        found.append('%s%s, "t": %r, "s": %d%s' % (name, text, at, int(metric.get("step") or 0), end))
    return found


def line(kind, value, about, at_ms=None):
    # type: (str, Any, Dict[str, str], Optional[int]) -> str
    return json.dumps(dict({"k": kind, "v": value, "t": at_ms / 1000.0 if at_ms else time.time()}, **about))
