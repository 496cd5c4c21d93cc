"""The documentation is true: generated pages are up to date, links lead somewhere, the README works as it stands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_reference_is_what_the_code_says() -> None:
    from shunter.drivers.registry import DRIVERS, driver_class
    from shunter.errors import ExtraMissing

    try:
        for kind in DRIVERS:
            driver_class(kind)
    except ExtraMissing as error:
        pytest.skip(f"the reference is made with every extra installed: {error}")
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    words = [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if {"docs", "inside"} & set(p.parts) == {"docs"}],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_starts_with_something_that_works(page: Path) -> None:
    text = re.sub(r"<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    first = [block for block in text.split("\n\n") if block.strip() and not block.lstrip().startswith("#")][0:2]
    if page.name == "README.md" and page.parent.name == "how-to":
        return
    assert any(block.startswith(("    ", "```")) for block in first), first


def test_the_first_five_minutes_of_the_readme_work_verbatim(home: Path, tmp_path: Path) -> None:
    """All but the installing, for which this installation stands in."""
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    lines = block[1].split("\n\n", 1)
    assert "pip install" in lines[0]
    commands = tmp_path / "bin"
    commands.mkdir()
    shim = commands / "shunter"
    shim.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}/src" exec "{sys.executable}" -m shunter.cli "$@"\n')
    shim.chmod(0o755)
    env = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    bash = shutil.which("bash")
    assert bash is not None
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([bash, "-eu", "-c", lines[1]], cwd=work, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "epoch 9 slope 3.0" in done.stdout
    assert "slope version 1 is registered" in done.stdout
    assert "f(5) = 1" in done.stdout
    assert "slope" in (work / "here" / "outputs" / "model.json").read_text()
    python = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert python is not None
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", python[1]], cwd=work, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Completed" in done.stdout
    assert "Model('slope', version 2)" in done.stdout
