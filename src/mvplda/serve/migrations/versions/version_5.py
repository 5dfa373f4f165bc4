"""Add the answers of calls with an Idempotency-Key."""

from alembic import op

from mvplda.serve.tables import ANSWERS

revision = "5"
down_revision = "4"


def upgrade() -> None:
    # new databases get the present tables in version 1
    ANSWERS.create(op.get_bind(), checkfirst=True)
