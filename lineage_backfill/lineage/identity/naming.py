"""Which names of a platform mean one table, by OpenLineage's naming specification.

A platform's `section` is that of https://openlineage.io/docs/spec/naming. Storage is judged by
`project.locations`; the catalogs of Spark and Hive, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from lineage_backfill.model import DatasetRef
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.locations import dataset_storage, storage

#: How a platform compares letters: folded to upper or lower case, as written, or by a setting.
Case = Literal["upper", "lower", "exact", "setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """How one platform writes names: `parts` of a full one, letter case, default port.

    `domain` is what its hosts end with, and what that stands for.
    """

    section: str
    parts: int
    case: Case
    port: int | None = None
    domain: tuple[str, str] | None = None


_PLATFORMS: Final[Mapping[str, Platform]] = {
    "awsathena": Platform(section="Athena", parts=3, case="lower", port=443),
    "bigquery": Platform(section="BigQuery", parts=3, case="exact"),
    "cassandra": Platform(section="Cassandra", parts=2, case="lower", port=9042),
    "clickhouse": Platform(section="ClickHouse", parts=2, case="exact", port=8123),
    "crate": Platform(section="CrateDB", parts=3, case="lower", port=5432),
    "db2": Platform(section="DB2", parts=3, case="upper", port=50000),
    "duckdb": Platform(section="DuckDB", parts=3, case="lower"),
    "kafka": Platform(section="Kafka", parts=1, case="exact", port=9092),
    "mssql": Platform(section="MSSQL", parts=3, case="setting", port=1433),
    "mysql": Platform(section="MySQL", parts=2, case="setting", port=3306),
    "oceanbase": Platform(section="OceanBase", parts=2, case="setting", port=2881),
    "oracle": Platform(section="Oracle", parts=3, case="upper", port=1521),
    "postgres": Platform(section="Postgres", parts=3, case="lower", port=5432),
    "redshift": Platform(
        section="Redshift",
        parts=3,
        case="lower",
        port=5439,
        domain=(r"([^.]+)\.[^.]+\.([^.]+)\.redshift(?:-serverless)?\.amazonaws\.com", r"\1.\2"),
    ),
    "snowflake": Platform(
        section="Snowflake",
        parts=3,
        case="upper",
        port=443,
        domain=(r"(.+?)(?:\.privatelink)?\.snowflakecomputing\.(?:com|cn)", r"\1"),
    ),
    "spanner": Platform(section="Spanner", parts=3, case="lower"),
    "teradata": Platform(section="Teradata", parts=2, case="upper", port=1025),
    "trino": Platform(section="Trino", parts=3, case="lower", port=8080),
}
#: Other names of their schemes.
_SCHEMES: Final = {
    "athena": "awsathena",
    "mariadb": "mysql",
    "postgresql": "postgres",
    "sqlserver": "mssql",
}
_SPACE: Final = re.compile(
    r"(?:jdbc:)?([a-z][a-z0-9]*)(?:\+[a-z0-9]+)?(?::(?://([^/?;]*))?.*)?", re.IGNORECASE
)
_PART: Final = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|\[([^\]]*)\]|([^."`\[\]]+)')
#: Schemes whose namespaces have no host.
_WITHOUT_HOST: Final = ("bigquery", "duckdb")
_CATALOG_PORT: Final = re.compile(r"(?<=[a-z0-9]):(?:443|9083|10000)\Z")
#: What BigQuery adds to a table's name: a partition, or a time to read it as of.
_DECORATOR: Final = re.compile(r"\$[\w~]*|@-?\d+(?:--?\d*)?")


class Spelling(NamedTuple):
    """A table's name as its platform reads it: the form of its namespace, and its parts.

    `fixed`: quotes keep its letter case.
    """

    platform: Platform
    space: str
    parts: tuple[str, ...]
    fixed: bool

    @property
    def folded(self) -> tuple[str, tuple[str, ...]]:
        """The form that ignores letter case."""
        return self.space, tuple(part.casefold() for part in self.parts)


@lru_cache(maxsize=20_000)
def spelling(ref: DatasetRef) -> Spelling | None:
    """Return how a platform reads a name; None for other ones.

    >>> spelling(DatasetRef("snowflake://ORG-A.snowflakecomputing.com", '"db"."s"."t"'))[1:]
    ('snowflake://org-a', ('db', 's', 't'), False)
    >>> spelling(DatasetRef("postgresql://db", "shop.public.orders"))[1:]
    ('postgres://db:5432', ('shop', 'public', 'orders'), False)
    >>> spelling(DatasetRef("bigquery", "prj.ds.orders$20240605"))[1:]
    ('bigquery', ('prj', 'ds', 'orders'), False)
    """
    found = _platform(ref.namespace)
    if found is None:
        return None
    scheme, platform, authority = found
    name = ref.name.strip().lstrip("/")
    if scheme == "bigquery":
        name = _DECORATOR.sub("", name.replace("`", ""))
        name = name.replace(":", ".", 1) if name.count(".") == 1 else name
    pieces = _PART.findall(name) if platform.parts > 1 else [("", "", "", name)]
    parts = tuple(
        double.replace('""', '"') or back.replace("``", "`") or bracket or plain
        for double, back, bracket, plain in pieces
    )
    if "/" in name or not parts or not all(parts):
        return None
    quoted = [double or back or bracket for double, back, bracket, _ in pieces]
    fixed = any(one not in (one.upper(), one.lower()) for one in quoted)
    is_file = scheme == "duckdb"
    space = ref.namespace.rstrip("/") if is_file else _space(scheme, platform, authority)
    return Spelling(platform, space, parts, fixed)


def _platform(namespace: str) -> tuple[str, Platform, str] | None:
    """Return the scheme, platform and host of a namespace; None for other ones."""
    found = _SPACE.fullmatch(namespace)
    if found is None:
        return None
    scheme = found[1].casefold()
    scheme = _SCHEMES.get(scheme, scheme)
    platform, authority = _PLATFORMS.get(scheme), found[2] or ""
    if platform is None or not (authority or scheme in _WITHOUT_HOST):
        return None
    return scheme, platform, authority


def _space(scheme: str, platform: Platform, authority: str) -> str:
    """Return the form of a namespace: no user, no default port, the platform's own host."""
    if "," in authority:  # the brokers of a cluster, in any order
        hosts = sorted(_space(scheme, platform, one) for one in authority.split(","))
        return ",".join(hosts)
    host, colon, port = authority.casefold().rpartition("@")[2].partition(":")
    host = host.rstrip(".")
    if platform.domain is not None and (known := re.fullmatch(platform.domain[0], host)):
        host = known.expand(platform.domain[1])
    if scheme == "snowflake":
        return f"{scheme}://{host.replace('_', '-')}"  # the port is that of HTTPS
    if not host:
        return scheme
    port = port if colon and port else str(platform.port or "")
    return f"{scheme}://{host}:{port}" if port else f"{scheme}://{host}"


