"""Locations of tables: local paths, URLs of other file systems, names in a catalog.

One rule decides which names mean one location. Storage: the scheme's family (`s3`, `s3a` and
`s3n` are one, as are `gs` and `gcs`, and `abfs` and `wasb` with all hosts of an account), the
authority without a key or user, and the path, decoded, without empty segments; part files and
folders of partitions belong to the table above them. `/dbfs` is `dbfs:/`, a path alone is `file:`,
`hdfs` has port 8020 by default. Tables: the parts of the name in lower case, without Spark's own
catalogs, in `default` where no schema is given; one catalog may be left out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

#: One letter is a drive, not a scheme; `dbfs:/` has no host.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: The schemes of storage, each with the name of its family.
_FAMILIES: Final = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "abfs"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **{one: one for one in ("file", "dbfs", "hdfs", "viewfs", "adl", "oss", "cos", "obs")},
}
#: Those of one machine or workspace: their URLs need no authority.
_LOCAL: Final = ("file", "dbfs")
_NAME_NODE: Final = ":8020"
_STORAGE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*)?", re.DOTALL)
_ROOT: Final = re.compile(r"[^/]+://[^/]*")
_FOLDER: Final = re.compile(r"[^/=]+=[^/]*")
#: What Spark and Hadoop, Hive and Arrow call the files of a table, and a glob for them.
_PART_FILE: Final = re.compile(r"part-(?:[mr]-)?(?:\d{5}|\d+\.).*|\d{6}_\d.*|.*\*.*", re.ASCII)
#: The log, the metadata or a version of a table, behind its folder.
_OF_A_TABLE: Final = re.compile(
    r"(?:/_delta_log(?:/.*)?|/\.hoodie(?:/.*)?|/metadata/[^/]*\.(?:json|avro)|@v\d+|@\d{17})/?\Z",
    re.ASCII,
)
#: What catalogs call themselves in the namespace of a dataset.
_CATALOG: Final = re.compile(
    r"(hive|thrift|glue|arn:aws[\w-]*:glue|databricks|unity\w*|iceberg|nessie|polaris|spark|trino|presto)\b",
    re.ASCII,
)
_SPARKS_OWN: Final = ("spark_catalog", "hive_metastore")
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def sent_mark(file: Path) -> Path:
    """Return the file that holds how many bytes of a file of events were sent to each address."""
    # Hidden, so that readers of the folder as lineage skip it.
    return file.with_name(f".{file.name}.sent")


def storage(location: str) -> str | None:
    """Return the canonical form of a location; None if it is not one of storage.

    >>> storage("s3a://Lake//raw/orders/"), storage("s3://lake/raw/orders")
    ('s3://lake/raw/orders', 's3://lake/raw/orders')
    >>> storage("file:///lake/a%20b"), storage("/dbfs/mnt/t"), storage("kafka://broker/topic")
    ('file:///lake/a b', 'dbfs:///mnt/t', None)
    """
    scheme, authority, path = "file", "", location
    if not location.startswith("/"):
        found = _STORAGE.fullmatch(location)
        if found is None or found[1].casefold() not in _FAMILIES:
            return None
        scheme = _FAMILIES[found[1].casefold()]
        authority, path = (found[2] or "").casefold(), found[3] or "/"
    authority = _authority(scheme, authority)
    segments = [one for one in unquote(path).split("/") if one not in ("", ".")]
    if scheme == "file" and not authority and segments[:1] == ["dbfs"]:
        scheme, segments = "dbfs", segments[1:]
    return f"{scheme}://{authority}/{'/'.join(segments)}"


def _authority(scheme: str, authority: str) -> str:
    """Return the one form of all ways to write an authority of a scheme."""
    if scheme == "file":
        return "" if authority == "localhost" else authority
    if scheme == "abfs":
        host = authority.replace(".blob.", ".dfs.")
        return host if "." in host.rpartition("@")[2] else f"{host}.dfs.core.windows.net"
    if scheme in ("s3", "hdfs"):
        authority = authority.rpartition("@")[2]  # a key or a user
    return authority.removesuffix(_NAME_NODE) if scheme == "hdfs" else authority


def dataset_storage(namespace: str, name: str) -> str | None:
    """Return the form of `storage` for a dataset with OpenLineage's names; None for others.

    >>> dataset_storage("s3a://lake", "raw/orders"), dataset_storage("file", "/lake/orders")
    ('s3://lake/raw/orders', 'file:///lake/orders')
    """
    if ":/" in name and not name.startswith("/") and (form := storage(name)):
        return form
    root = _root(namespace)
    is_relative = root == "file:" and not name.startswith("/") and not namespace.endswith("/")
    if root is None or is_relative:
        return None
    return storage(f"{root}/{name.lstrip('/')}")


def address_names(address: str) -> tuple[str, str] | None:
    """Return the names that OpenLineage gives an address of storage; None for others.

    >>> address_names("s3://lake/raw/orders/"), address_names("file:///lake/orders")
    (('s3://lake', 'raw/orders'), ('file', '/lake/orders'))
    """
    form = storage(address) if "/" in address else None
    if form is None:
        return None
    scheme, _, rest = form.partition("://")
    authority, _, path = rest.partition("/")
    return (f"{scheme}://{authority}", path) if authority else (scheme, f"/{path}")


@lru_cache(maxsize=1024)
def _root(namespace: str) -> str | None:
    """Return the common beginning of a namespace's locations."""
    root = namespace.rstrip("/").removesuffix(":")
    scheme, separator, _ = root.partition("://")
    if scheme.casefold() not in (_FAMILIES if separator else _LOCAL):
        return None
    return root if separator else f"{scheme.casefold()}:"


