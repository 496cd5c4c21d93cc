"""Which files are whole, and which states of a checkpoint are told apart."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from shunter.node import intact
from shunter.node.checkpoints import stamps


def archive() -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("data.pkl", b"weights" * 100)
    return held.getvalue()


def array() -> bytes:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (10, 2), }".ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(160)


def tensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(16)


WHOLE = {
    "model.pt": archive(),
    "a.npy": array(),
    "m.safetensors": tensors(),
    "s.pkl": pickle.dumps({"epoch": 3}),
    "s.json": b'{"epoch": 3}',
    "x.gz": gzip.compress(b"weights" * 1000),
    "other.bin": b"\x00\x01 whatever",
    "lines.json": b'{"a": 1}\n{"a": 2}\n',
}
KNOWN = [name for name in WHOLE if name not in ("other.bin", "lines.json")]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_is_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WHOLE[name])
    assert intact.problem(str(tmp_path / name)) == ""


@pytest.mark.parametrize("name", KNOWN)
def test_a_truncated_file_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(WHOLE[name][:-5])
    assert intact.problem(str(tmp_path / name))
    assert intact.is_known(str(tmp_path / name))


def test_each_file_and_folder_at_the_top_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-5").mkdir()
    (tmp_path / "step-5/model.bin").write_text("m")
    (tmp_path / "step-5/optimizer.bin").write_text("o")
    (tmp_path / "last.pt").write_text("x")
    (tmp_path / "half.tmp").write_text("y")
    (tmp_path / "link").symlink_to("last.pt")
    found = stamps(str(tmp_path))
    assert {name: [entry[0] for entry in stamp] for name, stamp in found.items()} == {
        "step-5": ["step-5/model.bin", "step-5/optimizer.bin"], "last.pt": ["last.pt"]
    }  # fmt: skip
    (tmp_path / "last.pt").write_text("xx")
    assert stamps(str(tmp_path))["last.pt"] != found["last.pt"]
