"""Converts partition keys to physical columns of a table, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from lineage_backfill.errors import DeclarationError, UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.partitions.calendar import EVERY, Calendar, StaticAxis, TimeAxis
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.ordinals import EMPTY, POINT, OrdinalSet
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import DatasetDeclaration
from lineage_backfill.project.resolve.physical_columns import PhysicalColumns, physical_columns
from lineage_backfill.staleness.value_keys import ValueKeys

_INTEGERS = ("byte", "short", "integer", "long")
#: Types with one text for each value; other types cannot be read as keys.
_EXACT = (*_INTEGERS, "string", "date", "boolean")


def table_of(resolver: Resolver, dataset: DatasetRef) -> DatasetDeclaration:
    """Return where a dataset is stored; raises DeclarationError if unknown."""
    data = resolver.dataset(dataset)
    data.refuse_unplaced()
    assert data.declaration is not None
    return data.declaration


def delta_table_of(resolver: Resolver, dataset: DatasetRef) -> DatasetDeclaration:
    """Return where a dataset is stored; raises DeclarationError unless it is a Delta table."""
    declared = table_of(resolver, dataset)
    if declared.format not in (None, "delta"):
        raise DeclarationError(
            f"dataset {dataset} is stored as {declared.format}, which keeps no log of all changes",
            hint="Name the partitions that changed, with --from and --to or --partitions.",
        )
    return declared


def keys_of(
    resolver: Resolver,
    dataset: DatasetRef,
    partitions: Sequence[Mapping[str, str | None]],
    types: Mapping[str, str],
) -> tuple[KeySet, tuple[str, ...], bool]:
    """Return the keys of table partitions, the partitions that are not keys, and if it is exact.

    `types` names the table's partition columns and their types. Raises DeclarationError if the
    declarations do not determine the keys.
    """
    reader = reader_of(resolver, dataset, types)
    if reader.calendar.is_whole:
        return ((EVERY,) if partitions else ()), (), True
    found, strange = reader.find(partitions)
    return render(reader.calendar, found), strange, reader.is_exact(partitions)


def reader_of(
    resolver: Resolver, dataset: DatasetRef, types: Mapping[str, str]
) -> TableKeys | ValueKeys:
    """Return the reader for partitions of a dataset's table; raises DeclarationError.

    `types` names the table's partition columns and their types.
    """
    calendar, declared = resolver.calendar(dataset), table_of(resolver, dataset)
    if calendar is None:
        text, hint = resolver.dataset(dataset).unknown
        raise DeclarationError(text, hint=hint)
    if declared.value_column is not None:
        kind = next(iter(types.values()))
        return ValueKeys(
            dataset=dataset, calendar=calendar, column=declared.value_column, kind=kind
        )
    names = {name.lower(): name for name in types}
    columns = physical_columns(declared)
    if not calendar.is_whole and {column.lower() for column in columns} != set(names):
        raise DeclarationError(
            f"the table of {dataset} is partitioned by {', '.join(types) or 'nothing'}, but "
            f"{', '.join(columns) or 'no columns'} are declared",
            hint="Correct its `columns` in the project file.",
        )
    if calendar.is_whole:
        return TableKeys(calendar=calendar, columns={}, types={})
    for column, kind in types.items():
        if kind not in _EXACT and not kind.startswith("decimal"):
            raise DeclarationError(
                f"the table of {dataset} is partitioned by {column} of type {kind}, which "
                "cannot be read as a key",
                hint="Partition it by a STRING, DATE or integer column.",
            )
    return TableKeys(
        calendar=calendar,
        columns=columns,
        types={column: types[names[column.lower()]] for column in columns},
        names={column: names[column.lower()] for column in columns},
    )


@dataclass(frozen=True, kw_only=True)
class TableKeys:
    """Reads the partitions of a table as keys of its calendar.

    `types` names the type of each physical column as the table's schema does, `names` the column
    itself where it is spelled otherwise there.
    """

    calendar: Calendar
    columns: PhysicalColumns
    types: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)

    def find(
        self, partitions: Iterable[Mapping[str, str | None]]
    ) -> tuple[PartitionSet, tuple[str, ...]]:
        """Return the keys of the partitions, and the partitions that are not existing keys.

        Raises DeclarationError if the declared columns do not determine the keys.
        """
        times: dict[int, list[int]] = {}
        strange = []
        for held in partitions:
            values = {column: held[self.names.get(column, column)] for column in self.columns}
            ordinals, mask = self._ordinals(values), self._mask(values)
            if ordinals and mask:
                times.setdefault(mask, []).extend(ordinals)
            else:
                strange.append(path_of(values))
        boxes = [(OrdinalSet.of(ordinals), mask) for mask, ordinals in times.items()]
        return PartitionSet.of(boxes), tuple(strange)

    def held(self, partitions: Iterable[Mapping[str, str | None]]) -> PartitionSet:
        """Return the keys of partitions that were written."""
        return self.find(partitions)[0]

    def is_exact(self, partitions: Iterable[Mapping[str, str | None]]) -> bool:
        """Whether partitions have rows of no other keys."""
        return True

    def runtime_keys(
        self, partitions: Iterable[Mapping[str, str | None]]
    ) -> Iterator[tuple[str, str]]:
        """Yield the keys of runtime dimensions in the partitions, with the dimension's name."""
        axes = [(axis, self._column(axis)) for axis in self.calendar.statics if axis.runtime]
        for held in partitions:
            for axis, column in axes:
                key = stored(held[self.names.get(column, column)], self.types[column])
                if key and key != EVERY:
                    yield axis.name, key

    @cached_property
    def _time_columns(self) -> Mapping[str, str | None]:
        """The columns with the time, each with its format."""
        axis = self.calendar.time
        statics = {one.name for one in self.calendar.statics}
        found = {
            column: form
            for column, (form, dimension) in self.columns.items()
            if axis and (form is not None or (dimension or column) not in statics)
        }
        if (
            axis is not None
            and axis.existing
            and axis.last not in self._near(axis, found, self._texts(axis, found))
        ):
            raise DeclarationError(
                f"keys cannot be read back from {dict(found) or 'the declared columns'}",
                hint="Name the changed partitions, or declare columns that contain the time.",
            )
        return found

    @staticmethod
    def _texts(axis: TimeAxis, forms: Mapping[str, str | None]) -> dict[str, str]:
        """Return the column values of the newest key."""
        local, label = axis.grid.local_start(axis.last), axis.grid.label(axis.last)
        return {c: label if form is None else local.strftime(form) for c, form in forms.items()}

    def _ordinals(self, values: Mapping[str, str | None]) -> list[int]:
        """Return the time ordinals with these column values: one, or two if clocks go back."""
        axis = self.calendar.time
        if axis is None:
            return [POINT.lo]
        texts = {column: text for column in self._time_columns if (text := values[column])}
        near = self._near(axis, self._time_columns, texts).clip(axis.first, axis.begun)
        return [ordinal for ordinal in near if self._reads(axis, ordinal, texts)]

    @staticmethod
    def _near(
        axis: TimeAxis, forms: Mapping[str, str | None], texts: Mapping[str, str]
    ) -> OrdinalSet:
        """Return a few candidate ordinals, which include the matching ones."""
        if not texts or texts.keys() != forms.keys():
            return EMPTY
        label = next((texts[column] for column, form in forms.items() if form is None), None)
        if label is not None:
            try:
                return OrdinalSet.of([axis.grid.find(label)])
            except UsageError:  # not a key
                return EMPTY
        local = _read(texts, forms)
        if local is None:
            return EMPTY
        instants = [axis.grid.zone.instant(local, fold) for fold in (0, 1)]
        return OrdinalSet.of(axis.grid.at(t) + step for t in instants for step in (-1, 0, 1))

    def _reads(self, axis: TimeAxis, ordinal: int, texts: Mapping[str, str]) -> bool:
        local = axis.grid.local_start(ordinal)
        return all(
            form is None or self._same(column, local.strftime(form), texts[column])
            for column, form in self._time_columns.items()
        )

    def _mask(self, values: Mapping[str, str | None]) -> int:
        """Return the mask of the static keys; 0 if there is no such combination."""
        masks = []
        for axis in self.calendar.statics:
            column = self._column(axis)
            masks.append(self._position(axis, column, values[column]))
        return self.calendar.combine(masks)

    def _column(self, axis: StaticAxis) -> str:
        named = (c for c, (_, name) in self.columns.items() if (name or c) == axis.name)
        return next(named, next(iter(self.columns)))

    def _position(self, axis: StaticAxis, column: str, text: str | None) -> int:
        if text is None:
            return 0
        for key, position in axis.index.items():
            if self._same(column, key, text):
                return 1 << position
        return 1 << axis.index[EVERY] if axis.runtime else 0

    def _same(self, column: str, ours: str, theirs: str | None) -> bool:
        """Whether a text of ours and one from the table's log are the same value."""
        return stored(ours, self.types[column]) == stored(theirs, self.types[column])


def stored(text: str | None, kind: str) -> str | None:
    """Return a value as a column of that type stores it: numbers without leading zeros.

    >>> stored("06", "integer"), stored("06", "string"), stored("-1", "long")
    ('6', '06', '-1')
    """
    is_number = kind in _INTEGERS and re.fullmatch(r"[+-]?[0-9]+", text or "")
    return str(int(text)) if text and is_number else text


def path_of(values: Mapping[str, str | None]) -> str:
    """Return a partition of a table for a message: `day=2024-01-01/region=NULL`."""
    return "/".join(f"{name}={'NULL' if v is None else v}" for name, v in values.items()) or "*"


def _read(texts: Mapping[str, str], forms: Mapping[str, str | None]) -> datetime | None:
    """Return the local time in the columns; None if they contain none."""
    text = "\n".join(texts[column] for column, form in forms.items() if form is not None)
    form = "\n".join(form for form in forms.values() if form is not None)
    if "%V" in form and "%u" not in form:  # a week is stored as its Monday
        text, form = f"{text}\n1", f"{form}\n%u"
    try:
        return datetime.strptime(text, form)  # noqa: DTZ007 (a wall clock has no zone)
    except ValueError:
        return None
