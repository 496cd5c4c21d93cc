"""Ways to log in beside a key and a password: an agent, a certificate, and a person at a terminal."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import PASSWORD, Machine
from terminals import at_a_terminal

import shunter
from shunter.errors import ConfigError, LoginRefused


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A real ssh-agent; its socket."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    yield path
    process.kill()
    process.wait()


def test_the_keys_of_an_agent_log_in_and_stay_there(
    agent: Path, home: Path, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is started by us and finds our agent; nothing of the key is kept by it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    options = {"address": machine.address, "username": "vm", "known_hosts_file": str(machine.known_hosts())}
    ws = shunter.Workspace.from_config()
    with pytest.raises(LoginRefused, match="with the keys that the server has") as refused:
        ws.compute.create("by-agent", "ssh", **options)
    assert "--private-key-file" in refused.value.hint
    subprocess.run(["ssh-add", "-q", machine.key], check=True)
    made = ws.compute.create("by-agent", "ssh", **options)
    assert not {"private_key", "private_key_file", "password"} & set(made.data["config"])
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    run = ws.submit("train.py", source_directory=tmp_path / "src", target="by-agent").wait(timeout_seconds=120)
    assert run.logs() == "hello\n"
    made.detach()


def sign(machine: Machine, folder: Path, valid: str) -> dict[str, Any]:
    """A key that the machine knows only by a certificate of its authority; the options that log in with both."""
    for name, file in (("authority", machine.folder / "ca"), ("me", folder / "me")):
        if not file.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file], check=True)
    subprocess.run(["ssh-keygen", "-q", "-s", machine.folder / "ca", "-I", "me", "-n", "vm", "-V", valid, folder / "me.pub"],
                   check=True)  # fmt: skip
    return {"private_key_file": str(folder / "me"), "certificate_file": str(folder / "me-cert.pub")}


def test_a_certificate_logs_in_and_one_that_expired_says_when(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path
) -> None:
    trusting = make_machine(sshd=["TrustedUserCAKeys {f}/ca.pub"])
    made = ws.compute.create("signed", "ssh", **trusting.options(**sign(trusting, tmp_path, "+1h")))
    made.probe()
    expired = sign(trusting, tmp_path, "20200101:20200102")
    with pytest.raises(LoginRefused, match=r"the certificate for vm expired on 2020-01-0\d") as found:
        ws.compute.create("late", "ssh", **trusting.options(**expired))
    assert "--certificate-file" in found.value.hint
    made.update(**expired)
    with pytest.raises(LoginRefused, match="expired"):
        made.probe()
    made.update(**sign(trusting, tmp_path, "+1h"))
    made.probe()
    made.detach()
    (tmp_path / "not-cert.pub").write_text("hello\n")
    with pytest.raises(ConfigError, match="the certificate cannot be used"):
        ws.compute.create(
            "late", "ssh", **{**trusting.options(**expired), "certificate_file": str(tmp_path / "not-cert.pub")}
        )


def test_a_person_is_asked_for_the_password_and_about_a_new_host_key(
    ws: shunter.Workspace, machine: Machine, tmp_path: Path
) -> None:
    words = ["compute", "attach", "asked", "--kind", "ssh", "--address", machine.address, "--username", "vm"]
    words += ["--known-hosts-file", str(tmp_path / "none"), "--password"]
    question = f"Is {machine.fingerprint()} its key, and do you trust it?".encode()
    code, shown = at_a_terminal(words, [(b"Password: ", PASSWORD.encode()), (question, b"n")])
    assert code != 0
    assert PASSWORD not in shown
    assert "asked" not in [c.name for c in ws.compute.list()]
    code, shown = at_a_terminal(words, [(b"Password: ", PASSWORD.encode()), (question, b"y")])
    assert code == 0, shown
    assert PASSWORD not in shown
    assert "accepted now and kept" in shown
    ws.compute.get("asked").probe()
    code, shown = at_a_terminal(
        [*words, "--slots", "3"], [(b"Password: ", PASSWORD.encode()), (b"Change them to these?", b"y")]
    )
    assert code == 0, shown
    assert ws.compute.get("asked").data["config"]["slots"] == 3
    ws.compute.get("asked").detach()


def test_a_wrong_password_at_the_terminal_is_told_and_nothing_is_kept(ws: shunter.Workspace, machine: Machine) -> None:
    words = ["compute", "attach", "wrong", "--kind", "ssh", "--address", machine.address, "--username", "vm"]
    words += ["--known-hosts-file", str(machine.known_hosts()), "--password"]
    code, shown = at_a_terminal(words, [(b"Password: ", b"not-it")])
    assert code != 0
    assert "does not let vm in with this password" in shown
    assert "not-it" not in shown
    assert "wrong" not in [c.name for c in ws.compute.list()]
