"""Which launches on a machine belong to the node that it is lent as."""

from __future__ import annotations

import json
from pathlib import Path

from shunter.node import contract, tether


def test_a_launch_that_was_seen_before_its_job_was_written_is_seen_after_it(tmp_path: Path) -> None:
    """The hand that holds the lease looks all the time, also between the making of the folder and the job in it."""
    folder = tmp_path / contract.LAUNCHES / "r.1.0"
    folder.mkdir(parents=True)
    assert tether.launches(str(tmp_path), "n1") == ([], [])
    (folder / "job.json").write_text(json.dumps({"node": "n1"}))
    contract.take(str(folder), f"launcher 1 1 {contract.boot_id()}")
    assert tether.launches(str(tmp_path), "n1") == (["r.1.0"], [])
    assert tether.launches(str(tmp_path), "n2") == ([], [])
    (folder / "outcome").touch()
    assert tether.launches(str(tmp_path), "n1") == ([], ["r.1.0"])
