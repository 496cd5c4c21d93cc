"""The page about environments is true: its commands and its code run as they are printed, with packages that the test makes.

Changed are the names of things that only a reader has: an image, an interpreter, a folder with data.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shunter
from shunter.sdk.environment import Environment
from shunter.server.environments.curated import curated
from shunter.testing.containers import IMAGE, podman
from shunter.testing.packages import Index, make_wheel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text()
TRAIN = "import sys\nprint('trained with', sys.executable)\n"


def blocks(language: str) -> list[str]:
    """The page's blocks of a language; indented ones are the shell's."""
    if language == "sh":
        found = re.findall(r"(?m)(?:^    \S.*\n)+", re.sub(r"(?s)```.*?```", "", PAGE))
        return [re.sub(r"(?m)^    ", "", block) for block in found]
    return re.findall(rf"(?s)```{language}\n(.*?)```", PAGE)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, module_home: Path) -> Iterator[Path]:
    """A folder with all that the page takes for granted, and an index with packages of the same names."""
    wheels, folder = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("project")
    pins = [p.split("==") for p in curated()["scikit-learn"].environment.packages]
    for name, version in [*pins, ("scikit-learn", "1.5.2"), ("numpy", "2.4.0"), ("pandas", "2.9.0")]:
        make_wheel(wheels, name, version)
    (folder / "train.py").write_text(TRAIN)
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / "conda_dependencies.yml").write_text("dependencies:\n- python=3.11\n- pip\n- pip:\n  - numpy\n")
    (folder / "Dockerfile").write_text(f"FROM {IMAGE}\n")
    with pytest.MonkeyPatch.context() as patch, Index(wheels) as index:
        patch.setenv("UV_DEFAULT_INDEX", index.url)
        patch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("uv-cache")))
        patch.setenv("SHUNTER_CONTAINER_ENGINE", podman() or "podman")
        patch.chdir(folder)
        yield folder


def test_its_commands_run(project: Path, tmp_path: Path) -> None:
    shim = tmp_path / "shunter"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}/src" exec "{sys.executable}" -m shunter.cli "$@"\n')
    shim.chmod(0o755)
    first, commands = blocks("sh")
    assert first.startswith("shunter submit")
    assert commands.startswith("shunter env register")
    bash = shutil.which("bash")
    assert bash is not None
    script = "shunter compute attach vm1 --kind local\n" + first + commands
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-eux", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("trained with") == 3
    for said in ("+ scikit-learn==", "Environment train, version 1", "is ready in", "Would free 0", "train is gone"):
        assert said in done.stdout + done.stderr, said
    ws = shunter.Workspace.from_config()
    run = next(run for run in ws.runs() if run.details()["properties"].get("environment", {}).get("lock"))
    record = run.details()["properties"]["environment"]
    shown = subprocess.run([shim, "run", "show", run.id], env=env, capture_output=True, text=True, check=True).stdout
    host = record["nodes"]["0"]["host"]
    for fact in (record["lock"], record["nodes"]["0"]["interpreter"], record["nodes"]["0"]["python"], host["os"]):
        assert fact in re.sub(r"\s+", " ", shown), shown
    assert ws.environments.locked(record["lock"])["packages"]
    listed = subprocess.run(
        [shim, "env", "list", "--curated"], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert {"scikit-learn", "pytorch-gpu", "rapids", "pyspark"} <= set(listed.split())


def test_its_code_runs(project: Path) -> None:
    [code] = blocks("python")
    names: dict[str, Any] = {}
    code = code.replace("/opt/conda/envs/mine/bin/python", sys.executable)
    code = code.replace("docker.io/library/python:3.11-slim", IMAGE).replace('"…"', repr(IMAGE))
    if podman() is None:
        code = "\n".join(line for line in code.splitlines() if not re.search("from_image|from_dockerfile", line))
    before = {run.id for run in shunter.Workspace.from_config().runs()}
    exec(compile(code, "environments.md", "exec"), names)
    ws = names["ws"]
    runs = [run for run in ws.runs() if run.id not in before]
    assert len(runs) == code.count("ws.submit")
    for run in ws.wait(runs):
        assert run.status == "Completed", run.data["error"]
    assert ws.environments.get("train").packages == ("scikit-learn",)


def test_its_environment_in_our_own_words_is_one(project: Path) -> None:
    [text] = blocks("yaml")
    (project / "train.yml").write_text(text)
    found = Environment.from_file(project / "train.yml")
    assert (found.name, found.python, found.packages) == ("train", "3.11", ("scikit-learn", "pandas<3"))
    assert found.container is not None
    assert found.container.shm_bytes == 1 << 30
    assert shunter.Workspace.from_config().environments.lock(found)["packages"]["pandas"] == "2.9.0"


def test_every_code_it_explains_is_one_that_is_given() -> None:
    table = PAGE[PAGE.index("## When it goes wrong") :]
    codes = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", "\n".join(re.findall(r"(?m)^\| (`.*?) \|", table)))
    assert len(codes) > 8
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for code in codes:
        words = code.replace("_", " ").title().replace(" ", "")
        assert json.dumps(code) in source or f"class {words}(" in source, code
