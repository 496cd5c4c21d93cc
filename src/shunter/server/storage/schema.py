"""The tables. A change here comes with a migration in `migrations/versions` (a test compares the two)."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

#: The newest migration. `database.py` compares it with what a database says of itself.
REVISION = "0002"

metadata = MetaData()

settings = Table(
    "settings",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

workspaces = Table(
    "workspaces",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("settings", Text, nullable=False, server_default="{}"),
    Column("tags", Text, nullable=False, server_default="{}"),
)

experiments = Table(
    "experiments",
    metadata,
    Column("workspace", String(200), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("tags", Text, nullable=False, server_default="{}"),
    Column("last_number", Integer, nullable=False, server_default="0"),
)

computes = Table(
    "computes",
    metadata,
    Column("workspace", String(200), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("config", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("state", String(32), nullable=False),
    Column("reason", Text, nullable=False, server_default=""),
    Column("facts", Text, nullable=False, server_default="{}"),
    Column("tags", Text, nullable=False, server_default="{}"),
    Column("version", Integer, nullable=False, server_default="0"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("manifest", LargeBinary, nullable=False),
    Column("files", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("pack", String(128), nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("workspace", String(200), nullable=False),
    Column("experiment", String(200), nullable=False),
    Column("name", String(200), nullable=False),
    Column("alias", String(260), nullable=False),
    Column("number", Integer, nullable=False),
    Column("target", String(64), nullable=False),
    Column("status", String(20), nullable=False),
    Column("snapshot_id", String(64), nullable=False),
    Column("script", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("config", Text, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("parent_id", String(32)),
    Column("priority", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("reason", Text, nullable=False),
    Column("error", Text),
    Column("submitted_at", Float, nullable=False),
    Column("since", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("deadline_at", Float),
    Column("cancel_requested", Boolean, nullable=False),
    Column("tags", Text, nullable=False),
    Column("properties", Text, nullable=False),
    Column("usage", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # In the order in which a queue is served: its head is found without a look at the rest.
    Index("runs_by_turn", "workspace", "target", "status", text("priority DESC"), "submitted_at"),
    Index("runs_by_status", "status", "submitted_at"),
    Index("runs_by_time", "workspace", "submitted_at"),
    Index("runs_by_experiment", "workspace", "experiment", "submitted_at"),
    Index("runs_by_name", "name", "submitted_at"),
    Index("runs_by_alias", "alias", unique=True),
    Index("runs_by_parent", "parent_id"),
)

launches = Table(
    "launches",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("node_index", Integer, primary_key=True),
    Column("state", String(16), nullable=False),
    Column("node", String(128), nullable=False),
    Column("handle", Text, nullable=False),
    Column("intended_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("outcome", Text),
    Column("evidence", Text, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String(32), nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("status", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index("events_by_run", "run_id", "seq"),
)

#: What has been understood of a stream, in the same transaction as the rows that came of it.
ingested = Table(
    "ingested",
    metadata,
    Column("launch_id", String(64), primary_key=True),
    Column("stream", String(32), primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("bad_lines", Integer, nullable=False, server_default="0"),
)

#: One row for each metric of a run. Its points lie in a file (`storage/metrics.py`), of which `bytes` count.
metrics = Table(
    "metrics",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String(32), nullable=False),
    Column("name", String(255), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("integral", Boolean, nullable=False),
    Column("last", Text, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("last_value", Float),
    Column("min_value", Float),
    Column("max_value", Float),
    Column("updated_at", Float, nullable=False),
    Index("metrics_by_run", "run_id", "name", "kind", unique=True),
)

secrets = Table(
    "secrets",
    metadata,
    Column("workspace", String(200), primary_key=True),
    Column("name", String(127), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)

#: Versions of what scripts wrote under SHUNTER_CHECKPOINT_DIR; `files` says which contents each has.
checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("node_index", Integer, primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", Text, nullable=False),
)

#: Who is to be told that a run is over, and how far that came.
notices = Table(
    "notices",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("target", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_at", Float, nullable=False),
    Column("words", Text, nullable=False),
    Index("notices_by_state", "state", "next_at"),
)

environments = Table(
    "environments",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("workspace", String(200), nullable=False),
    Column("name", String(128), nullable=False),
    Column("version", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("content_id", String(32), nullable=False),
    Column("created_at", Float, nullable=False),
    Index("environments_by_name", "workspace", "name", "version", unique=True),
)

#: Solved once for each request; the newest row of a request is the one that counts, older ones stay for their runs.
environment_locks = Table(
    "environment_locks",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("request", String(32), nullable=False),
    Column("lock_id", String(32), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("environment_locks_by_request", "request", "seq"),
    Index("environment_locks_by_id", "lock_id"),
)
