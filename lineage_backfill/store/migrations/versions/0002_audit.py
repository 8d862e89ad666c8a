"""Adds the audit."""

import sqlalchemy as sa
from alembic import op

from lineage_backfill.store.schema import Instant

revision = "0002_audit"
down_revision = "0001_first_release"


def upgrade() -> None:
    """Create its table."""
    op.create_table(
        "lb_acts",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("at", Instant, nullable=False),
        sa.Column("who", sa.String(200), nullable=False),
        sa.Column("door", sa.String(20), nullable=False),
        sa.Column("verb", sa.String(20), nullable=False),
        sa.Column("backfill_id", sa.String(50), nullable=False),
        sa.Column("plan_id", sa.String(100), nullable=False),
        sa.Column("address", sa.String(100), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("refused", sa.Text, nullable=False),
    )
    op.create_index("lb_acts_at", "lb_acts", ["at"])
