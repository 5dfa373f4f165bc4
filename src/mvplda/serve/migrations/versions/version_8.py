"""Add tenants."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import API_KEYS, TENANTS

revision = "8"
down_revision = "7"


def upgrade() -> None:
    connection = op.get_bind()
    TENANTS.create(connection, checkfirst=True)
    columns = {column["name"] for column in sa.inspect(connection).get_columns("api_keys")}
    # new databases get the present tables in version 1
    if "tenant" not in columns:
        op.add_column("api_keys", sa.Column("tenant", API_KEYS.c.tenant.type, nullable=True))
