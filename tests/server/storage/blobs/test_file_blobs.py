"""The blob store in a folder: all of a pack or nothing of it, and nothing that was acknowledged is ever lost."""

from __future__ import annotations

import os
import random
import resource
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import BlobCorrupt, NotFound, StorageFull
from shunter.packs import BLOCK_BYTES, Blob, write_pack
from shunter.server.storage.blobs import BlobIndex, BlobStore, FileBlobs, Received, Row
from shunter.server.storage.blobs.index import SqlBlobIndex
from shunter.server.storage.database import Database, sqlite_url
from shunter.testing.blobs import MemoryBlobIndex


@pytest.fixture(params=["memory", "sql"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlobIndex]:
    if request.param == "memory":
        yield MemoryBlobIndex()
        return
    database = Database.open(sqlite_url(tmp_path / "test.db"))
    yield SqlBlobIndex(database)
    database.close()


@pytest.fixture
def blobs(tmp_path: Path, index: BlobIndex) -> FileBlobs:
    return FileBlobs(tmp_path / "blobs", index)


def test_what_was_received_is_held_located_and_read(blobs: BlobStore) -> None:
    contents = [b"", b"one", b"two" * 1000, os.urandom(3 * BLOCK_BYTES + 1)]
    digests = [digest_of(data) for data in contents]
    assert blobs.missing([*digests, digests[0]]) == digests
    assert blobs.receive(pack_of(contents)) == Received(4, sum(map(len, contents)))
    assert blobs.missing([*digests, "0" * 64]) == ["0" * 64]
    assert [blobs.read(digest) for digest in digests] == contents
    places = blobs.locate([*digests, "0" * 64])
    assert set(places) == set(digests)
    for digest, data in zip(digests, contents, strict=True):
        with places[digest].path.open("rb") as file:
            file.seek(places[digest].offset)
            assert file.read(places[digest].size) == data
    with pytest.raises(NotFound):
        blobs.read("0" * 64)


def test_blobs_that_are_held_or_come_twice_are_kept_once(blobs: BlobStore, tmp_path: Path) -> None:
    blobs.receive(pack_of([b"one", b"two"]))
    assert blobs.receive(pack_of([b"two", b"three", b"three"])) == Received(1, 5)
    assert blobs.receive(pack_of([b"one", b"three"])) == Received(0, 0)
    assert blobs.receive(pack_of([])) == Received(0, 0)
    assert stored_bytes(tmp_path) == len(b"one" + b"two" + b"three")


def test_many_small_blobs_need_few_questions(blobs: BlobStore) -> None:
    contents = [str(number).encode() for number in range(3000)]
    assert blobs.receive(pack_of(contents)).blobs == 3000
    assert blobs.missing(map(digest_of, contents)) == []
    assert len(blobs.locate(map(digest_of, contents))) == 3000


@pytest.mark.parametrize("fault", ["cut", "damaged", "continued", "empty", "sender"])
def test_a_stream_that_breaks_leaves_nothing(blobs: BlobStore, tmp_path: Path, fault: str) -> None:
    whole = b"".join(pack_of([b"one", os.urandom(2 * BLOCK_BYTES)]))
    middle = len(whole) // 2

    def sender() -> Iterator[bytes]:
        yield whole[:middle]
        raise ConnectionResetError("gone")

    streams: dict[str, Iterable[bytes]] = {
        "cut": [whole[:middle]],
        "damaged": [whole[:middle], bytes([whole[middle] ^ 1]) + whole[middle + 1 :]],
        "continued": [whole, b"x"],
        "empty": [],
        "sender": sender(),
    }
    with pytest.raises(ConnectionResetError if fault == "sender" else BlobCorrupt):
        blobs.receive(streams[fault])
    assert files_in(tmp_path) == []
    assert blobs.missing([digest_of(b"one")]) == [digest_of(b"one")]
    assert blobs.receive([whole]).blobs == 2


def test_a_full_disk_is_said_in_words_and_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    whole = b"".join(pack_of([os.urandom(5 * BLOCK_BYTES)]))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * BLOCK_BYTES, hard))
    try:
        with pytest.raises(StorageFull, match="no room") as caught:
            blobs.receive([whole])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "Free some space" in caught.value.hint
    assert files_in(tmp_path) == []
    assert blobs.receive([whole]).blobs == 1


def test_what_can_never_fit_is_refused_before_it_is_sent(blobs: BlobStore, tmp_path: Path) -> None:
    table = blake3(b"x").digest() + struct.pack(">Q", 1 << 60)
    with pytest.raises(StorageFull, match="are to come"):
        blobs.receive([b"shunter pack 1\n" + struct.pack(">cII", b"T", 40, 40) + table])
    assert files_in(tmp_path) == []


