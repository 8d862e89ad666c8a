"""Adds tokens, saved plans, and what tells two requests with one key apart."""

import sqlalchemy as sa
from alembic import op

from lineage_backfill.store.schema import saved_plans, tokens

revision = "0003_access"
down_revision = "0002_audit"


def upgrade() -> None:
    """Create their tables, and add a column to the audit."""
    op.add_column("lb_acts", sa.Column("digest", sa.String(64), nullable=False, server_default=""))
    tokens.create(op.get_bind())
    saved_plans.create(op.get_bind())
