"""The head of a queue is found without sorting all of it, and a run by its name without looking at all of them."""

from alembic import op
from sqlalchemy import inspect

from shunter.server.storage.schema import runs

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    known = {index["name"] for index in inspect(op.get_bind()).get_indexes("runs")}
    for index in runs.indexes:
        if index.name in ("runs_by_turn", "runs_by_name") and index.name not in known:  # 0001 makes today's tables
            index.create(op.get_bind())
    if "runs_by_queue" in known:
        op.drop_index("runs_by_queue", "runs")
