"""Brings an old database up to date with Alembic. Imported only when there is something to do: it is slow to import."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory


def config(connection: sa.Connection | None = None) -> Config:
    found = Config()
    found.set_main_option("script_location", str(Path(__file__).parent))
    found.attributes["connection"] = connection
    return found


def known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}


def upgrade(connection: sa.Connection) -> None:
    command.upgrade(config(connection), "head")
