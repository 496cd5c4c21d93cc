"""Packs: what goes in comes out, in chunks of any size, and nothing else does."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import BlobCorrupt
from shunter.packs import BLOCK_BYTES, MAX_FRAME_BYTES, TABLE_BLOBS, Blob, Piece, Table, read_pack, write_pack

contents = st.one_of(st.binary(max_size=200), st.integers(0, 3000).map(lambda size: b"abc" * size))


@settings(deadline=None)
@given(st.lists(contents, max_size=6), st.booleans(), st.integers(1, 5000))
def test_what_goes_in_comes_out_whatever_the_chunks(blobs: list[bytes], compress: bool, step: int) -> None:
    whole = pack_of(blobs, compress=compress)
    chunks = [whole[at : at + step] for at in range(0, len(whole), step)]
    assert unpack(chunks) == blobs
    assert unpack([b"", whole, b""]) == blobs


@settings(deadline=None)
@given(st.lists(contents, min_size=1, max_size=3), st.booleans(), st.data())
def test_a_pack_that_was_cut_changed_or_continued_is_refused(
    blobs: list[bytes], compress: bool, data: st.DataObject
) -> None:
    whole = pack_of(blobs, compress=compress)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    for broken in (whole[:at], bytes(damaged), whole + b"\0", whole + whole):
        # A changed byte inside a compressed frame may leave its meaning alone; all else is refused.
        try:
            got = unpack([broken])
        except BlobCorrupt:
            continue
        assert (got, compress, len(broken)) == (blobs, True, len(whole))


def test_a_pack_cut_between_two_blobs_is_refused() -> None:
    blobs = [os.urandom(10) for _ in range(TABLE_BLOBS + 1)]
    whole = pack_of(blobs, compress=False)
    second_table = whole.index(bytes.fromhex(blake3(blobs[-1]).hexdigest())) - 9
    with pytest.raises(BlobCorrupt, match="too early"):
        unpack([whole[:second_table]])
    assert unpack([whole]) == blobs


def test_every_blob_has_exactly_one_last_piece_and_its_table_before() -> None:
    blobs = [b"", b"one", b"", os.urandom(3 * BLOCK_BYTES + 5), b""]
    whole = pack_of(blobs, compress=True)
    known: list[Blob] = []
    finished: list[Blob] = []
    for part in read_pack(whole[at : at + 70_000] for at in range(0, len(whole), 70_000)):
        if isinstance(part, Table):
            known += part.blobs
        else:
            assert part.blob in known
            finished += [part.blob] * part.last
    assert finished == known == [blob_of(data) for data in blobs]


def test_text_shrinks_and_noise_travels_as_it_is() -> None:
    noise = os.urandom(300_000)
    text = b"import shunter\n" * 20_000
    assert len(pack_of([text])) < len(text) / 20
    assert 0 < len(pack_of([noise])) - len(noise) < 200
    assert 0 < len(pack_of([text], compress=False)) - len(text) < 200
    many = [f"def step_{number}(batch): return batch".encode() for number in range(1000)]
    assert len(pack_of(many)) < 1000 * 40 + sum(map(len, many)) / 4


def test_memory_stays_flat_on_both_sides() -> None:
    block = os.urandom(BLOCK_BYTES)
    size = 64 * BLOCK_BYTES
    hasher = blake3()
    for _ in range(64):
        hasher.update(block)
    blob = Blob(hasher.hexdigest(), size)
    tracemalloc.start()
    try:
        got = sum(
            len(part.data) for part in read_pack(write_pack([blob], lambda _: repeat(block, 64))) if type(part) is Piece
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert got == size
    assert peak < 10 * BLOCK_BYTES


def test_a_source_that_gives_too_little_or_too_much_is_an_error() -> None:
    for pieces in ([b"ab"], [b"abc", b"d"], []):
        with pytest.raises(BlobCorrupt, match="should have 3 bytes"):
            list(write_pack([blob_of(b"abc")], lambda _, given=pieces: given))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([(b"X", b"")], "unknown kind"),
        ([(b"R", b"abc")], "more bytes than its table"),
        ([(b"T", b"abc")], "a table of 3 bytes"),
        ([(b"T", b"\0" * 40 * (TABLE_BLOBS + 1))], "a table of"),
        ([(b"T", blake3(b"abc").digest() + struct.pack(">Q", 3)), (b"E", struct.pack(">QQ", 1, 3))], "unfinished"),
        ([(b"T", blake3(b"abc").digest() + struct.pack(">Q", 3)), (b"R", b"abd")], "arrived with the digest"),
        ([(b"T", blake3(b"abc").digest() + struct.pack(">Q", 0))], "arrived with the digest"),
        ([(b"E", struct.pack(">QQ", 1, 0))], "wrong count"),
    ],
)
def test_a_pack_that_makes_no_sense_is_refused_in_words(frames: list[tuple[bytes, bytes]], why: str) -> None:
    body = b"".join(struct.pack(">cII", kind, len(data), len(data)) + data for kind, data in frames)
    with pytest.raises(BlobCorrupt, match=why):
        unpack([b"shunter pack 1\n" + body])


def test_a_frame_that_claims_too_much_is_not_believed() -> None:
    start = b"shunter pack 1\n"
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (64 << 20))
    for head, payload in [
        (struct.pack(">cII", b"R", MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES + 1), b""),
        (struct.pack(">cII", b"Z", len(bomb), 64 << 20), bomb),
        (struct.pack(">cII", b"Z", len(bomb), 1000), bomb),
        (struct.pack(">cII", b"Z", 4, 1000), b"abcd"),
        (struct.pack(">cII", b"R", 4, 5), b"abcd"),
    ]:
        with pytest.raises(BlobCorrupt):
            unpack([start + head + payload])
    with pytest.raises(BlobCorrupt, match="version 1"):
        unpack([b"PK\x03\x04 something else entirely"])


def pack_of(blobs: Iterable[bytes], *, compress: bool = True) -> bytes:
    by_digest = {blake3(data).hexdigest(): data for data in blobs}

    def pieces(blob: Blob) -> Iterator[bytes]:
        data = by_digest[blob.digest]
        return (data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))

    return b"".join(write_pack([blob_of(data) for data in blobs], pieces, compress=compress))


def blob_of(data: bytes) -> Blob:
    return Blob(blake3(data).hexdigest(), len(data))


def unpack(chunks: Iterable[bytes]) -> list[bytes]:
    found: list[bytes] = []
    current = b""
    for part in read_pack(chunks):
        if isinstance(part, Piece):
            current += part.data
            if part.last:
                found.append(current)
                current = b""
    return found


def repeat(block: bytes, times: int) -> Iterator[bytes]:
    for _ in range(times):
        yield block
