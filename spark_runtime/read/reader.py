"""Reads inputs: only the partitions that a run needs, at a fixed version."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lineage_backfill.runspec.values import InputResult, InputSpec, PartitionRead, RunKey
from spark_runtime.errors import EntrypointError
from spark_runtime.read.increments import changed_since
from spark_runtime.read.missing import Missing, find_missing
from spark_runtime.tables.by_value import ValueColumn
from spark_runtime.tables.scope import Member, Scope, declared_names, describe
from spark_runtime.tables.state import Contents, total
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import Pattern, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


class Inputs:
    """The inputs of one run, each pinned to a version when the run starts."""

    def __init__(
        self, spark: SparkSession | None, specs: tuple[InputSpec, ...], tables: Tables
    ) -> None:
        self._tables = tables
        self._has_spark = spark is not None
        self._pinned = tuple(self._pin(spec) for spec in specs)
        self._missing = {spec.dataset: self._find_missing(spec) for spec in self._pinned}
        self._filters = True

    def read(
        self,
        dataset: str,
        *,
        all_partitions: bool = False,
        auto_filter: bool = True,
        after: int | None = None,
    ) -> DataFrame | None:
        """Return the needed partitions of one input; see RunContext.read.

        For an input that is read whole, only those that changed after a version.
        """
        spec = self.find(dataset)
        if all_partitions and spec.partitions is not None:
            whole = replace(spec, partitions=None, needs=None, written=None)
            self._pinned = tuple(whole if one is spec else one for one in self._pinned)
            spec = whole
        if not auto_filter and spec.partitions is not None:
            _log.warning(
                "input %s is not filtered to the partitions of the run: filter it by %s",
                spec.dataset,
                ", ".join(spec.columns),
            )
            spec = replace(spec, partitions=None, mixed=None)
            self._filters = False
        if spec.mixed and spec.partitions is not None and spec.scoped_by is None:
            raise EntrypointError(
                f"{spec.mixed} of input {spec.dataset} are one partition of its table, and the run"
                " needs only the first",
                hint="Declare columns that tell its keys apart, or pass auto_filter=False and"
                " filter its rows.",
            )
        if spec.version is None:
            return None
        storage = self._tables.storage(spec)
        if spec.partitions is None:
            new = None if after is None else changed_since(storage.log, after, spec.version)
            held = storage.held(spec.version, new or None)
            return held.limit(0) if new == [] else held
        if not spec.partitions:
            return storage.held(spec.version).limit(0)
        state = self._tables.log(spec).state(spec.version)
        return storage.held(spec.version, Scope.of(state, spec, spec.partitions))

    def refuse_missing(self, run_keys: Sequence[RunKey]) -> None:
        """Raise InputMissingError if required partitions were never written; warn about some."""
        for missing in self._missing.values():
            if problem := missing.problem(run_keys):
                raise problem
            for text in missing.warnings():
                _log.warning(text)

    def results(self) -> tuple[InputResult, ...]:
        """Return what was read: versions, and the fingerprints recorded in the tables' logs."""
        return tuple(map(self._result, self._pinned))

    def rows(self) -> int | None:
        """Return the number of input rows; None if there is no input, or it is unknown."""
        if not self._pinned or not self._filters:
            return None
        return total(held.rows for spec in self._pinned for _, held in self._held(spec))

    def specs(self) -> tuple[InputSpec, ...]:
        """Return the inputs with their pinned versions."""
        return self._pinned

    def find(self, dataset: str) -> InputSpec:
        """Return the one input of this name; raises EntrypointError."""
        found = [spec for spec in self._pinned if spec.dataset.matches(dataset)]
        if len(found) != 1:
            names = ", ".join(str(spec.dataset) for spec in self._pinned) or "none"
            raise EntrypointError(
                f"{len(found)} inputs of this run are named {dataset!r}; it has: {names}",
                hint="Write it as namespace:name, and declare it in [[job.reads]].",
            )
        return found[0]

    def _pin(self, spec: InputSpec) -> InputSpec:
        if spec.version is not None:
            return spec
        return replace(spec, version=self._tables.latest_version(spec))

    def _find_missing(self, spec: InputSpec) -> Missing:
        if spec.version is None:
            return find_missing(spec, None)
        holds = partial(self._holding, spec) if self._has_spark else None
        return find_missing(spec, self._tables.log(spec), holds)

    def _holding(self, spec: InputSpec, patterns: Sequence[Pattern]) -> set[Pattern]:
        """Return which of these keys of a table by value have rows."""
        from pyspark.sql import functions as F

        assert spec.version is not None
        (column,) = self._tables.log(spec).state(spec.version).columns
        assert isinstance(column, ValueColumn)
        held = self._tables.storage(spec).held(spec.version, patterns)
        if column.by == "key":
            texts = held.select(F.col(quoted(column.name)).cast("string")).distinct().collect()
            return {column.outside(text) for (text,) in texts}
        places = held.select(F.expr(column.place(patterns))).distinct().collect()
        return {patterns[place] for (place,) in places if place is not None}

    def _result(self, spec: InputSpec) -> InputResult:
        partitions = tuple(
            PartitionRead(key=one.key, fingerprint=held.fingerprint, values=one.values)
            for one, held in self._held(spec)
        )
        types = None if spec.version is None else self._types(spec)
        missing = self._missing[spec.dataset]
        return InputResult(
            dataset=spec.dataset,
            version=spec.version,
            partitions=partitions,
            types=types,
            missing=missing.keys(missing.never),
            unknown=missing.keys(missing.unknown),
        )

    def _types(self, spec: InputSpec) -> Mapping[str, str] | None:
        """Return the types of the partition columns, by their declared names."""
        state = self._tables.log(spec).state(spec.version)
        if spec.partitions is not None:
            return Scope.of(state, spec, spec.partitions).types
        types = (column.type for column in state.columns)
        return dict(zip(declared_names(spec, state.columns), types, strict=True)) or None

    def _held(self, spec: InputSpec) -> Iterator[tuple[Member, Contents]]:
        """Yield the partitions of an input that the run needs, with their contents.

        For an input that is read whole their values are included, as the run spec has no keys.
        """
        if spec.version is None:
            for partition in spec.partitions or ():
                yield Member(partition.key), Contents()
            return
        state = self._tables.log(spec).state(spec.version)
        if spec.partitions is not None:
            for pattern, member in Scope.of(state, spec, spec.partitions).members(state).items():
                yield member, state.contents(pattern)
            return
        if state.by is not None:
            return
        names = declared_names(spec, state.columns)
        for values, held in state.partitions.items():
            by_name = dict(zip(names, values, strict=True))
            yield Member(describe(state.columns, values), by_name or None), held
