"""Keys by the value of a column: the conditions, and what a log tells of them; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import InputSpec, OutputSpec, Partition
from spark_runtime.errors import PartitionValueError, TableError
from spark_runtime.read.missing import find_missing
from spark_runtime.tables.by_value import NOWHERE, ByValue, ValueColumn, overlap
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.scope import Scope, predicate
from tests.delta_logs import Log

DAY = "2024-03-10T00:00:00-05:00/2024-03-11T00:00:00-04:00"  # 23 hours
NEXT = "2024-03-11T00:00:00-04:00/2024-03-12T00:00:00-04:00"
FORM = "%Y-%m-%d %H:%M:%S"


def time(kind: str, form: str | None = None) -> ValueColumn:
    return ValueColumn("ts", kind, "time", form)


def text(value: str) -> str:
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


@pytest.mark.parametrize(
    ("column", "first", "last"),
    [
        (
            time("timestamp"),
            "TIMESTAMP'2024-03-10T05:00:00.000000Z'",
            "TIMESTAMP'2024-03-12T04:00:00.000000Z'",
        ),
        (
            time("timestamp_ntz"),
            "TIMESTAMP_NTZ'2024-03-10T00:00:00.000000'",
            "TIMESTAMP_NTZ'2024-03-12T00:00:00.000000'",
        ),
        (time("date"), "DATE'2024-03-10'", "DATE'2024-03-12'"),
    ],
)
def test_days_that_follow_each_other_are_one_half_open_interval(
    column: ValueColumn, first: str, last: str
) -> None:
    """In literals that mean the same in every session."""
    found = predicate([column], map(column.span, (NEXT, DAY)))
    assert found == f"(`ts` >= {first} AND `ts` < {last})"


def test_texts_are_compared_in_their_format_and_length() -> None:
    """A text of another length is no time."""
    column = time("string", FORM)
    found = predicate([column], [column.span(DAY)], "held")
    first, last = text("2024-03-10 00:00:00"), text("2024-03-11 00:00:00")
    name = "held.`ts`"
    assert found == f"(({name} >= {first} AND {name} < {last})) AND length({name}) = 19"


def test_texts_that_end_in_z_are_in_utc() -> None:
    """Whatever the zone of the dataset."""
    column = time("string", "%Y-%m-%dT%HZ")
    assert text("2024-03-10T05Z") in predicate([column], [column.span(DAY)])


def test_an_hour_of_dates_begins_at_midnight_or_holds_none() -> None:
    """A DATE is its midnight."""
    column, hour = time("date"), "2024-03-10T{}:00:00-05:00/2024-03-10T{}:00:00-05:00"
    assert "DATE'2024-03-10' AND `ts` < DATE'2024-03-11'" in column.condition(
        [column.span(hour.format("00", "01"))]
    )
    assert "DATE'2024-03-11' AND `ts` < DATE'2024-03-11'" in column.condition(
        [column.span(hour.format("01", "02"))]
    )


@pytest.mark.parametrize(
    ("kind", "key", "literal"),
    [
        ("string", "O'B${x}", text("O'B${x}")),
        ("long", "-7", "CAST('-7' AS BIGINT)"),
        ("boolean", "true", "true"),
    ],
)
def test_static_keys_are_compared_with_typed_literals(kind: str, key: str, literal: str) -> None:
    """NULL is none of them."""
    column = ValueColumn("k", kind, "key")
    assert predicate([column], [column.span(key)]) == f"`k` IN ({literal})"


@pytest.mark.parametrize(
    ("column", "mixed", "message"),
    [
        (time(""), None, "has no column 'ts'"),
        (time("long"), None, "is of type long"),
        (time("string"), None, "has no `time_format`"),
        (time("date", FORM), None, "has a `time_format`"),
        (time("date"), "a and b", "have the same local times"),
        (ValueColumn("k", "double", "key"), None, "Name a STRING, integer or BOOLEAN column"),
    ],
)
def test_columns_that_cannot_hold_the_keys_are_refused(
    column: ValueColumn, mixed: str | None, message: str
) -> None:
    """With what to declare."""
    with pytest.raises((TableError, PartitionValueError), match=message):
        column.refuse_unfit("t", mixed)


def stats(first: Any, last: Any, nulls: int = 0, rows: int = 5) -> dict[str, Any]:
    return {
        "numRecords": rows,
        "nullCount": {"ts": nulls},
        **({} if first is None else {"minValues": {"ts": first}, "maxValues": {"ts": last}}),
    }


@pytest.mark.parametrize(
    ("column", "bounds", "is_in"),
    [
        # The greatest value is cut down to milliseconds, and has the writer's offset.
        (time("timestamp"), ("2024-03-10T13:59:59.999+09:00",) * 2, False),
        (time("timestamp"), ("2024-03-10T14:00:00.000+09:00",) * 2, True),
        (time("timestamp"), ("2024-03-01T00:00:00.000Z", "2024-03-10T05:00:00.000Z"), True),
        (time("timestamp"), ("2024-03-11T04:00:00.000Z",) * 2, False),
        (time("timestamp_ntz"), ("2024-03-10T23:59:59.999",) * 2, True),
        (time("timestamp_ntz"), ("2024-03-11T00:00:00.000",) * 2, False),
        (time("date"), ("2024-03-09", "2024-03-09"), False),
        (time("date"), ("2024-03-10", "2024-03-10"), True),
        (time("string", FORM), ("2024-03-11 00:00:00",) * 2, False),
        (time("string", FORM), ("2024-03-01 00:00:00", "zebra"), True),
        (time("timestamp"), (None, None), True),
    ],
)
def test_a_file_may_hold_rows_of_a_key_by_its_bounds(
    column: ValueColumn, bounds: tuple[Any, Any], is_in: bool
) -> None:
    """Never too few keys."""
    assert overlap(column.extent("ts", {}, stats(*bounds)), column.span(DAY)) is is_in


def test_a_file_of_nulls_holds_no_key() -> None:
    """Its bounds are missing."""
    assert time("timestamp").extent("ts", {}, stats(None, None, nulls=5)) == NOWHERE


class ByTime(Log):
    """The log of an unpartitioned table with a TIMESTAMP."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        field = {"name": "ts", "type": "timestamp", "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [field]})
        self.commit(
            {"metaData": {"schemaString": schema, "partitionColumns": [], "configuration": {}}}
        )

    def read(self) -> DeltaLog:
        return DeltaLog(str(self.root), by=ByValue(name="ts", by="time"))


