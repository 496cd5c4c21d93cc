"""Several processes of one run in a container: what starts them runs inside, and nothing is needed in the image for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import shunter
from shunter.testing.containers import IMAGE, podman

WHO = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], os.path.exists("/work-of-the-host"), flush=True)
if os.environ["RANK"] == sys.argv[1]:
    sys.exit("out of butter")
"""


@pytest.mark.parametrize(("bad", "status"), [("none", "Completed"), ("1", "Failed")])
def test_two_ranks_in_one_container(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str, status: str
) -> None:
    engine = podman()
    if engine is None:
        pytest.skip("podman is not set up: scripts/parts/podman does it")
    monkeypatch.setenv("SHUNTER_CONTAINER_ENGINE", engine)
    (tmp_path / "train.py").write_text(WHO)
    ws = shunter.Workspace.from_config()
    run = ws.submit(
        "train.py", source_directory=tmp_path, arguments=[bad], processes_per_node=2,
        environment=shunter.Environment.from_image(IMAGE),
    )  # fmt: skip
    run.wait(timeout_seconds=120)
    assert run.data["status"] == status, run.logs()
    assert [f"[rank {r}] rank {r} of 2 False" in run.logs() for r in (0, 1)] == [True, True]
    assert {f["path"] for f in run.files()} == {"logs/rank_0.txt", "logs/rank_1.txt"}
    if status == "Failed":
        assert "Rank 1 ended with exit code 1: out of butter" in run.data["reason"]
