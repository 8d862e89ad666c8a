"""Tails, and what else is kept of a backfill: its start, what it left, what it takes back."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the table of tails and the columns."""
    for column in (
        sa.Column("started_at", sa.DateTime(timezone=True)),
        sa.Column("left", sa.JSON),
        sa.Column("undo_of", sa.String(50)),
        sa.Column("undone_by", sa.String(50)),
    ):
        op.add_column("lb_backfills", column)
    op.create_table(
        "lb_tails",
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("plan", sa.JSON, nullable=False),
    )
