"""Script that Alembic runs to migrate the tables of the database that the service has opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
