"""What runs on a node runs on Python 3.8: read as such, and run on a real one where there is one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pythons import find_prefix, lend

import shunter
import shunter.node
from shunter.errors import NodeUnfit

NODE = Path(shunter.node.__file__).parent
TRAIN = """
import os, sys, shunter.run
run = shunter.run.get_context()
run.log("loss", 0.5)
run.tag("k", "v")
print(sys.version_info[:2], open(os.environ["SHUNTER_INPUT_D"]).read(), flush=True)
open("outputs/a.txt", "w").write("b")
open(os.environ["SHUNTER_CHECKPOINT_DIR"] + "/c", "w").write("d")
"""


@pytest.mark.parametrize("file", sorted(NODE.rglob("*.py")), ids=lambda file: str(file.relative_to(NODE)))
def test_the_grammar_of_what_travels_is_that_of_python_3_8(file: Path) -> None:
    ast.parse(file.read_text(), str(file), feature_version=(3, 8))


@pytest.mark.parametrize("forwarding", ["auto", "never"])
def test_a_machine_with_python_3_8_does_all_that_others_do(
    ws: shunter.Workspace, make_machine: Any, tmp_path: Path, forwarding: str
) -> None:
    prefix = find_prefix("3.8")
    if prefix is None:
        pytest.skip("no Python 3.8 here: scripts/parts/python38")
    old = make_machine(**lend(prefix))
    steps: list[dict[str, Any]] = []
    made = ws.compute.create("old", "ssh", on_step=steps.append, **old.options(forwarding=forwarding))
    assert "Python 3.8." in next(s["message"] for s in steps if s["check"] == "python")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    (tmp_path / "d.txt").write_text("data")
    run = ws.submit("train.py", source_directory=tmp_path / "src", target="old", inputs={"d": str(tmp_path / "d.txt")})
    run.wait(timeout_seconds=120)
    assert run.status == "Completed", (run.logs(), run.error)
    assert run.logs() == "(3, 8) data\n"
    assert run.metrics()["loss"] == 0.5
    assert run.refresh().data["tags"] == {"k": "v"}
    assert [f["path"] for f in run.files()] == ["outputs/a.txt"]
    assert [c["name"] for c in run.checkpoints()] == ["c"]
    ws.collect_garbage(dry_run=False, grace_seconds=0)
    made.detach()
    assert not (old.home / ".shunter-node").exists()


@pytest.mark.parametrize("version", ["3.7", "3.6"])
def test_a_machine_with_an_older_python_is_refused_by_its_version(
    ws: shunter.Workspace, make_machine: Any, version: str
) -> None:
    prefix = find_prefix(version)
    if prefix is None:
        pytest.skip(f"no Python {version} here")
    with pytest.raises(NodeUnfit, match=rf"has only Python {version}\.\d+.*; Python 3.8 or newer is needed") as found:
        ws.compute.create("older", "ssh", **make_machine(**lend(prefix)).options())
    assert "--python" in found.value.hint
