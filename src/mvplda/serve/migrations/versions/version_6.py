"""Add the mark of its master key to each recording, and remove it from profiles."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.keys import MARK_DIGITS

revision = "6"
down_revision = "5"


def upgrade() -> None:
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    # new databases get the present tables in version 1
    if "master" in {column["name"] for column in inspector.get_columns("profiles")}:
        op.drop_column("profiles", "master")
    if "master" in {column["name"] for column in inspector.get_columns("enrollments")}:
        return
    mark = connection.execute(sa.text("SELECT value FROM meta WHERE name = 'master'")).scalar()
    # the default also marks recordings of services of the version before that still run
    column = sa.Column(
        "master", sa.Text, nullable=False, server_default=str(mark or "")[:MARK_DIGITS]
    )
    op.add_column("enrollments", column)
