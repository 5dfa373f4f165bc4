"""Add the chains of the audit, and the counts of refused calls."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import AUDIT, AUDIT_CHAINS, AUDIT_HEADS, REFUSALS

revision = "7"
down_revision = "6"


def upgrade() -> None:
    connection = op.get_bind()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("audit")}
    # new databases get the present tables in version 1
    if "mac" in columns:
        return
    for name in ("chain", "number", "mac"):
        op.add_column("audit", sa.Column(name, AUDIT.c[name].type, nullable=True))
    AUDIT_CHAINS.create(connection)
    for table in (AUDIT_HEADS, REFUSALS):
        table.create(connection, checkfirst=True)
