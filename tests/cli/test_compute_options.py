"""Options of targets are read by the schema of their kind."""

from __future__ import annotations

import io
from typing import Any

import pytest

from shunter.cli.compute_options import option_rows, read_options
from shunter.errors import UsageError

SCHEMA: dict[str, Any] = {
    "properties": {
        "address": {"type": "string", "description": "Where it is."},
        "port": {"type": "integer", "default": 22},
        "price": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "low_priority": {"type": "boolean", "default": False},
        "size": {"$ref": "#/$defs/Size"},
        "key_file": {"anyOf": [{"type": "string", "format": "file-path"}, {"type": "null"}]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "env": {"type": "object", "additionalProperties": {"type": "integer"}},
        "password": {"anyOf": [{"type": "string", "format": "password", "writeOnly": True}, {"type": "null"}]},
    },
    "required": ["address"],
    "$defs": {"Size": {"type": "string", "enum": ["small", "large"]}},
}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--address h --port 2222", {"port": 2222}),
        ("--address=h --price 0.5 --low-priority", {"price": 0.5, "low_priority": True}),
        ("--low-priority --address h", {"low_priority": True}),
        ("--no-low-priority --address h", {"low_priority": False}),
        ("--low-priority no --address h", {"low_priority": False}),
        ("--address h --size large", {"size": "large"}),
        ("--address h --labels a --labels b", {"labels": ["a", "b"]}),
        ("--address h --env A=1 --env B=2", {"env": {"A": 1, "B": 2}}),
    ],
)
def test_values_get_the_types_of_the_schema(line: str, expected: dict[str, Any]) -> None:
    assert read_options(line.split(), SCHEMA, "ssh") == {"address": "h"} | expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--adress h", "--address"),
        ("", "--address"),
        ("--address h --port", "needs a value"),
        ("--address h --port x", "--port"),
        ("--address h --size medium", "medium"),
        ("--address h --password secret", "others can see"),
        ("--address h --password=secret", "others can see"),
        ("--address h stray", "stray"),
        ("--address h --env A", "NAME=VALUE"),
    ],
)
def test_what_the_schema_does_not_know_is_refused(line: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(line.split(), SCHEMA, "ssh")
    assert words in str(caught.value)


def test_a_secret_is_read_from_standard_input_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hunter 2\nmore\n"))
    found = read_options(["--address", "h", "--password"], SCHEMA, "ssh")
    assert found["password"] == "hunter 2"


def test_a_home_folder_in_a_path_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert read_options(["--address", "h", "--key-file", "~/.ssh/id"], SCHEMA, "ssh")["key_file"] == "/home/me/.ssh/id"


def test_an_update_asks_for_nothing() -> None:
    assert read_options(["--port", "1"], SCHEMA, "ssh", ask_required=False) == {"port": 1}


def test_every_option_is_explained() -> None:
    rows = {row[0]: row[1:] for row in option_rows(SCHEMA)}
    assert rows["--address"] == ["TEXT", "Where it is. Required."]
    assert rows["--port"] == ["N", "Default: 22."]
    assert rows["--size"][0] == "small|large"
    assert rows["--password"][0] == "asked for"
