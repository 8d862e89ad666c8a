"""Adds the audit."""

from alembic import op

from lineage_backfill.store.schema import acts

revision = "0002_audit"
down_revision = "0001_first_release"


def upgrade() -> None:
    """Create its table."""
    acts.create(op.get_bind())
