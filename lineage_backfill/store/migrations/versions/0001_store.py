"""The first schema: backfills, their runs and attempts, leases, locks, traces."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0001_store"
down_revision = None

INSTANT = sa.DateTime(timezone=True)
ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables and set the id of the store."""
    meta = op.create_table(
        "lb_meta",
        sa.Column("name", sa.String(50), primary_key=True),
        sa.Column("value", sa.String(200), nullable=False),
    )
    op.bulk_insert(meta, [{"name": "store_id", "value": uuid.uuid4().hex}])
    op.create_table(
        "lb_backfills",
        sa.Column("id", sa.String(50), primary_key=True),
        sa.Column("plan_id", sa.String(100), nullable=False),
        sa.Column("plan", sa.JSON, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("description", sa.String(1000), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("parameters", sa.JSON, nullable=False),
        sa.Column("code_version", sa.String(200), nullable=False),
        sa.Column("submitted_by", sa.String(200), nullable=False),
        sa.Column("submitted_at", INSTANT, nullable=False),
        sa.Column("scheduled_for", INSTANT),
        sa.Column("expires_at", INSTANT),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT),
        sa.Column("control", sa.String(20)),
        sa.Column("deleted", sa.Boolean, nullable=False),
        sa.Column("settings", sa.JSON),
        sa.Column("started_at", INSTANT),
        sa.Column("left", sa.JSON),
        sa.Column("undo_of", sa.String(50)),
        sa.Column("undone_by", sa.String(50)),
    )
    op.create_index("lb_backfills_submitted", "lb_backfills", ["submitted_at"])
    op.create_table(
        "lb_pruned",
        sa.Column("backfill_id", sa.String(50), primary_key=True),
        sa.Column("at", INSTANT, nullable=False),
    )
    op.create_table(
        "lb_outbox",
        sa.Column("id", sa.String(50), primary_key=True),
        sa.Column("hook", sa.String(50), nullable=False),
        sa.Column("body", sa.JSON, nullable=False),
        sa.Column("due_at", INSTANT, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
    )
    op.create_index("lb_outbox_due", "lb_outbox", ["hook", "due_at"])
    op.create_table(
        "lb_tails",
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("plan", sa.JSON, nullable=False),
    )
    op.create_table(
        "lb_runs",
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("run_id", sa.String(100), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("job_namespace", sa.Text, nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("partitions", sa.JSON, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("wave", sa.Integer, nullable=False),
        sa.Column("engine", sa.String(100)),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("started_at", INSTANT),
        sa.Column("ended_at", INSTANT),
        sa.Column("error", sa.Text),
        sa.Column("cut_off", sa.JSON),
    )
    op.create_table(
        "lb_attempts",
        sa.Column("backfill_id", sa.String(50), primary_key=True),
        sa.Column("run_id", sa.String(100), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("token", sa.String(100), nullable=False, unique=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("handle", sa.Text),
        sa.Column("machine", sa.String(255)),
        sa.Column("submitted_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.Text),
        sa.Column("origin", sa.String(20)),
        sa.Column("engine_run", sa.Text),
        sa.Column("engine_facts", sa.JSON),
        sa.ForeignKeyConstraint(
            ["backfill_id", "run_id"], ["lb_runs.backfill_id", "lb_runs.run_id"]
        ),
    )
    op.create_table(
        "lb_events",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), nullable=False),
        sa.Column("run_id", sa.String(100)),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("lb_events_backfill", "lb_events", ["backfill_id", "id"])
    op.create_table(
        "lb_leases",
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("owner", sa.String(200)),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("uses", sa.JSON),
    )
    op.create_table(
        "lb_drivers",
        sa.Column("owner", sa.String(200), primary_key=True),
        sa.Column("project", sa.String(200), nullable=False),
        sa.Column("target", sa.String(100), nullable=False),
        sa.Column("until", INSTANT, nullable=False),
    )
    op.create_table(
        "lb_locks",
        sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
        sa.Column("namespace", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("partitions", sa.JSON, nullable=False),
    )
    op.create_index("lb_locks_dataset", "lb_locks", ["namespace", "name"])
    op.create_table(
        "lb_traces",
        sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
        sa.Column("job_namespace", sa.Text, nullable=False),
        sa.Column("job_name", sa.Text, nullable=False),
        sa.Column("keys_id", sa.String(50), nullable=False),
        sa.Column("keys", sa.JSON, nullable=False),
        sa.Column("first", ORDERED, nullable=False),
        sa.Column("last", ORDERED, nullable=False),
        sa.Column("backfill_id", sa.String(50), nullable=False),
        sa.Column("run_id", sa.String(100), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("since", INSTANT, nullable=False),
        sa.Column("contents", sa.JSON),
        sa.UniqueConstraint("job_namespace", "job_name", "keys_id", name="lb_traces_keys"),
    )
