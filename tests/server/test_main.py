"""The lock that says which process serves a home."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

from shunter.home import HomeFolder
from shunter.sdk.connect import connect
from shunter.server.main import held


def test_a_client_that_looks_turns_no_server_away_but_a_server_does(tmp_path: Path) -> None:
    home = HomeFolder(tmp_path)
    look = os.open(home.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(look, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, [look]).start()
    with held(home) as mine:
        assert mine
        with held(home) as other:
            assert not other


def test_a_server_that_was_just_ending_is_followed_by_another(home: Path) -> None:
    ending = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(ending, fcntl.LOCK_EX)
    threading.Timer(3.0, os.close, [ending]).start()  # by then the first that is started has given way
    assert connect().get("/api/v1/server")["home"] == str(home)
