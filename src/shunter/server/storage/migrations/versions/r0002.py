"""The head of a queue is found without sorting all of it."""

from alembic import op
from sqlalchemy import inspect

from shunter.server.storage.schema import runs

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    known = {index["name"] for index in inspect(op.get_bind()).get_indexes("runs")}
    if "runs_by_turn" not in known:  # tables that 0001 makes today have it already
        next(index for index in runs.indexes if index.name == "runs_by_turn").create(op.get_bind())
    if "runs_by_queue" in known:
        op.drop_index("runs_by_queue", "runs")