def without_file(form: str) -> str:
    """Return a form of `storage`, or a name there, without a part file, log or version at its end.

    >>> without_file("s3://lake/orders/dt=2024-01-01/part-00000-7d1e-c000.snappy.parquet")
    's3://lake/orders/dt=2024-01-01'
    """
    form = _OF_A_TABLE.sub("", form)
    folder, _, file = form.rpartition("/")
    return folder if folder and _PART_FILE.fullmatch(file) else form


def without_partition(form: str) -> str:
    """Return a form of `storage` without a part file and the folders of a partition at its end.

    A name at the root is not a partition, as the root is not a table.

    >>> without_partition("s3://lake/orders/dt=2024-01-01/hour=3")
    's3://lake/orders'
    >>> without_partition("s3://lake/x?q=1")
    's3://lake/x?q=1'
    """
    form = without_file(form)
    while (cut := form.rpartition("/"))[0] and _FOLDER.fullmatch(cut[2]):
        if _ROOT.fullmatch(cut[0]):
            break
        form = cut[0]
    return form


def table_parts(name: str) -> tuple[str, ...]:
    """Return catalog, schema and table of a table's name, the catalog only if significant.

    >>> table_parts("spark_catalog.Sales.orders"), table_parts("orders"), table_parts("a.b.`c.d`")
    (('sales', 'orders'), ('default', 'orders'), ('a', 'b', 'c.d'))
    """
    parts = tuple(
        (quoted.replace("``", "`") or plain).casefold() for quoted, plain in _PART.findall(name)
    )
    if len(parts) == 3 and parts[0] in _SPARKS_OWN:
        return parts[1:]
    return ("default", *parts) if len(parts) == 1 else parts


def dataset_table(namespace: str, name: str, *, linked: bool = False) -> tuple[str, ...] | None:
    """Return the `table_parts` of a dataset of a catalog; None for other ones.

    `linked` is one that is another name of a dataset: of storage too, as Iceberg's catalogs are.

    >>> dataset_table("hive://metastore:9083", "sales.orders")
    ('sales', 'orders')
    >>> dataset_table("arn:aws:glue:eu-west-1:1", "table/sales/orders")
    ('sales', 'orders')
    """
    is_catalog = _CATALOG.match(namespace) is not None
    if not is_catalog and not (linked and (_root(namespace) or storage(namespace))):
        return None
    if is_catalog and name.startswith("table/"):
        name = name.removeprefix("table/").replace("/", ".")
    parts = table_parts(name) if "/" not in name else ()
    return parts if 2 <= len(parts) <= 3 else None


def is_remote(location: str) -> bool:
    """Whether a location is a URL of another file system than this machine's.

    >>> is_remote("s3a://bucket/t"), is_remote("dbfs:/t"), is_remote("file:///t"), is_remote("a:b")
    (True, True, False, False)
    """
    return _URL.match(location) is not None and urlsplit(location).scheme != "file"


def absolute(location: str, base: Path) -> str:
    """Return a location below `base` unless it is absolute or a URL; links are followed."""
    if _URL.match(location):
        return location
    return str((base / Path(location).expanduser()).resolve())


def shared_place(place: str, one: object, other: object) -> tuple[str, str]:
    """Return what is wrong with two datasets at one place, and what to do."""
    text = (
        f"datasets {one} and {other} have one place, {place}: each would replace the other's rows"
    )
    hint = "Give each its own. In a [[dataset]] for several names, {name} stands for each:"
    return text, f'{hint} location = "data/{{name}}".'
