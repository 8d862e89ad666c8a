"""Adds how long engines took to start what they run attempts in."""

import sqlalchemy as sa
from alembic import op

revision = "0003_starts"
down_revision = "0002_origins"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "lb_starts",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("engine", sa.String(100), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Index("lb_starts_engine", "engine", "id"),
    )
