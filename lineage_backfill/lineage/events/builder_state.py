"""What a builder has folded so far as plain records, and a builder made of them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.events.folded import (
    NOTHING,
    UNREADABLE,
    Dataset,
    Job,
    LatestFacets,
    Run,
    RunIO,
)

_EPOCH = datetime.fromtimestamp(0, UTC)
_instant = datetime.fromisoformat
_RUN = Run.MEMBERS
#: How those of its values are read that are not plain JSON.
_READ: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("last", "started", "completed"), _instant),
    "nominal": tuple,
    "wrote": frozenset,
    "read": lambda triples: frozenset(map(tuple, triples)),
}


def dump(builder: LineageBuilder) -> Iterator[list[Any]]:
    """Yield the state of the builder as lists that JSON can hold.

    Datasets come first, what runs name before the runs that name it; both go by their number.
    """
    yield ["form", *_RUN]
    numbers: dict[Dataset, int] = {}
    for dataset in builder._datasets.values():
        numbers[dataset] = len(numbers)
        yield ["dataset", *dataset.name, _plain(dataset.facets)]
    run_ios: dict[RunIO, int] = {}
    for job in builder._jobs.values():
        named = [run.run_io for run in job.runs.values()]
        for run_io in [*named, job.declared[1]] if job.declared else named:
            if run_io not in run_ios:
                run_ios[run_io] = len(run_ios)
                yield ["run_io", *_numbered(run_io, numbers)]
        declared = job.declared and [job.declared[0].isoformat(), run_ios[job.declared[1]]]
        parent = job.parent and [job.parent[0].isoformat(), *job.parent[1]]
        modes = [[*name, when.isoformat(), mode] for name, (when, mode) in job.modes.items()]
        kinds = [sorted(job.spark), job.is_test, modes]
        yield ["job", *job.name, parent, declared, _plain(job.facets), *kinds]
        for run_id, run in job.runs.items():
            values = (getattr(run, name) for name in _RUN)
            yield ["run", run_id, *(_plain_value(value, run_ios) for value in values)]
    newest = builder.newest and builder.newest.isoformat()
    yield ["end", newest, builder._without_zone, builder._unreadable]


def load(records: Iterable[list[Any]]) -> LineageBuilder:
    """Return the builder whose state was dumped; takes no more records than that.

    Raises ValueError, TypeError, KeyError or IndexError for records that are not of that form.
    """
    builder = LineageBuilder()
    datasets: list[Dataset] = []
    run_ios: list[RunIO] = []
    job: Job | None = None
    for kind, *record in records:
        if kind == "run" and job is not None:
            run_id, *values = record
            job.runs[run_id] = _run(values, run_ios)
        elif kind == "job":
            namespace, name, parent, declared, facets, spark, is_test, modes = record
            job = builder._jobs[namespace, name] = Job((namespace, name))
            job.spark, job.is_test = frozenset(spark), is_test
            job.modes = {(one[0], one[1]): (_instant(one[2]), one[3]) for one in modes}
            job.facets = _facets(facets)
            job.parent = _dated(parent, tuple)
            job.declared = _dated(declared, lambda rest: run_ios[rest[0]])
        elif kind == "run_io":
            reads, writes, columns = record
            run_io = RunIO(
                frozenset(datasets[number] for number in reads),
                frozenset(datasets[number] for number in writes),
                frozenset(builder._columns(datasets[number], facet) for number, facet in columns),
            )
            run_ios.append(NOTHING if run_io == NOTHING else builder._shared(run_io))
        elif kind == "dataset":
            namespace, name, facets = record
            dataset = builder._datasets[namespace, name] = Dataset((namespace, name))
            dataset.facets = _facets(facets)
            datasets.append(dataset)
        elif kind == "form":
            if record != list(_RUN):
                raise ValueError("runs are kept in another form")
        elif kind == "end":
            newest, builder._without_zone, builder._unreadable = record
            builder.newest = newest and _instant(newest)
            return builder
        else:
            raise ValueError(f"a record of an unknown kind: {kind!r}")
    raise ValueError("the end of the state is missing")


def _run(values: Iterable[Any], run_ios: list[RunIO]) -> Run:
    run = Run(_EPOCH)
    for name, value in zip(_RUN, values, strict=True):
        if name == "run_io":
            run.run_io = run_ios[value]
        elif value is not None:
            setattr(run, name, _READ[name](value) if name in _READ else value)
    return run


def _plain_value(value: Any, run_ios: dict[RunIO, int]) -> Any:
    if isinstance(value, RunIO):
        return run_ios[value]
    if isinstance(value, frozenset):
        return sorted(value)
    return value.isoformat() if isinstance(value, datetime) else value


def _numbered(run_io: RunIO, numbers: dict[Dataset, int]) -> list[list[Any]]:
    return [
        sorted(numbers[dataset] for dataset in run_io.reads),
        sorted(numbers[dataset] for dataset in run_io.writes),
        [[numbers[columns.output], columns.facet] for columns in run_io.columns],
    ]


def _plain(facets: LatestFacets) -> dict[str, list[Any]]:
    return {
        name: [when.isoformat()] if value is UNREADABLE else [when.isoformat(), value]
        for name, (when, value) in facets.items()
    }


def _facets(plain: dict[str, list[Any]]) -> LatestFacets:
    return {name: (_instant(when), _read_back(*value)) for name, (when, *value) in plain.items()}


def _read_back(value: Any = UNREADABLE) -> Any:
    """Return what a facet says as reading the facet would; it is left out where that failed."""
    return tuple(map(_read_back, value)) if isinstance(value, list) else value


def _dated(kept: list[Any] | None, read: Callable[[list[Any]], Any]) -> Any:
    return kept and (_instant(kept[0]), read(kept[1:]))
