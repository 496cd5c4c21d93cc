"""Packs: many blobs in one stream, as they travel between client, server and node.

A pack is the line `shunter pack 1` and then frames, each with a head of nine bytes: kind, stored length and real length
(big endian). A `T` frame is a table of up to 1024 blobs, 32 bytes of digest and 8 of size each; the `R` (raw) and `Z`
(zstd) frames after it hold the contents of these blobs, one after the other, cut anywhere. An `E` frame with the number
of blobs and of bytes ends the pack. The table comes first so that a receiver knows what it need not keep; small files
share a frame so that they compress well and cost no call each; frames are small so that memory stays flat.

>>> from blake3 import blake3
>>> text = b"print('hello')"
>>> stream = write_pack([Blob(blake3(text).hexdigest(), len(text))], lambda blob: [text])
>>> [bytes(part.data) for part in read_pack(stream) if isinstance(part, Piece)]
[b"print('hello')"]
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from blake3 import blake3

from shunter.errors import BlobCorrupt

BLOCK_BYTES = 1 << 20  # about so much goes into one frame; sources give pieces of at most this
MAX_FRAME_BYTES = 4 << 20  # a reader accepts no larger frame
TABLE_BLOBS = 1024


class Blob(NamedTuple):
    """A content by its BLAKE3 digest (64 hex digits) and its size."""

    digest: str
    size: int


class Table(NamedTuple):
    """The blobs whose pieces come next, in this order."""

    blobs: Sequence[Blob]


class Piece(NamedTuple):
    """The next bytes of a blob, valid until the next piece is asked for. With `last` the blob is whole and verified."""

    blob: Blob
    data: memoryview
    last: bool


def write_pack(
    blobs: Iterable[Blob], contents: Callable[[Blob], Iterable[bytes]], *, compress: bool = True
) -> Iterator[bytes]:
    """The pack of these blobs, in chunks of about a megabyte.

    `contents` gives the bytes of one blob in pieces and answers for their being right: only their number is checked
    here. With `compress` each frame is compressed if that pays; leave it off where the network is faster than zstd.
    """
    seal = _Sealer() if compress else _raw
    yield _MAGIC
    count = total = 0
    todo = iter(blobs)
    while table := list(islice(todo, TABLE_BLOBS)):
        yield _frame(b"T", b"".join([_ENTRY.pack(bytes.fromhex(digest), size) for digest, size in table]))
        parts: list[bytes] = []
        held = 0
        for blob in table:
            seen = 0
            for piece in contents(blob):
                if len(piece) > BLOCK_BYTES:
                    raise ValueError(f"a piece of {len(piece)} bytes: at most {BLOCK_BYTES} go into one")
                seen += len(piece)
                parts.append(piece)
                held += len(piece)
                if held >= BLOCK_BYTES:
                    yield seal(parts)
                    parts, held = [], 0
            if seen != blob.size:
                raise BlobCorrupt(f"blob {blob.digest[:12]} should have {blob.size} bytes, its source gave {seen}")
            total += seen
        if parts:
            yield seal(parts)
        count += len(table)
    yield _frame(b"E", _TOTALS.pack(count, total))


def read_pack(chunks: Iterable[bytes]) -> Iterator[Table | Piece]:
    """The tables and pieces of a pack that arrives in chunks of any size.

    Every blob has at least one piece and exactly one with `last`, which is given only after the digest was verified.
    Anything but a whole, exact pack raises BlobCorrupt. Memory is one chunk and one frame.
    """
    stream = _Incoming(chunks)
    if stream.take(len(_MAGIC)) != _MAGIC:
        raise BlobCorrupt("this stream is no pack of version 1", hint="Is the sender newer than the receiver?")
    blobs = _Blobs()
    count = total = 0
    while True:
        kind, stored, real = _HEAD.unpack(stream.take(_HEAD.size))
        if max(stored, real) > MAX_FRAME_BYTES or (kind != b"Z" and stored != real):
            raise BlobCorrupt(f"the pack has a frame of {stored} bytes for {real}", hint=_AGAIN)
        if kind == b"R":
            for view in stream.views(stored):
                yield from blobs.feed(view)
        elif kind == b"Z":
            yield from blobs.feed(memoryview(_unzip(stream.take(stored), real)))
        elif blobs.waiting:
            raise BlobCorrupt(f"the pack leaves blob {blobs.waiting.digest[:12]} unfinished", hint=_AGAIN)
        elif kind == b"T":
            table = _read_table(stream.take(stored))
            count += len(table)
            total += sum(blob.size for blob in table)
            yield Table(table)
            yield from blobs.start(table)
        elif kind == b"E":
            if stream.take(stored) != _TOTALS.pack(count, total) or stream.more():
                raise BlobCorrupt("the pack goes on after its end, or ends with a wrong count", hint=_AGAIN)
            return
        else:
            raise BlobCorrupt(f"the pack has a frame of unknown kind {kind!r}", hint=_AGAIN)


_MAGIC = b"shunter pack 1\n"
_HEAD = struct.Struct(">cII")
_ENTRY = struct.Struct(">32sQ")
_TOTALS = struct.Struct(">QQ")
_AGAIN = "It was damaged or cut off on the way; send it again."
_SAMPLE_BYTES = 4096
_WORTH = 0.9  # a frame that shrinks by less than a tenth travels as it is


def _frame(kind: bytes, payload: bytes) -> bytes:
    return _HEAD.pack(kind, len(payload), len(payload)) + payload


def _raw(parts: list[bytes]) -> bytes:
    size = sum(map(len, parts))
    return b"".join([_HEAD.pack(b"R", size, size), *parts])


class _Sealer:
    """Makes a frame of parts: compressed if a sample of it, and then the whole, shrinks."""

    def __init__(self) -> None:
        import zstandard  # here, for a client on loopback does not need it

        self._zstd = zstandard.ZstdCompressor(level=3, write_content_size=True)

    def __call__(self, parts: list[bytes]) -> bytes:
        data = b"".join(parts)
        if len(data) > 4 * _SAMPLE_BYTES:
            middle, end = len(data) // 2, len(data) - _SAMPLE_BYTES
            sample = data[:_SAMPLE_BYTES] + data[middle : middle + _SAMPLE_BYTES] + data[end:]
            if len(self._zstd.compress(sample)) > _WORTH * len(sample):
                return _frame(b"R", data)
        packed = self._zstd.compress(data)
        if len(packed) > _WORTH * len(data):
            return _frame(b"R", data)
        return _HEAD.pack(b"Z", len(packed), len(data)) + packed


class _Incoming:
    """Chunks of any size, taken in the sizes that the reader needs."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._view = memoryview(b"")

    def take(self, size: int) -> bytes:
        if size <= len(self._view):
            taken, self._view = self._view[:size], self._view[size:]
            return bytes(taken)
        return b"".join(self.views(size))

    def views(self, size: int) -> Iterator[memoryview]:
        """Exactly `size` bytes as views of the chunks, nothing copied."""
        while size:
            if not self.more():
                raise BlobCorrupt("the pack ends too early", hint=_AGAIN)
            taken, self._view = self._view[:size], self._view[size:]
            size -= len(taken)
            yield taken

    def more(self) -> bool:
        while not self._view:
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._view = memoryview(chunk)
        return True


