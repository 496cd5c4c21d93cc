"""Files come home whole or are not seen; what was sent before a cut is not sent again."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from shunter.errors import UsageError
from shunter.node.transfer import Changing, send_file
from shunter.server.collect.arrivals import Arrivals
from shunter.server.storage.files import RunFiles

RUN = "ab" * 16
LAUNCH = RUN + ".1.0"


class Line:
    """A connection that may break; what is sent over it is counted."""

    def __init__(self, arrivals: Arrivals) -> None:
        self.arrivals = arrivals
        self.bytes = 0
        self.breaks_at: int | None = None
        self.before: Any = lambda header: None

    def post(self, frames: list[tuple[dict[str, Any], bytes]]) -> dict[str, int]:
        held = {}
        for header, data in frames:
            self.before(header)
            if self.breaks_at is not None and self.bytes >= self.breaks_at:
                raise ConnectionResetError
            held["file/" + header["file"]] = self.arrivals.put(LAUNCH, header, data)
            self.bytes += len(data)
        return held


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setattr("shunter.node.transfer.PIECE_BYTES", 1000)
    return Line(Arrivals(RunFiles(tmp_path / "runs")))


def kept(line: Line, path: str) -> Path:
    return line.arrivals.files.of(RUN) / "files" / path


def test_a_file_arrives_byte_for_byte(line: Line, tmp_path: Path) -> None:
    for size in (0, 1, 999, 1000, 1001, 12_345):
        data = random.Random(size).randbytes(size)
        (tmp_path / "x").write_bytes(data)
        assert send_file(line.post, str(tmp_path / "x"), f"outputs/{size}")
        assert kept(line, f"outputs/{size}").read_bytes() == data


def test_it_goes_on_after_a_cut(line: Line, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(10_000))
    line.breaks_at = 5000
    with pytest.raises(ConnectionResetError):
        send_file(line.post, str(tmp_path / "x"), "x")
    assert not kept(line, "x").exists()
    line.breaks_at = None
    send_file(line.post, str(tmp_path / "x"), "x")
    assert line.bytes == 10_000
    assert kept(line, "x").stat().st_size == 10_000


def test_what_is_there_is_not_sent_again(line: Line, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(5000))
    send_file(line.post, str(tmp_path / "x"), "x")
    send_file(line.post, str(tmp_path / "x"), "x")
    assert line.bytes == 5000


def test_a_new_version_of_the_same_size_replaces_the_old_one(line: Line, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 5000)
    send_file(line.post, str(tmp_path / "x"), "x")
    (tmp_path / "x").write_bytes(b"b" * 5000)
    os.utime(tmp_path / "x", ns=(1, 1))
    send_file(line.post, str(tmp_path / "x"), "x")
    assert kept(line, "x").read_bytes() == b"b" * 5000


def test_a_file_that_changes_on_the_way_is_sent_anew(line: Line, tmp_path: Path) -> None:
    source = tmp_path / "x"
    source.write_bytes(b"a" * 5000)
    times = iter(range(100))

    def change(header: dict[str, Any]) -> None:
        if header["offset"] == 2000 and next(times) < 2:
            source.write_bytes(b"b" * 5000)
            os.utime(source, ns=(7, next(times)))

    line.before = change
    send_file(line.post, str(source), "x")
    assert kept(line, "x").read_bytes() == b"b" * 5000


def test_one_that_never_stands_still_is_given_up_and_nothing_torn_is_left(line: Line, tmp_path: Path) -> None:
    source = tmp_path / "x"
    source.write_bytes(b"a" * 5000)
    times = iter(range(10_000))

    def change(header: dict[str, Any]) -> None:
        if header["offset"] == 2000:
            os.utime(source, ns=(1, next(times)))

    line.before = change
    with pytest.raises(Changing):
        send_file(line.post, str(source), "x")
    assert not kept(line, "x").exists()
    assert list((line.arrivals.files.of(RUN) / "incoming").iterdir()) == []


def test_what_was_never_finished_goes_with_its_launch_and_only_with_it(line: Line, tmp_path: Path) -> None:
    header = {"file": "x", "total": 10, "mtime_ns": 1, "offset": 0}
    for number in (0, 1, 10):
        line.arrivals.put(f"{RUN}.1.{number}", header, b"half")
    line.arrivals.forget(f"{RUN}.1.1")
    assert line.arrivals.put(f"{RUN}.1.0", header, b"") == 4
    assert line.arrivals.put(f"{RUN}.1.10", header, b"") == 4
    assert line.arrivals.put(f"{RUN}.1.1", header, b"") == 0


def test_a_file_that_is_gone_is_no_error(line: Line, tmp_path: Path) -> None:
    assert not send_file(line.post, str(tmp_path / "gone"), "x")


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a//b", "a/./b", ""])
def test_a_path_that_leads_out_is_refused(line: Line, tmp_path: Path, path: str) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(UsageError):
        send_file(line.post, str(tmp_path / "x"), path)


def test_files_of_children_go_to_them_only_if_they_are_children(line: Line, tmp_path: Path) -> None:
    child = "cd" * 16
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(UsageError):
        send_file(line.post, str(tmp_path / "x"), f".children/{child}/a.txt")
    line.arrivals.family = lambda run_id: frozenset([child])
    send_file(line.post, str(tmp_path / "x"), f".children/{child}/a.txt")
    assert (line.arrivals.files.of(child) / "files/a.txt").read_bytes() == b"x"
