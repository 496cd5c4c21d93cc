"""The quick way to read the words of a submit is the same as Typer's."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import typer

from shunter.cli import build
from shunter.cli.submit_words import FLAGS, WITH_VALUE, read
from shunter.cli.submitting import submit


def command() -> Any:
    return typer.main.get_command(build(["submit"])).commands["submit"]  # type: ignore[attr-defined]


def test_the_table_of_options_is_typers_declaration() -> None:
    options = [param for param in command().params if param.param_type_name == "option" and param.name != "help"]
    declared = {name: param for param in options for name in param.opts}
    assert {name for name, param in declared.items() if not param.is_flag} == set(WITH_VALUE)
    assert {name for name, param in declared.items() if param.is_flag} == set(FLAGS)
    for name, (parameter, convert) in WITH_VALUE.items():
        assert declared[name].name == parameter
        assert declared[name].multiple == (convert is list)
    assert {param.name for param in command().params if param.name != "help"} == set(
        inspect.signature(submit).parameters
    )


@pytest.mark.parametrize(
    "line",
    [
        "train.py",
        "--source a --target b train.py",
        "--source=a --nodes=2 train.py --x=1",
        "train.py --target b --lr 0.1 --target c",
        "train.py -- --target b",
        "-- --strange.py --target b",
        "--env A=1 --env B=2 --tag c=d -y --detach --json train.py",
        "--cpus 1.5 --gpus 0 --memory 4GB --max-duration 1h --name n --experiment e train.py a -- b",
        "--run-config f --environment g --snapshot-limit 1GB train.py - --",
    ],
)
def test_both_ways_read_the_same(line: str) -> None:
    words = line.split(" ")
    context = command().make_context("submit", list(words))
    quick = read(words)
    assert quick is not None
    full = {name: param.default for name, param in inspect.signature(submit).parameters.items()} | quick
    slow = {name: list(value) if isinstance(value, tuple) else value for name, value in context.params.items()}
    assert {k: v or None for k, v in full.items()} == {k: v or None for k, v in slow.items() if k in full}


@pytest.mark.parametrize(
    "line", ["", "--help", "-h train.py", "--nodes two train.py", "--targt x train.py", "--target", "--json=1 train.py"]
)
def test_what_is_not_plainly_right_is_left_to_typer(line: str) -> None:
    assert read(line.split(" ") if line else []) is None


def test_a_path_stays_a_path() -> None:
    assert (read(["--source", "a", "t.py"]) or {})["source"] == Path("a")
