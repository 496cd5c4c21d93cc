"""`shunter.run` as a script sees it: lines on the node, no server needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shunter.node
from shunter.run import OfflineRun, Run, RunEnvironmentError, RunUsageError, get_context

CLIENT = Path(shunter.node.__file__).parent / "client"
#: Interpreters that are on this machine; a shim of pyenv is none.
PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
OTHERS = [str(p) for v in ("3.8", "3.9", "3.12", "3.13") for p in sorted(PYENV.glob(f"{v}.*/bin/python"))[:1]]


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setenv("SHUNTER_SPOOL", str(folder))
    monkeypatch.setenv("SHUNTER_RUN_ID", "ab" * 16)
    return folder


@pytest.fixture
def run(spool: Path) -> Run:
    found = get_context()
    assert isinstance(found, Run)
    return found


def lines(spool: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (spool / "metrics").read_text().splitlines()]


class Scalar:
    """As numpy's and torch's scalars are."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def item(self) -> Any:
        return self.value


class Tensor(Scalar):
    def item(self) -> Any:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


class Float64(float):
    """As numpy.float64 is."""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0.5, 0.5), (3, 3), (True, True), (None, None), ("good", "good"), (b"bytes", "bytes"), (Scalar(2.5), 2.5),
        (Float64(1.5), 1.5), (Scalar(Scalar(7)), 7), (Decimal("0.25"), 0.25), (Fraction(1, 4), 0.25),
        (10**30, 10**30), (float("inf"), float("inf")),
    ],
)  # fmt: skip
def test_a_scalar_is_kept_as_a_plain_value(run: Run, spool: Path, given: Any, kept: Any) -> None:
    run.log("x", given)
    assert lines(spool)[-1]["v"] == kept
    assert type(lines(spool)[-1]["v"]) is type(kept)


def test_scalars_of_numpy_are_kept_as_plain_values(run: Run, spool: Path) -> None:
    numpy = pytest.importorskip("numpy")
    given = [
        numpy.float32(0.5), numpy.float64(0.5), numpy.float16(0.5), numpy.int64(3), numpy.uint8(3), numpy.bool_(True),
        numpy.array(0.5), numpy.array([0.5]), numpy.float32("inf"), numpy.float64("nan"),
    ]  # fmt: skip
    for value in given:
        run.log("x", value)
    run.log_list("l", numpy.arange(3))
    run.log_row("r", x=numpy.float32(0.25))
    *found, nan, several, row = [line["v"] for line in lines(spool)]
    assert found == [0.5, 0.5, 0.5, 3, 3, True, 0.5, 0.5, float("inf")]
    assert nan != nan  # noqa: PLR0124
    assert (several, row) == ([0, 1, 2], {"x": 0.25})


def test_scalars_of_torch_are_kept_as_plain_values(run: Run, spool: Path) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.tensor([0.25], requires_grad=True)
    for value in (torch.tensor(0.5), (weight * 2).sum(), torch.tensor(3), torch.tensor(0.5, dtype=torch.bfloat16)):
        run.log("x", value)
    run.log("x", torch.tensor(float("nan")))
    *found, nan = [line["v"] for line in lines(spool)]
    assert found == [0.5, 0.5, 3, 0.5]
    assert nan != nan  # noqa: PLR0124


def test_nan_is_kept_as_nan(run: Run, spool: Path) -> None:
    run.log("x", float("nan"))
    value = lines(spool)[-1]["v"]
    assert value != value  # noqa: PLR0124


@pytest.mark.parametrize("given", [[1, 2], range(3), (i for i in "ab"), {"a": 1}, Tensor(0)])
def test_log_refuses_several_values_and_names_log_list(run: Run, given: Any) -> None:
    with pytest.raises(RunUsageError, match="log_list"):
        run.log("x", given)


def test_steps_and_kinds_are_in_the_lines(run: Run, spool: Path) -> None:
    run.log("loss", 1.0, step=7)
    run.log_list("l", (i * i for i in range(3)))
    run.log_row("r", x=1, y=Scalar(2))
    run.log_table("t", {"a": [1, 2], "b": 3})
    found = lines(spool)
    assert found[0]["s"] == 7
    assert [(f["k"], f["v"]) for f in found[1:]] == [
        ("list", [0, 1, 4]), ("row", {"x": 1, "y": 2}), ("table", {"a": [1, 2], "b": [3]})
    ]  # fmt: skip


def test_a_huge_name_is_cut_and_still_its_own(run: Run, spool: Path) -> None:
    run.log("n" * 100_000 + "a", 1)
    run.log("n" * 100_000 + "b", 1)
    names = [line["n"] for line in lines(spool)]
    assert len(set(names)) == 2
    assert all(len(name) == 255 for name in names)


def test_odd_names_are_one_line_each(run: Run, spool: Path) -> None:
    for name in ('quo"te', "new\nline", "nul\0", "\ud800", "", 5):
        run.log(name, 1)  # type: ignore[arg-type]
    assert len(lines(spool)) == 6


def test_properties_are_written_once(run: Run) -> None:
    run.add_properties({"commit": "abc"})
    with pytest.raises(RunUsageError, match="commit"):
        run.add_properties({"commit": "def"})


def test_a_child_is_usable_at_once_and_its_lines_name_it(run: Run, spool: Path) -> None:
    child = run.child_run("fold 1")
    child.log("acc", 0.9)
    child.complete()
    first, second, third = lines(spool)
    assert first["k"] == "child"
    assert first["v"]["parent"] == run.id
    assert second["r"] == third["r"] == first["r"] == child.id


