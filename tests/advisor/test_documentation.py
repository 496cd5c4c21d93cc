"""The page about advice starts with something that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "advice.md"


def test_the_first_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), {})
    assert "D" in capsys.readouterr().out
