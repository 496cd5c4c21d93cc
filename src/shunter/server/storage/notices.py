"""Who is to be told that a run is over, and how far that came. Written at submit, so that no crash forgets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from shunter.model.run import OVER
from shunter.server.storage.database import Database
from shunter.server.storage.schema import notices, runs

WAITING, SENT, FAILED = "waiting", "sent", "failed"


class Notice(NamedTuple):
    run_id: str
    number: int
    target: str
    state: str
    tries: int
    next_at: float
    words: str


class Notices:
    def __init__(self, database: Database) -> None:
        self.database = database

    def expect(self, run_id: str, targets: Sequence[str]) -> None:
        """These want to know when the run is over. Said again, it changes nothing."""
        if self.of(run_id):
            return
        rows = [
            Notice(run_id, number, target, WAITING, 0, 0.0, "")._asdict()
            for number, target in enumerate(targets, start=1)
        ]
        with self.database.begin() as connection:
            connection.execute(sa.insert(notices), rows)

    def of(self, run_id: str) -> list[Notice]:
        return self._read(sa.select(notices).where(notices.c.run_id == run_id).order_by(notices.c.number))

    def due(self) -> list[Notice]:
        """Those that wait and whose run is over, the most urgent first."""
        query = sa.select(notices).join(runs, runs.c.id == notices.c.run_id)
        query = query.where(notices.c.state == WAITING, runs.c.status.in_([str(s) for s in OVER]))
        return self._read(query.order_by(notices.c.next_at).limit(100))

    def update(self, notice: Notice) -> None:
        changed = sa.update(notices).where(notices.c.run_id == notice.run_id, notices.c.number == notice.number)
        values = {"state": notice.state, "tries": notice.tries, "next_at": notice.next_at, "words": notice.words}
        with self.database.begin() as connection:
            connection.execute(changed.values(**values))

    def delete(self, run_id: str) -> None:
        with self.database.begin() as connection:
            connection.execute(sa.delete(notices).where(notices.c.run_id == run_id))

    def _read(self, query: Any) -> list[Notice]:
        with self.database.read() as connection:
            return [Notice(**row._mapping) for row in connection.execute(query)]
