"""The key of the secrets in the keyring of the operating system: a real one, in a session of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.errors import ConfigError
from shunter.server.storage.secrets import KEY_FILE, _key

pytest.importorskip("keyring")
SESSION = """
printf 'the password of the login' | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon' EXIT
for process in first second; do "$PYTHON" -c "$CODE" "$SHUNTER_HOME" || exit 1; done
"""
CODE = """
import sys, time
from pathlib import Path
import keyring
from shunter.server.storage.secrets import _key
until = time.monotonic() + 30
while True:
    try:
        keyring.get_password("shunter-test", "is it up")
        break
    except Exception:
        if time.monotonic() > until:
            raise
        time.sleep(0.05)
print(_key(Path(sys.argv[1])).decode())
"""


def test_the_key_is_in_the_keyring_and_in_no_file(tmp_path: Path) -> None:
    if shutil.which("gnome-keyring-daemon") is None or shutil.which("dbus-run-session") is None:
        pytest.skip("there is no keyring here: scripts/parts/keyring brings one")
    for name in ("home", "run", "shunter"):
        (tmp_path / name).mkdir(mode=0o700)
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "SHUNTER_HOME": str(tmp_path / "shunter"), "SHUNTER_KEYRING": "1", "PYTHON": sys.executable, "CODE": CODE,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = subprocess.run(
        ["dbus-run-session", "--", "bash", "-c", SESSION], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    assert first == second
    assert len(first) == 44
    assert not (tmp_path / "shunter" / KEY_FILE).exists()
    kept = [p for p in tmp_path.rglob("*") if p.is_file() and first.encode() in p.read_bytes()]
    assert kept == []


def test_a_machine_without_a_keyring_says_so_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_KEYRING", "1")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    import keyring.core

    keyring.core.init_backend()
    with pytest.raises(ConfigError, match="keyring cannot be used") as caught:
        _key(tmp_path)
    assert "SHUNTER_KEYRING" in caught.value.hint
