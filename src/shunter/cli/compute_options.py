"""Options of a kind of compute target, read by its schema: a new driver needs no edit here."""

from __future__ import annotations

import getpass
import json
import os
import sys
from pathlib import Path
from typing import Any

from shunter.errors import UsageError, nearest

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def read_options(words: list[str], schema: dict[str, Any], kind: str, *, ask_required: bool = True) -> dict[str, Any]:
    """`--vm-size D2 --tags a --tags b --low-priority` as the values that the schema asks for.

    >>> schema = {"properties": {"max_nodes": {"type": "integer"}, "spot": {"type": "boolean"}}}
    >>> read_options(["--max-nodes", "4", "--spot"], schema, "cluster")
    {'max_nodes': 4, 'spot': True}
    """
    known = _asked_for(schema)
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word, equals, value = left.pop(0).partition("=")
        name = word.removeprefix("--").replace("-", "_")
        negated = name.removeprefix("no_") if name.startswith("no_") and name not in known else ""
        if not word.startswith("--") or (name not in known and negated not in known):
            hint = nearest(word, ["--" + n.replace("_", "-") for n in known])
            raise UsageError(f"Targets of kind {kind!r} have no option {word!r}.", hint=hint)
        shape = _shape(known.get(name) or known[negated], schema)
        if negated:
            found[negated] = False
        elif is_secret(shape):
            if equals or (left and not left[0].startswith("--")):
                raise UsageError(
                    f"{word} is a secret; others can see the arguments of a command.",
                    hint=f"Give {word} alone: it is asked for, or read from the first line of standard input.",
                )
            found[name] = _ask(word)
        elif shape.get("type") == "boolean" and not equals and not (left and left[0].lower() in (*_TRUE, *_FALSE)):
            found[name] = True
        else:
            if not equals:
                if not left:
                    raise UsageError(f"{word} needs a value.", hint=str(shape.get("description", "")))
                value = left.pop(0)
            _put(found, name, value, shape, word)
    for name in schema.get("required", []) if ask_required else ():
        if name not in found:
            shape = _shape(known[name], schema)
            option = "--" + name.replace("_", "-")
            if not is_secret(shape):
                raise UsageError(f"Targets of kind {kind!r} need {option}.", hint=str(shape.get("description", "")))
            found[name] = _ask(option)
    return found


def option_rows(schema: dict[str, Any]) -> list[list[str]]:
    """The options of a kind as rows: option, what kind of value, what it is."""
    rows = []
    for name, raw in _asked_for(schema).items():
        shape = _shape(raw, schema)
        words = str(raw.get("description") or shape.get("description") or "")
        default = raw.get("default")
        if name in schema.get("required", []):
            words += " Required."
        elif default not in (None, [], {}):
            words += f" Default: {default}."
        value = "asked for" if is_secret(shape) else _value_name(shape)
        rows.append(["--" + name.replace("_", "-"), value, words.strip()])
    return rows


def _asked_for(schema: dict[str, Any]) -> dict[str, Any]:
    """The options that a person gives: without those that only the server sets."""
    return {n: raw for n, raw in schema.get("properties", {}).items() if not (raw.get("internal") or raw.get("learned"))}


def is_secret(shape: dict[str, Any]) -> bool:
    return bool(shape.get("writeOnly") or shape.get("format") == "password" or shape.get("secret"))


def _shape(raw: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """A property without its "or null" and its references."""
    shape = dict(raw)
    if "$ref" in shape:
        shape = {**schema.get("$defs", {}).get(str(shape["$ref"]).rpartition("/")[2], {}), **shape}
    options = [o for o in shape.get("anyOf", []) if o.get("type") != "null"]
    if options:
        shape = {**_shape(options[0], schema), **{k: v for k, v in shape.items() if k != "anyOf"}}
    return shape


def _put(found: dict[str, Any], name: str, text: str, shape: dict[str, Any], word: str) -> None:
    kind = shape.get("type")
    try:
        if kind == "array":
            found.setdefault(name, []).append(_scalar(text, shape.get("items", {}), word))
        elif kind == "object" and not text.lstrip().startswith("{"):
            key, equals, value = text.partition("=")
            if not equals:
                raise ValueError("Write NAME=VALUE")
            found.setdefault(name, {})[key] = _scalar(value, shape.get("additionalProperties") or {}, word)
        else:
            found[name] = _scalar(text, shape, word)
    except ValueError as error:
        raise UsageError(f"{word} {text!r} is wrong: {error}.", hint=str(shape.get("description", ""))) from error


def _scalar(text: str, shape: Any, word: str) -> Any:
    shape = shape if isinstance(shape, dict) else {}
    kind = shape.get("type")
    if "enum" in shape and text not in map(str, shape["enum"]):
        raise UsageError(f"{word} cannot be {text!r}.", hint=nearest(text, map(str, shape["enum"])))
    if kind == "integer":
        return int(text)
    if kind == "number":
        return float(text)
    if kind == "boolean":
        if text.lower() not in (*_TRUE, *_FALSE):
            raise ValueError("yes or no is wanted")
        return text.lower() in _TRUE
    if kind == "object":
        return json.loads(text)
    if shape.get("format") in ("path", "file-path", "directory-path"):
        return os.path.abspath(Path(text).expanduser())
    return text


def _value_name(shape: dict[str, Any]) -> str:
    if "enum" in shape:
        return "|".join(map(str, shape["enum"]))
    names = {"integer": "N", "number": "NUMBER", "boolean": "(flag)", "array": "VALUE…", "object": "NAME=VALUE"}
    return names.get(str(shape.get("type")), "PATH" if "path" in str(shape.get("format")) else "TEXT")


def _ask(option: str) -> str:
    words = option.removeprefix("--").replace("-", " ")
    value = getpass.getpass(f"{words.capitalize()}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not value:
        raise UsageError(f"No {words} was given.", hint=f"{option} is asked for, or read from standard input.")
    return value
