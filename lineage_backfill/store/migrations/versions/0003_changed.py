"""What a backfill repairs, in words, beside its title."""

import sqlalchemy as sa
from alembic import op

revision = "0003_changed"
down_revision = "0002_cursors"


def upgrade() -> None:
    """Add the column; backfills of before show their title only."""
    op.add_column(
        "lb_backfills", sa.Column("changed", sa.String(200), nullable=False, server_default="")
    )