@lru_cache(maxsize=1024)
def same_space(namespace: str) -> str:
    """Return the form of a namespace that all ways to write it have.

    >>> same_space("s3a://lake") == same_space("s3://lake/"), same_space("shop")
    (True, 'shop')
    >>> same_space("kafka://b2,b1:9092")
    'kafka://b1:9092,kafka://b2:9092'
    """
    probe = DatasetRef(namespace, "x")
    read = spelling(probe)
    return read.space if read else dataset_storage(*probe[:2]) or namespace


def ways_to_write(ref: DatasetRef) -> dict[str, None]:
    """Return the name of a dataset as it stands, then in the other ways that its platform reads.

    >>> list(ways_to_write(DatasetRef("postgres://db", "Shop.orders")))
    ['Shop.orders', 'shop.orders', 'SHOP.ORDERS']
    >>> list(ways_to_write(DatasetRef("s3://lake", "/orders/")))
    ['/orders/', 'orders', '/orders']
    """
    names, read = [ref.name], spelling(ref)
    if read is not None and read.platform.case in ("upper", "lower") and not read.fixed:
        plain = ".".join(read.parts)
        names += [plain.lower(), plain.upper()]
    elif read is None and dataset_storage(*ref[:2]) is not None:
        plain = ref.name.strip("/")
        names += [plain, f"/{plain}"]
    return dict.fromkeys(names)