def test_children_can_be_made_by_tag(run: Run) -> None:
    made = run.create_children(tag_key="seed", tag_values=[1, 2])
    assert [child.tags for child in made] == [{"seed": "1"}, {"seed": "2"}]
    assert len(run.create_children(count=3)) == 3
    with pytest.raises(RunUsageError):
        run.create_children()


def test_a_context_manager_completes_or_fails(run: Run, spool: Path) -> None:
    with run.child_run():
        pass
    with pytest.raises(ValueError, match="bad"), run.child_run():
        raise ValueError("bad")
    kinds = [line["k"] for line in lines(spool)]
    assert kinds == ["child", "complete", "child", "fail"]
    assert lines(spool)[-1]["v"] == {"code": "ValueError", "message": "bad"}


def test_an_uploaded_file_is_a_copy_of_that_moment(run: Run, spool: Path, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("first")
    run.upload_file("./models/model.bin", str(tmp_path / "model.bin"))
    (tmp_path / "model.bin").write_text("later")
    assert (spool / "uploads/models/model.bin").read_text() == "first"
    assert not any((spool / "uploads.part").iterdir())


@pytest.mark.parametrize("name", ["../x", "/", "a/../../b", ""])
def test_an_upload_cannot_leave_its_folder(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(RunUsageError):
        run.upload_file(name, str(tmp_path / "x"))


def test_a_folder_is_uploaded_by_its_paths(run: Run, spool: Path, tmp_path: Path) -> None:
    (tmp_path / "plots/deep").mkdir(parents=True)
    (tmp_path / "plots/a.txt").write_text("a")
    (tmp_path / "plots/deep/b.txt").write_text("b")
    run.upload_folder("kept", str(tmp_path / "plots"))
    assert sorted(p.relative_to(spool / "uploads").as_posix() for p in (spool / "uploads").rglob("*.txt")) == [
        "kept/a.txt", "kept/deep/b.txt"
    ]  # fmt: skip


class Figure:
    """As matplotlib's figures are."""

    def savefig(self, target: Any, **_: Any) -> None:
        target.write(b"\x89PNG picture")


def test_a_figure_is_kept_as_an_image(run: Run, spool: Path) -> None:
    run.log_image("conf/usion", plot=Figure())
    kept = lines(spool)[-1]
    assert kept["k"] == "image"
    assert (spool / "uploads" / kept["v"]).read_bytes() == b"\x89PNG picture"
    with pytest.raises(RunUsageError):
        run.log_image("both", path="x.png", plot=Figure())


def test_a_full_disk_loses_nothing_that_fits_into_memory(
    run: Run, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.log("x", 1)
    real, full = os.write, True

    def write(fd: int, data: bytes) -> int:
        if full:
            if len(data) > 5:  # the last bytes of a nearly full disk
                return real(fd, data[:5])
            raise OSError(28, "No space left on device")
        return real(fd, data)

    class Full:
        """The log lies on the same disk."""

        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(sys, "stderr", Full())
    run.log("x", 2)
    run.log("x", 3)
    full = False
    run.log("x", 4)
    monkeypatch.undo()
    found = []
    for line in (spool / "metrics").read_text().splitlines():
        try:
            found.append(json.loads(line)["v"])
        except ValueError:
            continue  # what was cut off
    assert found == [1, 2, 3, 4]


def test_processes_log_at_once_and_no_line_is_torn(run: Run, spool: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from shunter.run import Run; r = Run.get_context()\n"
    code += "for i in range(2000): r.log('rank', int(sys.argv[2]), step=i)\nimport os; os._exit(0)"
    several = [subprocess.Popen([sys.executable, "-c", code, str(CLIENT), str(rank)]) for rank in range(3)]
    assert [p.wait(60) for p in several] == [0, 0, 0]
    found = lines(spool)
    assert len(found) == 6000
    for rank in range(3):
        assert [f["s"] for f in found if f["v"] == rank] == list(range(2000))


def test_outside_a_run_it_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SHUNTER_SPOOL", raising=False)
    monkeypatch.delenv("SHUNTER_RUN_ID", raising=False)
    found = Run.get_context()
    assert isinstance(found, OfflineRun)
    assert found.id.startswith("OfflineRun")
    with found as run:
        run.log("loss", 0.5)
        run.child_run().log_row("r", x=1)
    assert capsys.readouterr().out.startswith("Attempted to log scalar metric loss:\n0.5\n")
    assert not hasattr(found, "get_metrics")
    with pytest.raises(RunEnvironmentError):
        Run.get_context(allow_offline=False)


@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_the_tree_works_in_any_python_without_anything_installed(python: str, spool: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from azureml.core import Run\n"
        "from azureml.core.run import _OfflineRun\n"
        "import shunter.run\n"
        "run = Run.get_context()\n"
        "assert type(run) is shunter.run.Run and type(run) != _OfflineRun\n"
        "run.log('x', 1)\n"
        "heavy = {'http.client', 'asyncio', 'typing', 'uuid', 'shutil', 'subprocess'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
    )
    env = {"PYTHONPATH": str(CLIENT), "SHUNTER_SPOOL": str(spool), "SHUNTER_RUN_ID": "ab" * 16, "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, "-s", "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert lines(spool)[-1]["v"] == 1


def test_an_installed_shunter_is_not_hidden(spool: Path, tmp_path: Path) -> None:
    source = str(Path(shunter.__file__).parent.parent)
    code = "import shunter, shunter.run; print(shunter.Workspace.__module__, shunter.__version__, shunter.run.__file__)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CLIENT), source])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[:2] == ["shunter.sdk.workspace", shunter.__version__]
    assert done.stdout.split()[2].startswith(str(CLIENT))
