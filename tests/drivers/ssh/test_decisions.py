"""What is decided without a machine: host keys, the lines of the check list, what is told of a clock."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from shunter.drivers.ssh import bootstrap
from shunter.drivers.ssh.cargo import PACK_BYTES, Content, _packs
from shunter.drivers.ssh.checks import judge_facts
from shunter.drivers.ssh.hostkeys import judge
from shunter.model.clock import in_our_time, settle

OLD, NEW = "SHA256:" + "a" * 43, "SHA256:" + "b" * 43


@pytest.mark.parametrize(
    ("shown", "trusted", "expected", "accept", "verdict"),
    [
        (OLD, [OLD], None, False, "known"),
        (OLD, [NEW, OLD], None, False, "known"),
        (NEW, [], None, False, "unknown"),
        (NEW, [], None, True, "accepted"),
        (NEW, [], NEW, False, "accepted"),
        (NEW, [], NEW.removeprefix("SHA256:") + "=", False, "accepted"),
        (NEW, [], OLD, True, "changed"),
        (NEW, [OLD], None, True, "changed"),
        (NEW, [OLD], NEW, True, "changed"),
    ],
)
def test_a_host_key_is_trusted_only_when_it_is_known_or_somebody_vouched_for_it(
    shown: str, trusted: list[str], expected: str | None, accept: bool, verdict: str
) -> None:
    assert judge(shown, trusted, expected, accept) == verdict


FACTS: dict[str, Any] = {
    "python": "3.9.2", "interpreter": "/usr/bin/python3", "root": "/home/me/x", "disk_free_bytes": 50 << 30,
    "engines": ["podman"], "gpus": [{"name": "A10"}, {"name": "A10"}], "time": 1000.0, "user": "me", "ends_with_session": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "words"),
    [
        ({}, "gpu", "ok", "2 × A10"),
        ({"gpus": []}, "gpu", "ok", "CPUs"),
        ({"disk_free_bytes": 1 << 30}, "disk", "warning", "1.0 GiB"),
        ({"engines": []}, "containers", "warning", "No container engine"),
        ({"time": 1000.0 + 7500}, "clock", "warning", "2.1 h ahead"),
        ({"time": 1000.0 - 90}, "clock", "warning", "90 s behind"),
        ({"ends_with_session": True}, "logout", "warning", "ends a user's processes"),
    ],
)
def test_the_check_list_says_what_a_machine_lacks(changes: dict[str, Any], name: str, verdict: str, words: str) -> None:
    found = {c.name: c for c in judge_facts({**FACTS, **changes}, 1000.0)}
    assert found[name].verdict == verdict
    assert words in found[name].message


def test_times_of_a_clock_that_is_off_are_corrected_and_a_slow_way_is_not_a_clock() -> None:
    mark = {"outcome": {"kind": "completed", "started_at": 8000.0, "ended_at": 8010.0}}
    assert in_our_time(mark, 7200.0)["outcome"] == {"kind": "completed", "started_at": 800.0, "ended_at": 810.0}
    assert in_our_time(mark, settle(0.0, -1.5)) is mark
    assert in_our_time({"ended": {"at": 1}}, 7200.0) == {"ended": {"at": 1}}
    assert in_our_time({"sign": "running", "started": True}, 7200.0) == {"sign": "running", "started": True}


def test_contents_are_cut_into_packs_and_a_large_one_stands_alone() -> None:
    sizes = [1, 2, PACK_BYTES, 3]
    packs = list(_packs(Content(str(n), "", 0, size) for n, size in enumerate(sizes)))
    assert [[c.size for c in pack] for pack in packs] == [[1, 2], [PACK_BYTES], [3]]


@pytest.mark.parametrize(
    "python", [None, "/opt/my python/bin/python", "x'; touch /tmp/pwned; '", "$(touch /tmp/pwned)"]
)
def test_the_first_command_is_safe_whatever_the_python_is_called(python: str | None, tmp_path: Any) -> None:
    """The shell finds no Python of that name and says so; nothing else is run."""
    command = bootstrap.command(python)
    answer = subprocess.run(["/bin/sh", "-c", command], env={"PATH": "/nowhere:/bin"}, capture_output=True, text=True,
                            input="", check=False, cwd=tmp_path)  # fmt: skip
    if python is not None:
        assert bootstrap.NO_PYTHON in answer.stdout, answer.stderr
    import os

    assert not os.path.exists("/tmp/pwned")
