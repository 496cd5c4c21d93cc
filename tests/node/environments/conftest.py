from __future__ import annotations

from pathlib import Path

import pytest

from shunter.testing.environments import Node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose installer has a cache of its own."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return Node(tmp_path / "node")