class _Blobs:
    """Cuts the bytes of the data frames into the blobs of the table and verifies each."""

    def __init__(self) -> None:
        self._todo: Iterator[Blob] = iter(())
        self.waiting: Blob | None = None
        self._left = 0
        self._hash = blake3()

    def start(self, table: Sequence[Blob]) -> Iterator[Piece]:
        self._todo = iter(table)
        yield from self._next()

    def feed(self, view: memoryview) -> Iterator[Piece]:
        while view:
            blob = self.waiting
            if blob is None:
                raise BlobCorrupt("the pack holds more bytes than its table says", hint=_AGAIN)
            data, view = view[: self._left], view[self._left :]
            self._hash.update(data)
            self._left -= len(data)
            if self._left:
                yield Piece(blob, data, False)
            else:
                self._verify(blob)
                yield Piece(blob, data, True)
                yield from self._next()

    def _next(self) -> Iterator[Piece]:
        """Go to the next blob; empty ones come and go here."""
        for blob in self._todo:
            self._hash = blake3()
            self._left = blob.size
            if blob.size:
                self.waiting = blob
                return
            self._verify(blob)
            yield Piece(blob, memoryview(b""), True)
        self.waiting = None

    def _verify(self, blob: Blob) -> None:
        found = self._hash.hexdigest()
        if found != blob.digest:
            raise BlobCorrupt(f"blob {blob.digest[:12]} arrived with the digest {found[:12]}", hint=_AGAIN)


def _read_table(payload: bytes) -> list[Blob]:
    if len(payload) % _ENTRY.size or len(payload) > _ENTRY.size * TABLE_BLOBS:
        raise BlobCorrupt(f"the pack has a table of {len(payload)} bytes", hint=_AGAIN)
    return [Blob(digest.hex(), size) for digest, size in _ENTRY.iter_unpack(payload)]


def _unzip(payload: bytes, real: int) -> bytes:
    import zstandard

    # The size is asked first: a decompressor allocates what the payload claims.
    try:
        if zstandard.frame_content_size(payload) == real:
            return zstandard.ZstdDecompressor().decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BlobCorrupt(f"the pack has a frame that cannot be unpacked: {error}", hint=_AGAIN) from error
    raise BlobCorrupt("the pack has a frame of another size than it says", hint=_AGAIN)
