"""What claims say of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shunter.node import contract


def test_a_script_that_was_over_at_once_is_not_taken_for_alive(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as it is when its launcher was slow to look
        started = contract.start_time(process.pid)
    assert contract.take(str(tmp_path), f"launcher 1 1 {contract.boot_id()}")
    contract.add_to_claim(str(tmp_path), f"script {process.pid} {started}")
    claim = contract.Claim.read(str(tmp_path))
    assert claim is not None
    assert not claim.script_alive()


def test_this_process_is_alive_and_another_with_its_id_would_not_be() -> None:
    me = os.getpid()
    assert contract.is_alive(me, contract.start_time(me))
    assert not contract.is_alive(me, contract.start_time(me) + 1)