def test_memory_stays_flat_while_receiving(tmp_path: Path) -> None:
    block = os.urandom(BLOCK_BYTES)
    hasher = blake3()
    for _ in range(48):
        hasher.update(block)
    stream = write_pack(
        [Blob(hasher.hexdigest(), 48 * BLOCK_BYTES)], lambda _: (block for _ in range(48)), compress=False
    )
    store = FileBlobs(tmp_path, MemoryBlobIndex())
    tracemalloc.start()
    try:
        store.receive(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * BLOCK_BYTES


@pytest.mark.parametrize(
    ("harm", "why"), [(b"precious dust", "damaged"), (b"prec", "shorter"), (None, "gone")], ids=str
)
def test_a_damaged_or_lost_blob_is_noticed_when_it_is_read_and_sent_anew(
    blobs: BlobStore, harm: bytes | None, why: str
) -> None:
    digest = digest_of(b"precious data")
    blobs.receive(pack_of([b"precious data"]))
    path = blobs.locate([digest])[digest].path
    path.unlink()
    if harm is not None:
        path.write_bytes(harm)
    with pytest.raises(BlobCorrupt, match=why):
        blobs.read(digest)
    assert blobs.missing([digest]) == [digest]
    blobs.receive(pack_of([b"precious data"]))
    assert blobs.read(digest) == b"precious data"


def test_a_disk_that_is_away_for_a_while_costs_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    blobs.receive(pack_of([b"precious data"]))
    (tmp_path / "blobs" / "packs").rename(tmp_path / "away")
    with pytest.raises(BlobCorrupt, match="gone"):
        blobs.read(digest_of(b"precious data"))
    (tmp_path / "away").rename(tmp_path / "blobs" / "packs")
    assert blobs.read(digest_of(b"precious data")) == b"precious data"


def test_a_store_sends_on_what_it_holds(blobs: BlobStore, tmp_path: Path) -> None:
    contents = [b"one", os.urandom(BLOCK_BYTES * 2), b""]
    blobs.receive(pack_of(contents))
    other = FileBlobs(tmp_path / "other", MemoryBlobIndex())
    assert other.receive(blobs.pack(map(digest_of, contents))).blobs == 3
    assert [other.read(digest_of(data)) for data in contents] == contents
    with pytest.raises(NotFound):
        blobs.pack(["0" * 64])


def test_deleted_blobs_are_gone_at_once_and_their_space_when_the_grace_is_over(
    tmp_path: Path, index: BlobIndex
) -> None:
    now = time.time()
    blobs = FileBlobs(tmp_path / "blobs", index, clock=lambda: now)
    keep, drop = os.urandom(1000), [os.urandom(1000) for _ in range(3)]
    blobs.receive(pack_of([keep, *drop]))
    blobs.receive(pack_of([b"all of this pack goes"]))
    told_before = blobs.locate([digest_of(keep)])[digest_of(keep)]
    blobs.delete([*map(digest_of, drop), digest_of(b"all of this pack goes"), "0" * 64])
    assert blobs.missing(map(digest_of, drop)) == list(map(digest_of, drop))

    assert blobs.compact(grace_seconds=60) == (1, 0, 0)
    assert told_before.path.exists()
    assert blobs.read(digest_of(keep)) == keep
    now += 61
    assert blobs.compact(grace_seconds=60) == (0, 2, 4021)
    assert stored_bytes(tmp_path) == 1000
    assert blobs.read(digest_of(keep)) == keep
    assert blobs.compact(grace_seconds=0) == (0, 0, 0)


def test_a_pack_that_is_more_than_half_alive_stays(blobs: BlobStore) -> None:
    blobs.receive(pack_of([b"a" * 10, b"b" * 10]))
    blobs.delete([digest_of(b"a" * 10)])
    assert blobs.compact(grace_seconds=0) == (0, 0, 0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("verb", ["add", "move"])
def test_an_index_that_fails_in_the_middle_loses_nothing(tmp_path: Path, verb: str, when: str) -> None:
    class Failing(MemoryBlobIndex):
        armed = False

        def add(self, rows: Iterable[Row]) -> None:
            self._maybe("add", lambda: MemoryBlobIndex.add(self, rows))

        def move(self, rows: Iterable[Row], *, source: str) -> None:
            self._maybe("move", lambda: MemoryBlobIndex.move(self, rows, source=source))

        def _maybe(self, name: str, act: object) -> None:
            if self.armed and verb == name and when == "before":
                raise StorageFull("the database could not be written")
            act()  # type: ignore[operator]
            if self.armed and verb == name:
                raise StorageFull("the answer was lost")

    index = Failing()
    blobs = FileBlobs(tmp_path, index)
    blobs.receive(pack_of([b"keep", b"d" * 100]))
    blobs.delete([digest_of(b"d" * 100)])
    index.armed = True
    with pytest.raises(StorageFull):
        blobs.receive(pack_of([b"new"])) if verb == "add" else blobs.compact(grace_seconds=0)
    index.armed = False
    if verb == "add":
        assert (blobs.missing([digest_of(b"new")]) == []) is (when == "after")
    assert blobs.read(digest_of(b"keep")) == b"keep"
    assert not list(tmp_path.rglob("*.part"))
    blobs.receive(pack_of([b"new"]))
    blobs.compact(grace_seconds=0)
    assert blobs.read(digest_of(b"keep")) == b"keep"
    assert blobs.read(digest_of(b"new")) == b"new"
    assert stored_bytes(tmp_path) == len(b"keep" + b"new")


def test_several_senders_of_the_same_at_once_are_all_served(blobs: FileBlobs) -> None:
    contents = [os.urandom(2000) for _ in range(50)]
    failures: list[BaseException] = []

    def send(seed: int) -> None:
        mine = list(contents)
        random.Random(seed).shuffle(mine)
        try:
            blobs.receive(pack_of(mine))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    blobs.compact(grace_seconds=0)
    assert [blobs.read(digest_of(data)) for data in contents] == contents


CRASHING = """
import sys
from pathlib import Path
from blake3 import blake3
from shunter.packs import Blob, write_pack
from shunter.server.storage.blobs import FileBlobs
from shunter.server.storage.blobs.index import SqlBlobIndex
from shunter.server.storage.database import Database, sqlite_url
home = Path(sys.argv[1])
store = FileBlobs(home / "blobs", SqlBlobIndex(Database.open(sqlite_url(home / "db"))))
print("ready", flush=True)
for number in range(10**6):
    data = [f"{number} {part}".encode() * 500 for part in range(4)]
    named = {blake3(one).hexdigest(): one for one in data}
    store.receive(write_pack([Blob(d, len(named[d])) for d in named], lambda b: [named[b.digest]]))
    print(*named, flush=True)
    store.delete(list(named)[1:])
    if number % 3 == 2:
        store.compact(grace_seconds=3600)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_server_has_everything_it_acknowledged_and_nothing_torn(tmp_path: Path, seed: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", CRASHING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    acknowledged = [child.stdout.readline().split()]
    threading.Timer(random.Random(seed).uniform(0.0, 0.25), child.send_signal, [signal.SIGKILL]).start()
    acknowledged += [line.split() for line in child.stdout if line.endswith("\n")]
    child.stdout.close()
    child.wait()
    database = Database.open(sqlite_url(tmp_path / "db"))
    index = SqlBlobIndex(database)
    blobs = FileBlobs(tmp_path / "blobs", index)
    try:
        for _ in range(2):
            for names in acknowledged:
                assert digest_of(blobs.read(names[0])) == names[0]
            for pack in index.packs():
                for row in index.rows_of(pack):
                    blobs.read(row.digest)
            blobs.compact(grace_seconds=0)
        assert {path.stem for path in files_in(tmp_path / "blobs")} == set(index.packs())
    finally:
        database.close()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_order_of_calls_keeps_what_should_be_held(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    blobs = FileBlobs(tmp_path_factory.mktemp("store"), MemoryBlobIndex())
    pool = [bytes([number]) * (number * 37) for number in range(12)]
    held: set[bytes] = set()
    some = st.lists(st.sampled_from(pool), max_size=6)
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["receive", "delete", "compact"])):
            case "receive":
                sent = data.draw(some)
                assert blobs.receive(pack_of(sent)).blobs == len(set(sent) - held)
                held |= set(sent)
            case "delete":
                dropped = data.draw(some)
                blobs.delete(map(digest_of, dropped))
                held -= set(dropped)
            case _:
                blobs.compact(grace_seconds=0)
        assert set(blobs.locate(map(digest_of, pool))) == set(map(digest_of, held))
        assert all(blobs.read(digest_of(one)) == one for one in held)


def digest_of(data: bytes) -> str:
    return blake3(data).hexdigest()


def pack_of(contents: Iterable[bytes]) -> Iterator[bytes]:
    contents = list(contents)
    named = {digest_of(data): data for data in contents}

    def pieces(blob: Blob) -> Iterator[bytes]:
        data = named[blob.digest]
        return (data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))

    return write_pack([Blob(digest_of(data), len(data)) for data in contents], pieces)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".pack", ".part")]


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_in(folder))
