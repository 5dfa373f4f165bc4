"""Add the policies of API keys."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import API_KEYS

revision = "3"
down_revision = "2"


def upgrade() -> None:
    columns = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("api_keys")}
    # new databases get the present tables in version 1
    for name in ("detail", "far", "require"):
        if name not in columns:
            op.add_column("api_keys", sa.Column(name, API_KEYS.c[name].type, nullable=True))