def plain_name(ref: DatasetRef) -> DatasetRef:
    """Return the name of the table whose partition or state a name of BigQuery means.

    >>> plain_name(DatasetRef("bigquery", "prj.ds.orders$20240605")).name
    'prj.ds.orders'
    """
    if ref.namespace.rstrip(":/") != "bigquery":
        return ref
    return DatasetRef(ref.namespace, _DECORATOR.sub("", ref.name))


def catalog_space(namespace: str) -> str:
    """Return the form of a catalog's namespace; hosts ignore case, ports have defaults.

    >>> catalog_space("hive://Metastore:9083/") == catalog_space("hive://metastore")
    True
    """
    return _CATALOG_PORT.sub("", namespace.rstrip("/").casefold())


def is_named(alias: str, ref: DatasetRef) -> bool:
    """Whether a declared alias, an address or a glob, is a dataset's name.

    >>> is_named("snowflake://a/DB.S.T", DatasetRef("snowflake://A", "db.s.t"))
    True
    """
    address = f"{ref.namespace.rstrip('/')}/{ref.name.lstrip('/')}"
    if is_glob(alias):
        return any(fnmatchcase(text, alias) for text in (str(ref), address))
    if alias in (str(ref), address, ref.name):
        return True
    place = dataset_storage(*ref[:2])
    if place is not None:
        return storage(alias) == place
    own = spelling(ref)
    if own is None:
        return False
    splits = [alias.rpartition(mark) for mark in (":", "/")]
    return any(
        one.folded == own.folded
        for space, _, name in splits
        if space and (one := spelling(DatasetRef(space, name))) is not None
    )


def same_tables(
    refs: Iterable[DatasetRef], apart: Iterable[Iterable[DatasetRef]] = ()
) -> dict[DatasetRef, object]:
    """Return a key for each name of a known platform, equal where names mean one table.

    Names that differ by letter case alone are one if the platform folds it, if there are only two
    spellings, and if none of the sets `apart`, the datasets of one job, holds both.
    """
    known = {ref: found for ref in refs if (found := spelling(ref)) is not None}
    groups: dict[object, dict[tuple[str, ...], list[DatasetRef]]] = {}
    for ref, one in known.items():
        groups.setdefault(one.folded, {}).setdefault(one.parts, []).append(ref)
    differing = {key: spelled for key, spelled in groups.items() if len(spelled) > 1}
    kept = {key for key, spelled in differing.items() if not _folds(known, spelled)}
    if differing:
        for datasets in apart:
            keys = {(known[ref].folded, known[ref].parts) for ref in datasets if ref in known}
            seen: set[object] = set()
            for key, _ in keys:
                if key in seen:
                    kept.add(key)
                seen.add(key)
    return {
        ref: (one.space, one.parts)
        if one.folded in kept or one.platform.case == "exact"
        else one.folded
        for ref, one in known.items()
    }


def _folds(
    known: Mapping[DatasetRef, Spelling], spelled: Mapping[tuple[str, ...], list[DatasetRef]]
) -> bool:
    """Whether the spellings of one name are one table."""
    ones = [known[ref] for refs in spelled.values() for ref in refs]
    return (
        len(spelled) == 2
        and ones[0].platform.case in ("upper", "lower")
        and not any(one.fixed for one in ones)
    )
