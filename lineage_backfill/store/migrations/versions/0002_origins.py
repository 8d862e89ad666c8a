"""Adds to attempts what they run as in their engine, and who started that."""

import sqlalchemy as sa
from alembic import op

revision = "0002_origins"
down_revision = "0001_tables"


def upgrade() -> None:
    """Add the columns, empty: of older attempts it is not known."""
    op.add_column("lb_attempts", sa.Column("origin", sa.String(20)))
    op.add_column("lb_attempts", sa.Column("engine_run", sa.Text))
    op.add_column("lb_attempts", sa.Column("also_started", sa.JSON))
