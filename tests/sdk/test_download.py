"""A download that was cut off goes on, and never leaves a torn file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import ServerUnreachable
from shunter.sdk.download import fetch


class Site:
    """A server whose connection breaks after some bytes."""

    def __init__(self, content: bytes, breaks: list[int]) -> None:
        self.content = content
        self.breaks = breaks
        self.sent = 0

    def stream(self, path: str, query: dict[str, Any] | None = None, size: int = 1 << 20) -> Iterator[bytes]:
        left = self.content[(query or {}).get("offset", 0) :]
        most = self.breaks.pop(0) if self.breaks else len(left)
        for at in range(0, min(most, len(left)), 100):
            piece = left[at : min(at + 100, most)]
            self.sent += len(piece)
            yield piece
        if most < len(left):
            raise ServerUnreachable("cut")


def get(site: Site, target: Path) -> list[int]:
    told: list[int] = []
    fetch(site, "/x", target, len(site.content), "v1", told.append)  # type: ignore[arg-type]
    return told


def test_it_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    site = Site(bytes(range(256)) * 20, breaks=[1000, 2000])
    told = get(site, tmp_path / "deep/model.bin")
    assert (tmp_path / "deep/model.bin").read_bytes() == site.content
    assert site.sent == len(site.content)
    assert told == sorted(told)


def test_what_an_earlier_call_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    site = Site(b"x" * 5000, breaks=[500] * 5)
    with pytest.raises(ServerUnreachable):
        get(site, tmp_path / "m")
    assert not (tmp_path / "m").exists()
    get(site, tmp_path / "m")
    assert site.sent == 5000
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    get(Site(b"", []), tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""
