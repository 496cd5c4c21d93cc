"""Values that scripts log, as JSON text: plain numbers, strings, and whatever numpy and torch call a scalar."""

from __future__ import annotations

import json

from ._errors import RunUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List

MAX_NAME = 255
MAX_TEXT = 1 << 20


def scalar(value, name):
    # type: (Any, str) -> str
    """`value` as JSON text. NaN and infinities are written as Python's json does."""
    kind = type(value)
    if kind is float or kind is int:
        return json.dumps(value)
    return json.dumps(plain(value, name))


def plain(value, name):
    # type: (Any, str) -> Any
    """A number, string, bool or None out of anything that is one: numpy and torch scalars, Decimal, Fraction."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (str, bytes)):
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return plain(item(), name)
        except (ValueError, RuntimeError) as error:  # an array or tensor of several values
            raise RunUsageError(_not_a_scalar(value, name)) from error
    if hasattr(value, "__float__") and not hasattr(value, "__iter__"):
        return float(value)
    if hasattr(value, "__iter__") or hasattr(value, "__next__"):
        raise RunUsageError(_not_a_scalar(value, name))
    return str(value)


def values(value, name):
    # type: (Iterable[Any], str) -> List[Any]
    """A list of scalars out of any iterable; arrays are taken flat."""
    flat = getattr(value, "tolist", None)
    found = flat() if callable(flat) else value
    if isinstance(found, (str, bytes)) or not hasattr(found, "__iter__"):
        raise RunUsageError("%s: a list of values is needed, not %r." % (name, type(value).__name__))
    return [plain(one, name) for one in _flatten(found)]


def columns(value, name):
    # type: (Any, str) -> Dict[str, Any]
    """A table: a mapping of columns, each a list of values or a single one."""
    if not hasattr(value, "items"):
        raise RunUsageError("%s: a table is a dict of columns, not %r." % (name, type(value).__name__))
    found = {}
    for column, cells in value.items():
        several = hasattr(cells, "__iter__") and not isinstance(cells, (str, bytes)) and getattr(cells, "ndim", 1) != 0
        found[str(column)] = values(cells, name) if several else [plain(cells, name)]
    return found


def clean_name(name):
    # type: (Any) -> str
    """A name that every store can keep: text, no NUL, not longer than `MAX_NAME`. A longer one is cut and marked."""
    text = str(name).encode("utf-8", "replace").decode().replace("\0", "�") or "metric"
    if len(text) <= MAX_NAME:
        return text
    import zlib

    return text[: MAX_NAME - 9] + "~%08x" % (zlib.crc32(text.encode()) & 0xFFFFFFFF)


def _flatten(found):
    # type: (Iterable[Any]) -> Iterable[Any]
    for one in found:
        if isinstance(one, (list, tuple)):
            for inner in _flatten(one):
                yield inner
        else:
            yield one


def _not_a_scalar(value, name):
    # type: (Any, str) -> str
    return "%s: log takes one value, not %r; log_list takes several." % (name, type(value).__name__)