def add(path: str, first: str, last: str) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "modificationTime": 1, "dataChange": True}
    return {"add": {**body, "stats": json.dumps(stats(first, last))}}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "partitionValues": {}, "dataChange": True}}


def test_commits_of_others_touch_what_their_files_span_and_ours_name_their_keys(
    tmp_path: Path,
) -> None:
    """A removed file has the bounds with which it was added."""
    log = ByTime(tmp_path)
    column = time("timestamp")
    scope = Scope([column], {column.span(DAY): "2024-03-10"})
    (key,) = scope
    log.commit(add("a", "2024-03-09T00:00:00Z", "2024-03-10T12:00:00Z"))
    log.commit(add("b", "2024-03-20T00:00:00Z", "2024-03-21T00:00:00Z"))
    record = {"token": "t", "by": column.identity, "partitions": [[list(key), 3, "lb2:1"]]}
    log.commit(
        remove("a"),
        add("c", "2024-03-09T00:00:00Z", "2024-03-10T06:00:00Z"),
        {"commitInfo": {"userMetadata": json.dumps({"lineage_backfill": record})}},
    )
    log.commit(add("d", "2024-03-20T00:00:00Z", "2024-03-21T00:00:00Z"))
    delta = log.read()
    touched = [bool(commit.changed(scope)) for commit in delta.commits(0, 4)]
    assert touched == [True, False, True, False]
    assert (delta.state(4).contents(key).rows, delta.state(4).contents(key).fingerprint) == (
        3,
        "lb2:1",
    )
    assert delta.state(2).contents(key).rows is None
    log.commit(remove("c"))
    state = log.read().state()
    assert state.contents(key).rows == 0
    assert next(iter(log.read().commits(4, 5))).changed(scope)


def test_a_scope_contains_no_value_beside_its_keys() -> None:
    """Nor NULL, nor a text that is no time."""
    column = time("timestamp")
    scope = Scope([column], {column.span(DAY): "2024-03-10"})
    assert column.span(DAY) in scope
    assert column.span(NEXT) not in scope
    assert column.outside(None) not in scope
    assert column.outside("2024-03-10 12:00:00") not in scope


def test_a_run_spec_names_the_interval_of_each_key(tmp_path: Path) -> None:
    """Which the scope of the table is made of."""
    output = OutputSpec(
        dataset=DatasetRef("n", "t"),
        columns=("TS",),
        location=str(tmp_path),
        scoped_by="time",
        scope=(Partition(key="2024-03-10", values={"TS": DAY}),),
    )
    state = ByTime(tmp_path / "t").read().state()
    assert list(Scope.of(state, output, output.scope)) == [time("timestamp").span(DAY)]


def test_a_key_that_no_file_spans_was_never_written(tmp_path: Path) -> None:
    """By the bounds of files, which a commit may have emptied since."""
    log = ByTime(tmp_path)
    log.commit(add("a", "2024-03-10T12:00:00Z", "2024-03-10T13:00:00Z"))
    log.commit(remove("a"))
    spec = InputSpec(
        dataset=DatasetRef("n", "t"),
        columns=("ts",),
        location=str(tmp_path),
        scoped_by="time",
        version=2,
        partitions=tuple(
            Partition(key=key, values={"ts": values})
            for key, values in (("2024-03-10", DAY), ("2024-03-11", NEXT))
        ),
    )
    missing = find_missing(spec, log.read())
    assert missing.keys(missing.never) == ("2024-03-11",)
    assert not missing.unknown
