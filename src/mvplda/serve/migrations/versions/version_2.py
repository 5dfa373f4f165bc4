"""Add the marks of damaged profiles, and of the master key of each profile."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import PROFILES, PROFILES_DAMAGED

revision = "2"
down_revision = "1"


def upgrade() -> None:
    connection = op.get_bind()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("profiles")}
    # new databases get the present tables in version 1
    if "damaged" in columns:
        return
    for name in ("damaged", "master"):
        kind = PROFILES.c[name].type
        op.add_column("profiles", sa.Column(name, kind, nullable=True))
    PROFILES_DAMAGED.create(connection)
