"""Cursors of hooks over events, in place of an outbox; when the last attempt for keys ended."""

import sqlalchemy as sa
from alembic import op

revision = "0002_cursors"
down_revision = "0001_store"

INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Replace the outbox, whose notices are dropped."""
    op.drop_table("lb_outbox")
    op.create_table(
        "lb_cursors",
        sa.Column("hook", sa.String(50), primary_key=True),
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("event", sa.BigInteger, nullable=False),
        sa.Column("due_at", INSTANT, nullable=False),
        sa.Column("stalled", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
    )
