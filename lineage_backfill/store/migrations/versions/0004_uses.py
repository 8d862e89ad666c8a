"""What a backfill uses of the pools that it shares with others."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the column; who has told of nothing uses nothing."""
    op.add_column("lb_leases", sa.Column("uses", sa.JSON))
