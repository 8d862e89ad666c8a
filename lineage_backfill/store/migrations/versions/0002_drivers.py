"""Drivers that take backfills of this store by themselves."""

import sqlalchemy as sa
from alembic import op

revision = "0002_drivers"
down_revision = "0001_initial"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "lb_drivers",
        sa.Column("owner", sa.String(200), primary_key=True),
        sa.Column("project", sa.String(200), nullable=False),
        sa.Column("target", sa.String(100), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
    )
