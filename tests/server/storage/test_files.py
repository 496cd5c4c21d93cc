"""Streams of runs as they are kept."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shunter.server.storage.files import append


def test_the_same_bytes_that_come_at_once_from_two_sides_are_kept_once(tmp_path: Path) -> None:
    """A launcher that was only slow sends its log while the server, which had given it up, fetches it."""
    data = os.urandom(1 << 20)
    with ThreadPoolExecutor(4) as sides:
        for number in range(20):
            path = tmp_path / str(number)
            held = [one.result() for one in [sides.submit(append, path, 0, data) for _ in range(4)]]
            assert held == [len(data)] * 4
            assert path.read_bytes() == data
