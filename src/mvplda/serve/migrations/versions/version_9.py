"""Add the index for the search by the beginning of a name."""

from alembic import op
from sqlalchemy.schema import CreateIndex

from mvplda.serve.tables import NAME_INDEXES

revision = "9"
down_revision = "8"


def upgrade() -> None:
    connection = op.get_bind()
    # new databases get the present tables in version 1
    connection.execute(CreateIndex(NAME_INDEXES[connection.dialect.name], if_not_exists=True))
