"""The tables of the run store, which `migrations/` creates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

#: Every revision of the schema, oldest first. Listed here so that opening an up-to-date store needs
#: no alembic. Stores of others are refused.
REVISIONS = ("0001_first_release", "0002_audit", "0003_access")
VERSION_TABLE = "lb_version"


#: Autoincrement in every database.
SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")
#: Text sorted by code point in every database, as keys require.
ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


class Instant(sa.types.TypeDecorator[datetime]):
    """An aware instant in UTC; SQLite itself stores no zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert an aware instant to the database's value."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Convert the database's value to an aware instant."""
        if value is None:
            return None
        assert isinstance(value, datetime)
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


metadata = sa.MetaData()

meta = sa.Table(
    "lb_meta",
    metadata,
    sa.Column("name", sa.String(50), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)

backfills = sa.Table(
    "lb_backfills",
    metadata,
    sa.Column("id", sa.String(50), primary_key=True),
    sa.Column("plan_id", sa.String(100), nullable=False),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("title", sa.String(200), nullable=False),
    sa.Column("changed", sa.String(200), nullable=False, server_default=""),
    sa.Column("description", sa.String(1000), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("code_version", sa.String(200), nullable=False),
    sa.Column("submitted_by", sa.String(200), nullable=False),
    sa.Column("submitted_at", Instant, nullable=False),
    sa.Column("scheduled_for", Instant),
    sa.Column("updated_at", Instant, nullable=False),
    sa.Column("ended_at", Instant),
    sa.Column("control", sa.String(20)),
    sa.Column("deleted", sa.Boolean, nullable=False),
    sa.Column("settings", sa.JSON(none_as_null=True)),
    sa.Column("started_at", Instant),
    sa.Column("left", sa.JSON(none_as_null=True)),
    sa.Column("undo_of", sa.String(50)),
    sa.Column("undone_by", sa.String(50)),
    sa.Index("lb_backfills_submitted", "submitted_at"),
)

#: Up to which event of a backfill each hook is served.
cursors = sa.Table(
    "lb_cursors",
    metadata,
    sa.Column("hook", sa.String(50), primary_key=True),
    sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
    sa.Column("event", sa.BigInteger, nullable=False),
    sa.Column("due_at", Instant, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)

tails = sa.Table(
    "lb_tails",
    metadata,
    sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("plan", sa.JSON, nullable=False),
)

runs = sa.Table(
    "lb_runs",
    metadata,
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
    sa.Column("started_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("error", sa.Text),
    sa.Column("cut_off", sa.JSON(none_as_null=True)),
)

attempts = sa.Table(
    "lb_attempts",
    metadata,
    sa.Column("backfill_id", sa.String(50), primary_key=True),
    sa.Column("run_id", sa.String(100), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("token", sa.String(100), nullable=False, unique=True),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("handle", sa.Text),
    sa.Column("machine", sa.String(255)),  # that has submitted it
    sa.Column("submitted_at", Instant, nullable=False),
    sa.Column("ended_at", Instant),
    sa.Column("result", sa.JSON(none_as_null=True)),
    sa.Column("error", sa.Text),
    sa.Column("origin", sa.String(20)),
    sa.Column("engine_run", sa.Text),  # its id in the engine
    sa.Column("engine_facts", sa.JSON(none_as_null=True)),
    sa.ForeignKeyConstraint(["backfill_id", "run_id"], ["lb_runs.backfill_id", "lb_runs.run_id"]),
)

events = sa.Table(
    "lb_events",
    metadata,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), nullable=False),
    sa.Column("run_id", sa.String(100)),
    sa.Column("at", Instant, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Index("lb_events_backfill", "backfill_id", "id"),
)

leases = sa.Table(
    "lb_leases",
    metadata,
    sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
    sa.Column("owner", sa.String(200)),  # NULL: given back
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
)

#: Drivers that take backfills by themselves, each alive until its next heartbeat.
drivers = sa.Table(
    "lb_drivers",
    metadata,
    sa.Column("owner", sa.String(200), primary_key=True),
    sa.Column("project", sa.String(200), nullable=False),
    sa.Column("target", sa.String(100), nullable=False),
    sa.Column("until", Instant, nullable=False),
)

locks = sa.Table(
    "lb_locks",
    metadata,
    sa.Column("backfill_id", sa.String(50), sa.ForeignKey("lb_backfills.id"), primary_key=True),
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("partitions", sa.JSON, nullable=False),
    sa.Index("lb_locks_dataset", "namespace", "name"),
)

# For each set of run keys, in any backfill, the last attempt that succeeded, and a later attempt
# that has not. The newest row with a key counts. `keys_id` is a hash of the set, whose keys are
# between `first` and `last`.
traces = sa.Table(
    "lb_traces",
    metadata,
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
    sa.Column("since", Instant, nullable=False),
    sa.Column("contents", sa.JSON(none_as_null=True)),
    sa.Column("ended_at", Instant),  # if it succeeded
    sa.Index("lb_traces_job_keys", "job_namespace", "job_name", "keys_id"),
)

#: The audit: acts on backfills, done or refused.
acts = sa.Table(
    "lb_acts",
    metadata,
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
    sa.Column("digest", sa.String(64), nullable=False, server_default=""),
    sa.Index("lb_acts_at", "at"),
)

#: What logs programs and browsers in.
tokens = sa.Table(
    "lb_tokens",
    metadata,
    sa.Column("prefix", sa.String(20), primary_key=True),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
    sa.Column("created_by", sa.String(200), nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant),
    sa.Column("used_at", Instant),
    sa.Column("revoked_at", Instant),
)

#: Plans that were saved.
saved_plans = sa.Table(
    "lb_saved_plans",
    metadata,
    sa.Column("id", sa.String(100), primary_key=True),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("submission", sa.JSON, nullable=False),
    sa.Column("author", sa.String(200), nullable=False),
    sa.Column("saved_at", Instant, nullable=False),
    sa.Column("approved_by", sa.String(200), nullable=False),
    sa.Column("approved_at", Instant),
    sa.Column("backfill_id", sa.String(50), nullable=False),
    sa.Column("discarded", sa.Boolean, nullable=False),
)
