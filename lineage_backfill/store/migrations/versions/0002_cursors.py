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
    with op.batch_alter_table("lb_traces") as traces:
        traces.add_column(sa.Column("ended_at", INSTANT))
        traces.drop_constraint("lb_traces_keys", type_="unique")
        traces.create_index("lb_traces_job_keys", ["job_namespace", "job_name", "keys_id"])
    op.execute(
        "UPDATE lb_traces SET ended_at = COALESCE((SELECT a.ended_at FROM lb_attempts a"
        " WHERE a.backfill_id = lb_traces.backfill_id AND a.run_id = lb_traces.run_id"
        " AND a.attempt = lb_traces.attempt AND a.state = 'succeeded'),"
        " CASE WHEN contents IS NOT NULL THEN since END)"
    )
