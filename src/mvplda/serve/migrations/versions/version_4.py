"""Add fingerprints to the marks of recordings."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import MARKS

revision = "4"
down_revision = "3"


def upgrade() -> None:
    connection = op.get_bind()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("marks")}
    # new databases get the present tables in version 1
    if "fingerprint" in columns:
        return
    op.add_column("marks", sa.Column("fingerprint", MARKS.c.fingerprint.type, nullable=True))
    for index in MARKS.indexes:
        index.create(connection)
