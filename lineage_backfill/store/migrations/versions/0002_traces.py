"""What runs have read and written, which of their keys were cut off, and how a backfill runs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of traces; what earlier runs have read is not known."""
    op.add_column("lb_backfills", sa.Column("settings", sa.JSON))
    op.add_column("lb_runs", sa.Column("cut_off", sa.JSON))
    op.create_table(
        "lb_traces",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("job_namespace", sa.Text, nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("keys_id", sa.String(50), nullable=False),
        sa.Column("keys", sa.JSON, nullable=False),
        sa.Column("first", ORDERED, nullable=False),
        sa.Column("last", ORDERED, nullable=False),
        sa.Column("backfill_id", sa.String(50), nullable=False),
        sa.Column("run_id", sa.String(100), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("contents", sa.JSON),
        sa.UniqueConstraint("job_namespace", "job_name", "keys_id", name="lb_traces_keys"),
    )
