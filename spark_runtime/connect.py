"""A session of a Spark Connect server: no JVM here, and only what the server offers to clients.

A session is of one attempt: its id is made from the attempt's token, so any machine can end it. A
server goes on, and commits, after its client was killed; a session that has ended takes no more
commands, not even from a client that still lives.
"""

from __future__ import annotations

import os
import re
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from spark_runtime.errors import SessionError, SparkMissingError, StaleAttemptError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

#: Attempts of one request before a server counts as gone: about half a minute. PySpark's own
#: fifteen take many minutes.
_ATTEMPTS = 9
#: What a process sets before it starts Spark; a server has its own.
_STARTED = re.compile(r"spark\.(master|app\.name|jars|submit|driver|executor|ui|hadoop|log)\b.*")
_PY_FILES = "spark.submit.pyFiles"
#: What is added to a token for the second session of an attempt.
_SECOND = "/2"
#: What a server says of a session that has ended.
_CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
#: A session belongs to a user; another one could not end it.
_USER = "lineage-backfill"


@dataclass
class _Opened:
    conf: Mapping[str, str]
    token: str | None
    second: SparkSession | None = None
    lock: Lock = field(default_factory=Lock)


#: The sessions that were opened here, by their ids.
_opened: dict[str, _Opened] = {}


def is_address(master: str) -> bool:
    """Whether a master is the address of a Spark Connect server."""
    return master.startswith("sc://")


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def session_id(token: str) -> str:
    """Return the id of the session of the attempt with this token.

    >>> session_id("3f9a") == session_id("3f9a") != session_id("3f9b")
    True
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"lineage-backfill/{token}"))


def open_session(conf: Mapping[str, str], token: str | None = None) -> SparkSession:
    """Open a session with these settings, which is now the default.

    Raises SparkMissingError, SessionError.
    """
    spark: SparkSession = _session(conf["spark.master"], token)
    _refuse_older(spark, conf["spark.master"])
    make_default(spark)
    settings = {name: text for name, text in conf.items() if not _STARTED.fullmatch(name)}
    try:
        set_all(spark, settings)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise SessionError(
            f"the server {conf['spark.master']} does not let a session have these settings: {said}",
            hint="Remove them from `conf`, and set them where the server is started.",
        ) from error
    _opened[id_of(spark)] = _Opened(conf, token)
    if files := [file for file in conf.get(_PY_FILES, "").split(",") if file]:
        spark.addArtifacts(*files, pyfile=True)
    return spark


@contextmanager
def second(spark: SparkSession) -> Iterator[SparkSession]:
    """Give the second session of an attempt, for one statement at a time.

    It has the settings of the first one, and sees its global views. Raises SessionError.
    """
    one = _opened.get(id_of(spark))
    if one is None:
        raise SessionError(
            "a MERGE needs a second session, and others have opened this one",
            hint='Run the job by its run spec, with master = "sc://…" of the engine or in [spark].',
        )
    with one.lock:
        if one.second is None:
            token = uuid.uuid4().hex if one.token is None else one.token
            one.second = open_session(one.conf, f"{token}{_SECOND}")
            make_default(spark)
        yield one.second


def close(spark: SparkSession) -> None:
    """End a session that was opened here, and its second one."""
    one = _opened.pop(id_of(spark))
    if one.second is not None:
        close(one.second)
    spark.stop()


def make_default(spark: SparkSession) -> None:
    """Make a session the one that PySpark's own functions use."""
    kind: Any = type(spark)
    kind._default_session = kind._active_session.session = spark


def end_sessions(address: str, token: str) -> None:
    """End the sessions of an attempt for good, with what they still do; raises SessionError.

    Returns once the server has ended them: a commit after that is impossible. A session that the
    server does not know was never opened, and cannot be any more.
    """
    for name in (token, f"{token}{_SECOND}"):
        spark = _session(address, name)
        try:
            spark.interruptAll()  # makes it known to the server, and fails for one that has ended
            spark.client.release_session()
        except Exception as error:
            if _CLOSED not in str(error):
                raise _gone(address, error) from error


def is_direction(column: Column) -> bool:
    """Whether a column says how rows are sorted."""
    expression: Any = column
    return type(expression._expr).__name__ == "SortOrder"


def is_alive(spark: SparkSession) -> bool:
    """Whether the server still has the session."""
    try:
        return bool(spark.range(1).count())
    except Exception:  # noqa: BLE001 (a server that is gone shows in many ways)
        return False


def id_of(spark: SparkSession) -> str:
    """Return what tells a session from others."""
    session: Any = spark
    return str(session.session_id)


def values_of(spark: SparkSession, names: Mapping[str, str]) -> dict[str, str | None]:
    """Return the values of settings, None for unknown ones, in one request."""
    session: Any = spark
    found = session.client.get_config_with_defaults(*((name, None) for name in names))
    return dict(zip(names, found, strict=True))


def set_all(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Set settings in one request."""
    settings: Any = spark.conf
    settings._set_all(dict(conf), silent=False)


def variant_bytes(value: Column) -> list[Column]:
    """Return the bytes of a VARIANT: its value and its metadata."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, VariantVal

    def part(name: str) -> Any:
        def of(variant: VariantVal | None) -> bytes | None:
            return None if variant is None else bytes(getattr(variant, name))

        as_bytes: Any = F.udf(of, BinaryType())
        return as_bytes(value)

    return [part("_value"), part("_metadata")]


def _session(address: str, token: str | None) -> Any:
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # else functions of columns ask a JVM
    warnings.filterwarnings("ignore", "The SQL config .* has been deprecated")
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise SparkMissingError(
            f"{address} needs Spark Connect, which is not installed: {error}",
            hint="pip install 'lineage-backfill[connect]'",
        ) from error
    builder: Any = SparkSession.builder.remote(_with_session(address, token))
    try:
        spark = builder.create()
    except Exception as error:
        raise SessionError(
            f"{address} is not the address of a Spark Connect server: {error}",
            hint="Write it as sc://HOST:PORT, or sc://HOST:PORT/;use_ssl=true.",
        ) from error
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_ATTEMPTS, max_backoff=8_000)])
    return spark


def _with_session(address: str, token: str | None) -> str:
    place, _, given = address.partition("/;")
    settings = dict(one.partition("=")[::2] for one in given.split(";") if one)
    settings.setdefault("user_id", _USER)
    if token is not None:
        settings["session_id"] = session_id(token)
    return f"{place.rstrip('/')}/;" + ";".join(f"{name}={settings[name]}" for name in settings)


def _refuse_older(spark: SparkSession, address: str) -> None:
    """Refuse a server older than this client, which would not understand it."""
    import pyspark

    try:
        server = str(spark.version)
    except Exception as error:
        if _CLOSED in str(error):
            raise StaleAttemptError(
                "this attempt was ended by another process before it began; nothing was written",
                hint="Nothing to do: a later attempt completes the run.",
            ) from error
        raise _gone(address, error) from error
    if _release(server) < _release(pyspark.__version__):
        raise SessionError(
            f"{address} is Spark {server}, and PySpark here is {pyspark.__version__}: a client must"
            " not be newer than its server",
            hint=f"pip install 'pyspark[connect]=={server}', in the `python` of this engine.",
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _gone(address: str, error: Exception) -> SessionError:
    said = str(error).strip().partition("\n")[0]
    return SessionError(
        f"the Spark Connect server {address} does not answer: {said}",
        hint="Check the address, and that the server runs; then `resume`.",
    )
