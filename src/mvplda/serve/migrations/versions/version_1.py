"""Create the first tables; databases from before Alembic have them already."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import META, METADATA

revision = "1"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    METADATA.create_all(connection)
    counter = "INSERT INTO changes (id, number) VALUES (1, 0) ON CONFLICT DO NOTHING"
    connection.execute(sa.text(counter))
    # the version is stored in Alembic's own table
    connection.execute(META.delete().where(META.c.name == "schema"))
