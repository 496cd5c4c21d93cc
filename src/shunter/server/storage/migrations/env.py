"""Alembic's way in: the connection is handed over by `database.py`."""

from alembic import context

from shunter.server.storage.schema import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=False,
    render_as_batch=True,
)  # fmt: skip
context.run_migrations()
