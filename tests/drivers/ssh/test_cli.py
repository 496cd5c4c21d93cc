"""Machines from the command line: the check list, secrets that are asked for, a shell in a run."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from machines import PASSWORD, Machine
from terminals import at_a_terminal

import shunter
from shunter.testing.house import wait_until

GATED = "import os, sys, time\nprint('on', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\nprint('done')\n"


def cli(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shunter.cli", *words], input=given, capture_output=True, text=True, check=False
    )


def options(machine: Machine) -> list[str]:
    return [
        "--kind",
        "ssh",
        "--address",
        machine.address,
        "--username",
        "vm",
        "--known-hosts-file",
        str(machine.known_hosts()),
    ]


def talk(terminal: int, words: list[bytes], seconds: float) -> bytes:
    """Say each word when there is a prompt, and return all that was heard until the other side ends."""
    said, heard_to = b"", 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                data = os.read(terminal, 4096)
            except OSError:
                return said
            said += data
        if words and b"$ " in said[heard_to:]:
            heard_to = len(said)
            os.write(terminal, words.pop(0))
    raise AssertionError(said)


def test_an_attach_prints_its_check_list(ws: shunter.Workspace, machine: Machine) -> None:
    done = cli("compute", "attach", "vm1", *options(machine), "--private-key-file", str(machine.key))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("✓ name")
    assert any(line.startswith("✓ login") for line in lines)
    shown = json.loads(cli("compute", "show", "vm1", "--json").stdout)
    assert shown["config"]["private_key"] == "(kept secret)"


def test_a_password_is_read_and_never_an_argument(ws: shunter.Workspace, machine: Machine) -> None:
    refused = cli("compute", "attach", "vm2", *options(machine), "--password", PASSWORD)
    assert refused.returncode == 2
    assert PASSWORD not in refused.stderr + refused.stdout
    done = cli("compute", "attach", "vm2", *options(machine), "--password", given=PASSWORD + "\n")
    assert done.returncode == 0, done.stderr
    assert PASSWORD not in done.stderr + done.stdout


def test_a_failed_attach_says_what_to_do(ws: shunter.Workspace, machine: Machine) -> None:
    done = cli(
        "compute",
        "attach",
        "vm3",
        *options(machine),
        "--private-key-file",
        str(machine.key),
        "--known-hosts-file",
        "/nowhere",
    )
    assert done.returncode != 0
    assert "✗ host key" in done.stdout
    assert machine.fingerprint() in done.stderr
    assert "--accept-host-key" in done.stderr


def test_a_shell_opens_in_the_folder_and_environment_of_a_run(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path, shared: Path
) -> None:
    if "vm1" not in [c.name for c in ws.compute.list()]:
        ws.compute.create("vm1", "ssh", **machine.options())
    (tmp_path / "train.py").write_text(GATED)
    run = ws.submit(
        "train.py",
        source_directory=tmp_path,
        arguments=[shared / "gate"],
        target="vm1",
        environment_variables={"MINE": "yes"},
    )
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "shunter.cli", "run", "shell", run.id])
    try:
        said = talk(terminal, [b"echo $MINE-$SHUNTER_RUN_ID; pwd\n", b"exit\n"], 120)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert f"yes-{run.id}".encode() in said, said
    assert f"launches/{run.id}.1.0/work".encode() in said
    (shared / "gate").touch()
    assert run.wait(timeout_seconds=120).status == "Completed"
    done = cli("run", "shell", run.id)
    assert done.returncode != 0
    assert "nothing to open a shell in" in done.stderr


def test_a_machine_that_allows_one_session_says_why_there_is_no_shell(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path, shared: Path
) -> None:
    narrow = make_machine(sshd=["MaxSessions 1"])
    ws.compute.create("narrow", "ssh", **narrow.options())
    (tmp_path / "train.py").write_text(GATED)
    run = ws.submit("train.py", source_directory=tmp_path, arguments=[shared / "gate"], target="narrow")
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    code, shown = at_a_terminal(["run", "shell", run.id], [])
    assert code != 0
    assert "allows no second session" in shown
    assert "MaxSessions" in shown
    (shared / "gate").touch()
    assert run.wait(timeout_seconds=120).status == "Completed"


def test_a_target_shows_its_load_and_a_run_what_it_ran_with(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(machine.folder)
    paths = ["--known-hosts-file", machine.known_hosts().name, "--private-key-file", "home/../id"]
    given = ["--kind", "ssh", "--address", machine.address, "--username", "vm", "--slots", "1", *paths]
    done = cli("compute", "attach", "shown", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "train.py").write_text(GATED)
    run = ws.submit("train.py", source_directory=tmp_path, arguments=[shared / "gate"], target="shown")
    wait_until(lambda: "on" in run.logs(), 60, "the first line")
    for command in ("show", "probe"):
        shown = cli("compute", command, "shown").stdout
        assert f"known-hosts-file {machine.folder}/known_hosts" in shown
        assert f"private-key-file {machine.folder}/id\n" in shown
        assert "1 run at once" in shown
        assert f"{run.id[:8]} {run.name} Running since" in shown
        assert "of memory and" in shown
    (shared / "gate").touch()
    run.wait(timeout_seconds=120)
    assert "/python3, Python 3." in cli("run", "show", run.id).stdout
    ws.compute.get("shown").detach()
