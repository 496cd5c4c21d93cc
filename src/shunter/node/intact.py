"""Is a file plainly cut off or damaged? Known by its format; a format that is not known is taken as it is."""

from __future__ import annotations

import json
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO, Callable, List, Tuple

MOST_JSON = 64 << 20


def problem(path):
    # type: (str) -> str
    """Why the file at `path` cannot be whole; empty when nothing speaks against it."""
    size = os.stat(path).st_size
    if size == 0:
        return ""  # some frameworks write markers
    with open(path, "rb") as file:
        head = file.read(16)
        if path.endswith(".safetensors"):
            return _safetensors(file, head, size)
        if path.endswith(".json"):
            return _json(file, size)
        for magic, check in _BY_MAGIC:
            if head.startswith(magic):
                return check(file, head, size)
    return ""


def is_known(path):
    # type: (str) -> bool
    """Can `problem` tell whether this file is whole?"""
    with open(path, "rb") as file:
        head = file.read(16)
    return path.endswith((".safetensors", ".json")) or any(head.startswith(magic) for magic, _ in _BY_MAGIC)


def _zip(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    """torch.save, .npz, .keras and others: the directory stands at the end."""
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return "the archive has no end"
    return ""


def _pickle(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    if head[1] > 5:
        return ""  # something else that begins with this byte
    file.seek(size - 1)
    return "" if file.read(1) == b"." else "the pickle has no end"


def _npy(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    wide = head[6] >= 2
    (length,) = struct.unpack("<I" if wide else "<H", head[8:12] if wide else head[8:10])
    begin = (12 if wide else 10) + length
    file.seek(begin - length)
    header = file.read(length).decode("latin-1")
    try:
        import ast

        about = ast.literal_eval(header.strip())
        count = 1
        for side in about["shape"]:
            count *= side
        each = int(str(about["descr"])[2:])
    except (ValueError, SyntaxError, KeyError, TypeError):
        return ""
    if str(about["descr"])[1] == "U":
        each *= 4
    return "" if size >= begin + count * each else "the array is shorter than its header says"


def _gzip(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    import gzip
    import zlib

    file.seek(0)
    try:
        with gzip.open(file) as opened:
            while opened.read(1 << 20):
                pass
    except (EOFError, OSError, zlib.error):
        return "the compressed data is cut off"
    return ""


def _hdf5(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    """The superblock says where the file ends (versions 0 to 3, addresses of eight bytes)."""
    file.seek(0)
    block = file.read(96)
    version = block[8]
    if version in (0, 1) and block[13] == 8:
        at = 40 if version == 0 else 44
    elif version in (2, 3) and block[9] == 8:
        at = 28
    else:
        return ""
    (end,) = struct.unpack("<Q", block[at : at + 8])
    return "" if end <= size else "the file ends before its last address"


def _safetensors(file, head, size):
    # type: (BinaryIO, bytes, int) -> str
    if size < 8:
        return "it has no header"
    (length,) = struct.unpack("<Q", head[:8])
    if 8 + length > size:
        return "its header is cut off"
    file.seek(8)
    try:
        about = json.loads(file.read(length).decode())
        ends = [v["data_offsets"][1] for k, v in about.items() if k != "__metadata__"]
    except (ValueError, KeyError, TypeError):
        return "its header cannot be read"
    return "" if size >= 8 + length + max(ends or [0]) else "a tensor is cut off"


def _json(file, size):
    # type: (BinaryIO, int) -> str
    if size > MOST_JSON:
        return ""
    file.seek(0)
    try:
        json.loads(file.read().decode("utf-8"))
    except ValueError as error:
        # Several values in a row are no JSON file, and still a whole one.
        return "" if "Extra data" in str(error) else "it is not whole JSON"
    return ""


_BY_MAGIC = [
    (b"PK\x03\x04", _zip),
    (b"\x93NUMPY", _npy),
    (b"\x1f\x8b", _gzip),
    (b"\x89HDF\r\n\x1a\n", _hdf5),
    (b"\x80", _pickle),
]  # type: List[Tuple[bytes, Callable[[BinaryIO, bytes, int], str]]]
