"""Alembic runs this to migrate the database that the service has opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
