"""Add the marks of damaged profiles, and of the master key of each profile."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import PROFILES_DAMAGED

revision = "2"
down_revision = "1"


def upgrade() -> None:
    connection = op.get_bind()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("profiles")}
    # new databases get the present tables in version 1
    if "damaged" in columns:
        return
    op.add_column("profiles", sa.Column("damaged", sa.Double, nullable=True))
    op.add_column("profiles", sa.Column("master", sa.Text, nullable=True))
    PROFILES_DAMAGED.create(connection)
