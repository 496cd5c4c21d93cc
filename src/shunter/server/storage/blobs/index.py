"""The index of the blobs in the server's database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from shunter.server.storage.blobs.base import Row
from shunter.server.storage.database import Database
from shunter.server.storage.schema import blobs

_CHUNK = 500  # digests in one query: far below every database's limit of parameters

_FIND = sa.select(blobs.c.digest, blobs.c.pack, blobs.c.offset, blobs.c.size).where(
    blobs.c.digest.in_(sa.bindparam("digests", expanding=True))
)
_ADD = {
    "sqlite": sqlite.insert(blobs).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(blobs).on_conflict_do_nothing(),
}
_REMOVE = sa.delete(blobs).where(blobs.c.digest.in_(sa.bindparam("digests", expanding=True)))
_PACKS = sa.select(blobs.c.pack, sa.func.sum(blobs.c.size)).group_by(blobs.c.pack)
_ROWS_OF = (
    sa.select(blobs.c.digest, blobs.c.pack, blobs.c.offset, blobs.c.size)
    .where(blobs.c.pack == sa.bindparam("in_pack"))
    .order_by(blobs.c.offset)
)
_MOVE = (
    sa.update(blobs)
    .where(blobs.c.digest == sa.bindparam("of"), blobs.c.pack == sa.bindparam("source"))
    .values(pack=sa.bindparam("to_pack"), offset=sa.bindparam("to_offset"))
)


class SqlBlobIndex:
    """BlobIndex over the table `blobs`. Calls open their own transactions: not to be used inside `database.begin()`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, rows: Iterable[Row]) -> None:
        # In the order of the digests, so that two writers of the same rows do not wait for each other in a circle.
        values = [row._asdict() for row in sorted(rows)]
        if values:
            with self._database.begin() as connection:
                connection.execute(_ADD[connection.dialect.name], values)

    def find(self, digests: Iterable[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        with self._database.read() as connection:
            for chunk in _chunks(digests):
                for row in connection.execute(_FIND, {"digests": chunk}):
                    found[row[0]] = Row(*row)
        return found

    def remove(self, digests: Iterable[str]) -> None:
        with self._database.begin() as connection:
            for chunk in _chunks(digests):
                connection.execute(_REMOVE, {"digests": chunk})

    def packs(self) -> Mapping[str, int]:
        with self._database.read() as connection:
            return {pack: int(size) for pack, size in connection.execute(_PACKS)}

    def rows_of(self, pack: str) -> list[Row]:
        with self._database.read() as connection:
            return [Row(*row) for row in connection.execute(_ROWS_OF, {"in_pack": pack})]

    def move(self, rows: Iterable[Row], *, source: str) -> None:
        values = [
            {"of": row.digest, "source": source, "to_pack": row.pack, "to_offset": row.offset} for row in sorted(rows)
        ]
        if values:
            with self._database.begin() as connection:
                connection.execute(_MOVE, values)


def _chunks(digests: Iterable[str]) -> Iterator[list[str]]:
    todo = iter(digests)
    while chunk := list(islice(todo, _CHUNK)):
        yield chunk
