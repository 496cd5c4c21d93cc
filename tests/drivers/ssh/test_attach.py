"""Attaching: what is checked, what is refused and in which words, and where secrets are not."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import pytest
from machines import PASSWORD, Machine

import shunter
from shunter.errors import (
    AlreadyExists,
    ConfigError,
    HostKeyChanged,
    HostKeyUnknown,
    LoginRefused,
    NodeUnfit,
    ShunterError,
    TargetUnreachable,
    UsageError,
)
from shunter.sdk.compute import Compute

CHECKS = [
    "name",
    "port",
    "host key",
    "login",
    "python",
    "write access",
    "disk",
    "containers",
    "gpu",
    "clock",
    "forwarding",
]


def attach(ws: shunter.Workspace, name: str, machine: Machine, **options: Any) -> tuple[Compute, list[dict[str, Any]]]:
    steps: list[dict[str, Any]] = []
    return ws.compute.create(name, "ssh", on_step=steps.append, **{**machine.options(), **options}), steps


def refused(
    ws: shunter.Workspace, error: type[ShunterError], machine: Machine, **options: Any
) -> tuple[ShunterError, dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    with pytest.raises(error) as found:
        ws.compute.create("refused", "ssh", on_step=steps.append, **{**machine.options(), **options})
    assert "refused" not in [c.name for c in ws.compute.list()]
    assert steps[-1]["verdict"] == "failed"
    assert found.value.hint
    return found.value, steps[-1]


def test_an_attach_shows_each_check_with_its_verdict(ws: shunter.Workspace, machine: Machine) -> None:
    made, steps = attach(ws, "vm1", machine)
    assert [s["check"] for s in steps] == CHECKS
    assert {s["verdict"] for s in steps} <= {"ok", "warning"}
    assert made.data["facts"]["cpus"] >= 1
    assert made.data["facts"]["hostname"]


def test_an_attach_logs_in_once_and_that_connection_is_used_from_then_on(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path
) -> None:
    fresh = make_machine()
    made, _ = attach(ws, "once", fresh)
    (tmp_path / "train.py").write_text("print('hello')\n")
    assert ws.submit("train.py", source_directory=tmp_path, target="once").wait(timeout_seconds=120).logs() == "hello\n"
    said = (fresh.folder / "init.log").read_text()
    assert said.count("Accepted publickey") == 1, said
    made.detach()


@pytest.mark.parametrize(("name", "words"), [("v", "1 character;"), ("a-machine-with-a-long-name", "26 characters;")])
def test_a_name_of_another_length_than_the_documents_say_is_a_hint(
    ws: shunter.Workspace, machine: Machine, name: str, words: str
) -> None:
    made, steps = attach(ws, name, machine)
    assert (steps[0]["check"], steps[0]["verdict"]) == ("target name", "warning")
    assert words in steps[0]["message"]
    made.detach()


def test_attaching_twice_with_the_same_settings_is_fine_and_with_others_is_asked_about(
    ws: shunter.Workspace, machine: Machine
) -> None:
    attach(ws, "vm1", machine)
    attach(ws, "vm1", machine)
    with pytest.raises(AlreadyExists, match="other settings"):
        attach(ws, "vm1", machine, slots=7)


def test_a_password_logs_in_and_is_nowhere_to_be_seen(
    ws: shunter.Workspace, machine: Machine, module_home: Path
) -> None:
    made, _ = attach(ws, "by-password", machine, private_key_file=None, password=PASSWORD)
    key = machine.key.read_text().splitlines()[2]
    shown = json.dumps([made.data, made.show(), [c.data for c in ws.compute.list()], made.probe().data])
    assert PASSWORD not in shown
    for file in module_home.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes(), file
            assert key.encode() not in file.read_bytes(), file
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            assert PASSWORD.encode() not in Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            continue
    made.detach()


def test_a_secret_is_rotated_by_update(ws: shunter.Workspace, machine: Machine) -> None:
    made, _ = attach(ws, "rotated", machine)
    made.update(private_key=None, private_key_file=None, password="wrong")
    with pytest.raises(LoginRefused):
        made.probe()
    made.update(password=PASSWORD)
    made.probe()
    made.detach()


def test_a_key_with_a_passphrase_is_opened_by_it(ws: shunter.Workspace, machine: Machine, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(["cp", machine.key, locked], check=True)
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", locked], check=True)
    made, _ = attach(ws, "locked", machine, private_key_file=str(locked), passphrase="open sesame")
    made.detach()
    error, _ = refused(ws, ConfigError, machine, private_key_file=str(locked))
    assert "has a passphrase" in error.message
    error, _ = refused(ws, ConfigError, machine, private_key_file=str(locked), passphrase="close sesame")
    assert "not opened by this passphrase" in error.message


def test_an_unknown_host_is_shown_with_its_fingerprint_and_trusted_only_when_told(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path
) -> None:
    nobody = str(tmp_path / "known_hosts")
    error, step = refused(ws, HostKeyUnknown, machine, known_hosts_file=nobody)
    assert step["check"] == "host key"
    assert machine.fingerprint() in error.message
    refused(ws, HostKeyChanged, machine, known_hosts_file=nobody, host_key_fingerprint="SHA256:" + "a" * 43)
    by_fingerprint, _ = attach(
        ws, "expected", machine, known_hosts_file=nobody, host_key_fingerprint=machine.fingerprint()
    )
    by_fingerprint.probe()
    by_fingerprint.detach()
    accepted, _ = attach(ws, "accepted", machine, known_hosts_file=nobody, accept_host_key=True)
    accepted.probe()
    accepted.detach()


def test_a_host_whose_key_changed_is_refused_whatever_flag_is_given(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    words = (tmp_path / "other.pub").read_text().split()
    (tmp_path / "known_hosts").write_text(f"{machine.address} {words[0]} {words[1]}\n")
    error, _ = refused(
        ws, HostKeyChanged, machine, known_hosts_file=str(tmp_path / "known_hosts"), accept_host_key=True
    )
    assert machine.fingerprint() in error.message


@pytest.mark.parametrize(
    ("options", "error", "check", "words"),
    [
        ({"private_key_file": None, "password": "wrong"}, LoginRefused, "login", "with this password"),
        ({"username": "nobody-here"}, LoginRefused, "login", "with the key SHA256:"),
        ({"address": "no-such-host.invalid"}, TargetUnreachable, "name", "cannot be resolved"),
        ({"port": 2}, TargetUnreachable, "port", "refused"),
        ({"folder": "/proc/nowhere"}, NodeUnfit, "write access", "/proc/nowhere"),
        ({"python": "/usr/bin/no-python"}, NodeUnfit, "python", "no Python"),
    ],
)  # fmt: skip
def test_each_thing_that_goes_wrong_has_its_own_words(
    ws: shunter.Workspace, machine: Machine, options: dict[str, Any], error: type[ShunterError], check: str, words: str
) -> None:
    found, step = refused(ws, error, machine, **options)
    assert step["check"] == check
    assert words in found.message, found.message


def test_a_machine_that_is_switched_off_is_told_from_one_that_refuses(ws: shunter.Workspace, make_machine: Any) -> None:
    away = make_machine()
    away.inside("iptables", "-A", "INPUT", "-p", "tcp", "--dport", "22", "-j", "DROP")
    found, step = refused(ws, TargetUnreachable, away, connect_timeout_seconds=0.5)
    assert step["check"] == "port"
    assert "no answer" in found.message


def test_a_key_that_expired_is_refused_with_what_to_look_at(ws: shunter.Workspace, make_machine: Any) -> None:
    expired = make_machine()
    file = expired.home / ".ssh" / "authorized_keys"
    file.write_text('expiry-time="20200101" ' + file.read_text())
    error, _ = refused(ws, LoginRefused, expired)
    assert "expiry-time" in error.hint


FULL_DISK = """
cp -a /home /run/h; mount -t tmpfs -o size=64k none /home; cp -a /run/h/* /home
chown -R 23000 /home/vm; dd if=/dev/zero of=/home/vm/fill 2>/dev/null || true
"""
OLD_PYTHON = """
mkdir -p /run/old
printf '#!/bin/sh\\ncase "$*" in *-V*) echo Python 3.6.9;; *) exit 1;; esac\\n' > /run/old/python3
chmod +x /run/old/python3
for tool in sh bash; do ln -s /bin/$tool /run/old/$tool; done
mount -t tmpfs none /usr/local/bin
"""


@pytest.mark.parametrize(
    ("machine_options", "check", "words"),
    [
        ({"sshd": ["SetEnv PATH=/run/old"], "setup": OLD_PYTHON}, "python", "only Python 3.6.9"),
        ({"home_mount": "mount -o remount,bind,ro /home"}, "write access", "Read-only file system"),
        ({"home_mount": FULL_DISK}, "write access", "is full"),
        ({"sshd": ["MaxSessions 0"]}, "python", "lets nobody run commands"),
        ({"sshd": ["ForceCommand /bin/false"]}, "python", "no command could be run"),
    ],
)  # fmt: skip
def test_a_machine_that_cannot_be_used_says_why(
    ws: shunter.Workspace, make_machine: Any, machine_options: dict[str, Any], check: str, words: str
) -> None:
    found, step = refused(ws, NodeUnfit, make_machine(**machine_options))
    assert step["check"] == check
    assert words in found.message, found.message


@pytest.mark.parametrize(
    "machine_options",
    [
        {"setup": 'printf \'echo Welcome; echo "a long day" >&2; printf "no newline"\\n\' > /home/vm/.bashrc'},
        {"sshd": ["Subsystem sftp /bin/false"]},
        {"sshd": ["MaxSessions 1"]},
        {"sshd": ["AllowTcpForwarding no", "AllowStreamLocalForwarding no"]},
        {"sshd": ["DisableForwarding yes"]},
    ],
    ids=["noisy shell", "no sftp", "one session", "no forwarding", "nothing forwarded"],
)
def test_a_machine_with_a_whim_is_used_all_the_same(
    ws: shunter.Workspace, make_machine: Any, machine_options: dict[str, Any], tmp_path: Path
) -> None:
    name = "whim-" + secrets.token_hex(3)  # its own: one that failed must not stand in the way of the next
    made, _ = attach(ws, name, make_machine(**machine_options))
    (tmp_path / "train.py").write_text("print('hello')\nopen('outputs/a', 'w').write('b')\n")
    run = ws.submit("train.py", source_directory=tmp_path, target=name).wait(timeout_seconds=120)
    assert (run.status, run.logs()) == ("Completed", "hello\n")
    assert [f["path"] for f in run.files()] == ["outputs/a"]
    made.detach()


def test_a_jump_host_is_gone_through_and_its_key_checked(
    ws: shunter.Workspace, machine: Machine, make_machine: Any
) -> None:
    door = make_machine()
    # The far machine has no way to us but through the door: only there is its network known.
    known = Path(machine.known_hosts()).read_text() + Path(door.known_hosts()).read_text()
    (machine.folder / "both").write_text(known)
    authorized = door.home / ".ssh" / "authorized_keys"
    authorized.write_text(authorized.read_text() + (machine.folder / "id.pub").read_text())
    door.route_to(machine)
    made, steps = attach(
        ws, "behind", machine, jump=f"vm@{door.address}:22", known_hosts_file=str(machine.folder / "both")
    )
    assert "looked up by" in steps[0]["message"]
    made.detach()
    refused(ws, HostKeyUnknown, machine, jump=f"vm@{door.address}:22")


def test_detach_leaves_nothing_on_the_machine(ws: shunter.Workspace, make_machine: Any, tmp_path: Path) -> None:
    lent = make_machine()
    made, _ = attach(ws, "lent", lent)
    (tmp_path / "train.py").write_text("print('hello')\n")
    ws.submit("train.py", source_directory=tmp_path, target="lent").wait(timeout_seconds=120)
    assert (lent.home / ".shunter-node").exists()
    made.detach()
    assert not (lent.home / ".shunter-node").exists()
    assert "lent" not in [c.name for c in ws.compute.list()]


@pytest.mark.parametrize(
    "options", [{"adress": "x"}, {"port": 99999}, {"address": "-oProxyCommand=x"}, {"username": "a\nb"}]
)
def test_options_that_make_no_sense_are_refused_before_anything_is_tried(
    ws: shunter.Workspace, machine: Machine, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        attach(ws, "refused", machine, **options)
