"""Reads `[[dataset]]`, `[[job]]` and `[engines.*]` tables as declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lineage_backfill.errors import ConfigError, DeclarationError, UsageError
from lineage_backfill.project.declarations import (
    SPARK_ENGINES,
    UNANSWERED,
    DatasetDeclaration,
    EngineDeclaration,
    JobDeclaration,
)
from lineage_backfill.project.forms import SparkProperties, is_glob
from lineage_backfill.project.locations import absolute
from lineage_backfill.project.patterns import completed, job_name
from lineage_backfill.typed import near_misses, read, read_value, tables

Named = TypeVar("Named", DatasetDeclaration, JobDeclaration)
#: What was read of a file's tables, by their identity: a table that another target leaves as it is
#: is not read again.
Known = dict[int, Any]


def datasets(
    values: Any, place: str, base: Path, known: Known | None = None
) -> tuple[DatasetDeclaration, ...]:
    """Read the `[[dataset]]` tables; relative locations are relative to `base`."""
    found = [one for one in tables(values, "dataset", place) if not _is_unanswered(one[0])]
    return _unique(found, partial(read_dataset, base=base), {} if known is None else known)


def _is_unanswered(values: Mapping[str, Any]) -> bool:
    """Whether a table is only the question of a draft: another one may answer it."""
    is_asked = values.get("grain") == UNANSWERED
    return is_asked and values.keys() <= {"name", "namespace", "grain"}


def read_dataset(
    values: Mapping[str, Any], place: str, base: Path, fault: type[UsageError] = ConfigError
) -> DatasetDeclaration:
    """Read a dataset; a relative location is relative to `base`."""
    declared = read(DatasetDeclaration, values, place, fault=fault)
    with _placed(place, fault):
        if declared.name and not is_glob(declared.name):
            declared = declared.of(declared.name)
        if declared.location is not None:
            declared = replace(declared, location=absolute(declared.location, base))
        return completed(declared)


@contextmanager
def _placed(place: str, fault: type[UsageError]) -> Iterator[None]:
    """Give the errors of a declaration made inside the place of its table."""
    try:
        yield
    except UsageError as error:
        raise fault(f"{place}: {error.message}", hint=error.hint) from error


def jobs(
    values: Any,
    place: str,
    *,
    engines: Iterable[str],
    pools: Iterable[str],
    known: Known | None = None,
) -> tuple[JobDeclaration, ...]:
    """Read the `[[job]]` tables; their engines and pools must be among those given."""
    engines, pools = tuple(engines), tuple(pools)
    return _unique(
        tables(values, "job", place),
        partial(_job, engines=engines, pools=pools),
        {} if known is None else known,
        lambda job: job.engine in (None, *engines) and job.pool in (None, *pools),
    )


def _job(
    values: Mapping[str, Any], place: str, engines: tuple[str, ...], pools: tuple[str, ...]
) -> JobDeclaration:
    declared = read(JobDeclaration, values, place)
    for key, names, where in (("engine", engines, "[engines.*]"), ("pool", pools, "[pools]")):
        name = getattr(declared, key)
        if name is not None and name not in names:
            raise DeclarationError(
                f"{place}: {key} `{name}` is not declared in {where}",
                hint=near_misses(name, names) or f"Declare it in {where}.",
            )
    if declared.pattern is not None:
        with _placed(place, ConfigError):
            declared = replace(declared, name=job_name(declared.pattern, declared.name))
    if declared.engine is None and declared.entrypoint is not None and engines == ("local",):
        declared = replace(declared, engine="local")  # the only one
    return declared


def engine(name: str, values: Mapping[str, Any], place: str) -> EngineDeclaration:
    """Read one `[engines.NAME]` table; `kind` is the name where it is not given."""
    settings = dict(values)
    kind = settings.pop("kind", name)
    found = read(EngineDeclaration, {"name": name, "kind": kind}, place)
    if found.kind in SPARK_ENGINES and "conf" in settings:
        settings["conf"] = read_value(SparkProperties, settings["conf"], "conf", place)
    return replace(found, settings=settings)


def _unique(
    found: Iterable[tuple[Mapping[str, Any], str]],
    read: Callable[[Mapping[str, Any], str], Named],
    known: Known,
    holds: Callable[[Named], bool] = lambda _: True,
) -> tuple[Named, ...]:
    made: dict[tuple[str | None, str], Named] = {}
    for values, place in found:
        declaration = known.get(id(values))
        if declaration is None or not holds(declaration):
            declaration = known[id(values)] = read(values, place)
        key = (declaration.namespace, declaration.name)
        if key in made:
            raise DeclarationError(
                f"{place}: `{declaration.name}` is declared twice", hint="Merge the two."
            )
        made[key] = declaration
    return tuple(made.values())
