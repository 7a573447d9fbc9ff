"""How alembic reaches the database: through the connection that ``claudeops.store.migrate`` hands over."""

from alembic import context

from claudeops.store.tables.all_tables import metadata
from claudeops.store.tables.base import name_conditions

name_conditions()

# The connection is inside a transaction already, which all revisions share: they arrive together or not at all.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by building it anew
)

with context.begin_transaction():
    context.run_migrations()
