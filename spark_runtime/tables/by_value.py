"""Tables that are not partitioned by their keys: the value of a column says which key a row has.

Keys, and the files of the log, are spans of values: texts that sort as the values do, the first one
included and the last one not (None: unbounded). A commit of another writer may have changed every
key that the bounds of its files overlap; one of ours names its keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Literal

from lineage_backfill.runspec.values import Target
from spark_runtime.errors import PartitionValueError, TableError
from spark_runtime.tables.values import PartitionColumn, Pattern, Values, quoted

#: The span of NULL, and of values that are not a time in the declared format: no key has it.
NOWHERE: Final[Values] = ()

_LITERALS: Final = {"timestamp": "TIMESTAMP'{}Z'", "timestamp_ntz": "TIMESTAMP_NTZ'{}'"}
#: Moves integers of up to 64 bits above zero, so that their digits sort as they do.
_OFFSET: Final = 1 << 63
#: The bounds of a file are cut to milliseconds.
_CUT: Final = timedelta(milliseconds=1)
_STEP: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByValue:
    """The column that is declared: `by` "time" (texts as `form`) or "key"."""

    name: str
    by: Literal["time", "key"]
    form: str | None = None


def by_value(target: Target) -> ByValue | None:
    """Return the column of a table that is not partitioned by its keys, None for partitions."""
    if target.scoped_by is None:
        return None
    (name,) = target.columns
    return ByValue(name=name, by=target.scoped_by, form=target.time_format)


@dataclass(frozen=True, slots=True)
class ValueColumn(PartitionColumn):
    """The column with its type in the table, which is empty if the table lacks it."""

    by: Literal["time", "key"]
    form: str | None = None

    @property
    def is_exact(self) -> bool:
        """Whether its values can be compared."""
        return True

    @property
    def identity(self) -> list[str | None]:
        """What two commits have in common whose spans can be compared."""
        return [self.name.lower(), self.type, self.by, self.form]

    @property
    def is_local(self) -> bool:
        """Whether its values are local times."""
        return self.by == "time" and not self._is_utc

    @property
    def _is_utc(self) -> bool:
        return self.type == "timestamp" or (self.form or "").endswith("Z")

    def refuse_unfit(self, table: object, mixed: str | None) -> None:
        """Raise TableError if the table lacks it or has another type.

        Raises PartitionValueError if keys have the same local times.
        """
        setting = f"{self.by}_column"
        if not self.type:
            raise TableError(
                f"{table} has no column {self.name!r}", hint=f"Correct its `{setting}`."
            )
        if self.by == "key":
            if self.type != "boolean" and not self._is_text and self._bits is None:
                raise TableError(
                    f"{setting} {self.name!r} of {table} is of type {self.type}",
                    hint="Name a STRING, integer or BOOLEAN column.",
                )
            return
        if self._is_text != (self.form is not None) or not (
            self._is_text or self.type in ("date", *_LITERALS)
        ):
            raise TableError(
                f"{setting} {self.name!r} of {table} is of type {self.type}, "
                + ("and has a `time_format`" if self.form else "and has no `time_format`"),
                hint="A STRING needs a `time_format`, TIMESTAMP, TIMESTAMP_NTZ and DATE have none, "
                "and other types cannot be read as a time.",
            )
        if mixed and self.is_local:
            raise PartitionValueError(
                f"{mixed} of {table} have the same local times in {self.name!r}: one cannot be "
                "told from the other",
                hint="Store instants (TIMESTAMP), or run both as one longer period.",
            )

    @property
    def _is_text(self) -> bool:
        return self.type == "string"

    @property
    def _bits(self) -> int | None:
        return {"byte": 8, "short": 16, "integer": 32, "long": 64}.get(self.type)

    # Spans.

    def span(self, text: str | None) -> Values:
        """Return the span of a key; raises PartitionValueError."""
        if text is None:
            raise PartitionValueError(
                f"a run names every key of {self.name!r}", hint="Name the keys one by one."
            )
        if self.by == "key":
            return self._just(str(self.canonical(text)))
        first, _, last = text.partition("/")
        try:
            return self._text(datetime.fromisoformat(first)), self._text(
                datetime.fromisoformat(last)
            )
        except ValueError as error:
            raise PartitionValueError(
                f"{text!r} is not an interval of {self.name!r}",
                hint="Write two instants with their offsets: START/END.",
            ) from error

    def _text(self, at: datetime) -> str:
        """Return a time as spans have it: in UTC, or on the wall clock."""
        at = at.astimezone(UTC) if self._is_utc and at.tzinfo is not None else at
        return at.replace(tzinfo=None).isoformat(timespec="microseconds")

    def _just(self, value: str) -> Values:
        text = value if self._bits is None else f"{int(value) + _OFFSET:020d}"
        return text, f"{text}\0"

    def outside(self, text: str | None) -> Values:
        """Return what stands for a value that no key of the scope has."""
        if text is None:
            return NOWHERE
        return self._just(text) if self.by == "key" else (text[:10], text[:10])

    def extent(self, name: str, body: Mapping[str, Any], stats: Mapping[str, Any]) -> Values:
        """Return the span of a file's values; `name` is the column's name in the log."""
        if name in (held := body.get("partitionValues") or {}):
            if held[name] is None:
                return NOWHERE
            least = most = held[name]
        else:
            nulls = (stats.get("nullCount") or {}).get(name)
            if nulls is not None and nulls == stats.get("numRecords"):
                return NOWHERE
            least, most = ((stats.get(side) or {}).get(name) for side in ("minValues", "maxValues"))
        if self.by == "key":
            ends = [None if one is None else self._of_key(one) for one in (least, most)]
            return ends[0], None if ends[1] is None else f"{ends[1]}\0"
        first, last = self._of_time(least), self._of_time(most)
        try:
            after = None if last is None else self._text(last + _CUT)
        except OverflowError:
            after = None
        return None if first is None else self._text(first), after

    def _of_key(self, value: Any) -> str | None:
        try:
            return self._just(str(value))[0]
        except ValueError:
            return None

    def _of_time(self, value: Any) -> datetime | None:
        """Return a bound as a time, None if it is none."""
        try:
            if not self._is_text:
                at = datetime.fromisoformat(value)
                return None if self._is_utc and at.tzinfo is None else at
            at = datetime.strptime(value, self.form or "")  # noqa: DTZ007 (a wall clock has no zone)
        except (TypeError, ValueError):
            return None
        return at if at.strftime(self.form or "") == value else None

    def ends(self, span: Values) -> list[str | None]:
        """Return the ends of a span for a document: of times the last is excluded.

        >>> ValueColumn("n", "long", "key").ends(ValueColumn("n", "long", "key").span("7"))
        ['7', '7']
        """
        if self.by == "time":
            zone = "+00:00" if self._is_utc else ""
            return [None if end is None else f"{end}{zone}" for end in span[:2]]
        texts = [None if end is None else end.removesuffix("\0") for end in span[:2]]
        return [None if text is None else self._key_text(text) for text in texts]

    def _key_text(self, text: str) -> str:
        return text if self._bits is None else str(int(text) - _OFFSET)

    # SQL.

    def condition(self, spans: Iterable[Pattern], table: str = "") -> str:
        """Return SQL that is true for exactly the values in these spans, never for NULL."""
        name = f"{table}.{quoted(self.name)}" if table else quoted(self.name)
        if self.by == "key":
            literals = sorted({self.end(str(span[0])) for span in spans})
            return f"{name} IN ({', '.join(literals)})"
        ranges = [
            f"({name} >= {self.end(first)} AND {name} < {self.end(last)})"
            for first, last in _joined(spans)
        ]
        found = " OR ".join(ranges) or "false"
        if not self._is_text or not ranges:
            return found
        return f"({found}) AND {self._has_form(name)}"

    def place(self, spans: Sequence[Pattern]) -> str:
        """Return SQL for the place in these spans of the one that holds the value, else NULL."""
        name = quoted(self.name)
        ends = [(str(span[0]), str(span[1])) for span in spans]
        cuts = sorted({end for span in ends for end in span})
        holder: dict[str, int] = {}
        for place, (begin, end) in enumerate(ends):
            held = cuts[bisect_left(cuts, begin) : bisect_left(cuts, end)]
            holder.update(dict.fromkeys(held, place))

        def choose(first: int, last: int) -> str:
            """Return SQL for the segments from cut number `first` - 1 to that before `last`."""
            if first == last:
                found = holder.get(cuts[first - 1]) if first else None
                return "NULL" if found is None else str(found)
            middle = (first + last) // 2
            below, above = choose(first, middle), choose(middle + 1, last)
            return f"IF({name} < {self.end(cuts[middle])}, {below}, {above})"

        found = f"CAST({choose(0, len(cuts))} AS INT)"
        return f"IF({self._has_form(name)}, {found}, NULL)" if self._is_text else found

    def _has_form(self, name: str) -> str:
        return f"length({name}) = {len(date.max.strftime(self.form or ''))}"

    def end(self, text: str) -> str:
        """Return an end of a span as a SQL literal that means the same in every session."""
        if self.by == "key":
            return PartitionColumn(self.name, self.type).literal(self._key_text(text))
        if self.type in _LITERALS:
            return _LITERALS[self.type].format(text)
        at = datetime.fromisoformat(text)
        if self._is_text:
            form = at.strftime(self.form or "")
            # Where the form cannot tell it: what follows the last text before it.
            end = form if self._of_time(form) == at else f"{form}\0"
            return PartitionColumn(self.name, self.type).literal(end)
        day = at.date() if at == at.replace(hour=0, minute=0, second=0, microsecond=0) else None
        return f"DATE'{day or at.date() + timedelta(days=1)}'"

    def shown(self, span: Pattern) -> str:
        """Return a span for a message: `region=eu`, `ts=2024-01-01T00:00:00..2024-01-02T00:00:00`.

        >>> ValueColumn("n", "long", "key").shown(ValueColumn("n", "long", "key").span("7"))
        'n=7'
        """
        if not span:
            return f"{self.name}=NULL"
        first, last = (None if one is None else str(one) for one in span[:2])
        if self.by == "key" and first is not None and last == f"{first}\0":
            return f"{self.name}={self._key_text(first)}"
        ends = [
            "" if one is None else one.rstrip("\0").removesuffix(".000000") for one in (first, last)
        ]
        return f"{self.name}={ends[0] if ends[0] == ends[1] else '..'.join(ends)}"


def document_columns(columns: Sequence[PartitionColumn]) -> list[dict[str, str]]:
    """Return the columns of a document; by value a partition has the two ends of its span."""
    if columns and isinstance(columns[0], ValueColumn):
        return [{"name": end, "type": columns[0].type} for end in ("first", "last")]
    return [{"name": column.name, "type": column.type} for column in columns]


def document_partitions(
    columns: Sequence[PartitionColumn], partitions: Iterable[Values]
) -> list[list[str | None]]:
    """Return partitions for a document; rows of no key are left out."""
    if columns and isinstance(column := columns[0], ValueColumn):
        return [column.ends(span) for span in partitions if span != NOWHERE]
    return [list(values) for values in partitions]


def overlap(one: Pattern, other: Pattern) -> bool:
    """Whether two spans have a value in common.

    >>> overlap(("a", "c"), ("c", "d")), overlap(("a", "c"), ("b", None)), overlap((), ("a", "b"))
    (False, True, False)
    """
    if not one or not other:
        return False
    first = max(str(end) for end in (one[0], other[0], "") if end is not None)
    lasts = [str(end) for end in (one[1], other[1]) if end is not None]
    return not lasts or first < min(lasts)


def reaches(span: Pattern, key: Pattern) -> bool:
    """Whether a span begins or ends within that of a key: a file then has rows of it.

    >>> reaches(("a", "c"), ("b", "c")), reaches(("a", "c"), ("b", "bb"))
    (True, False)
    """
    if not span:
        return False
    first, last = (None if end is None else str(end) for end in span[:2])
    low, high = (str(end) for end in key[:2])
    return (first is not None and low <= first < high) or (last is not None and low < last <= high)


def _joined(spans: Iterable[Pattern]) -> Iterator[tuple[str, str]]:
    """Yield bounded spans in order, those that touch as one."""
    whole: tuple[str, str] | None = None
    for span in sorted((str(span[0]), str(span[1])) for span in spans):
        if span[0] >= span[1]:
            continue
        if whole is not None and span[0] <= whole[1]:
            whole = (whole[0], max(whole[1], span[1]))
            continue
        if whole is not None:
            yield whole
        whole = span
    if whole is not None:
        yield whole
