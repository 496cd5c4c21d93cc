"""A machine named as in the person's own ~/.ssh/config, with the key and the known hosts that lie there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from machines import Machine

from shunter.sdk.workspace import Workspace


def test_a_name_of_the_ssh_config_is_enough(
    home: Path, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "person" / ".ssh"
    folder.mkdir(parents=True, mode=0o700)
    shutil.copy(machine.key, folder / "id_vm")
    shutil.copy(machine.known_hosts(), folder / "known_hosts")
    (folder / "config").write_text(
        f"Host far\n  HostName {machine.address}\n  User vm\n  IdentityFile {folder}/id_vm\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    ws = Workspace.from_config()
    steps: list[dict[str, str]] = []
    ws.compute.create("far", "ssh", on_step=steps.append, address="far")
    assert [s["message"] for s in steps if s["check"] == "name"] == [f"{machine.address} is {machine.address}."]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('hello')\n")
    run = ws.submit("train.py", source_directory=tmp_path / "src", target="far").wait(timeout_seconds=120)
    assert run.logs() == "hello\n"
