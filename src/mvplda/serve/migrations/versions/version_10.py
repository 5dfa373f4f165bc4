"""Add the score of the detector of spoofs to each recording."""

import sqlalchemy as sa
from alembic import op

from mvplda.serve.tables import ENROLMENTS

revision = "10"
down_revision = "9"


def upgrade() -> None:
    connection = op.get_bind()
    columns = {column["name"] for column in sa.inspect(connection).get_columns("enrollments")}
    # new databases get the present tables in version 1
    if "spoof_score" not in columns:
        kind = ENROLMENTS.c.spoof_score.type
        op.add_column("enrollments", sa.Column("spoof_score", kind, nullable=True))
