"""Creates or upgrades the tables of the run store."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Run the missing revisions in the transaction of the connection."""
    from alembic import command  # slow to import
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "head")
