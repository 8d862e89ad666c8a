"""Keys of every kind address exactly their partitions, however they are written."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spark_runtime.errors import PartitionValueError, TableError, UnexpectedPartitionError
from spark_runtime.tables.delta.log import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

HOSTILE = [
    "plain",
    "' OR '1'='1",
    "O'Brien",
    "O''Brien",
    '"quoted"',
    "back\\slash",
    "trailing\\",
    "\\u0041",
    "${spark.app.name}",
    "${env:HOME}",
    "lineage-backfill",
    "100%",
    "a%2Fb",
    "a/b",
    "a=b",
    "new\nline",
    "tab\there",
    "space ",
    " space",
    "space",
    "A",
    "a",
    "é",
    "e\u0301",
    "😀",
    "\u2028",
    "0",
    "00",
    "NULL",
    "null",
    "*",
    "--",
    "`tick`",
    "CAST(X'41' AS STRING)",
]


def test_hostile_texts_are_only_texts(spark: SparkSession, table: Callable[..., Any]) -> None:
    made = table("k")
    rows = [(key, i) for i, key in enumerate(HOSTILE)]
    made.write(spark.createDataFrame(rows, "k STRING, n INT"), HOSTILE, run_id="r-0")
    assert dict(made.rows()) == dict(rows)

    replaced, cleared = HOSTILE[::2], HOSTILE[1::2]
    for run, (keys, new) in enumerate([(replaced, 100), (cleared[:3], None), (cleared[3:4], 200)]):
        frame = spark.createDataFrame([(key, new) for key in keys if new], "k STRING, n INT")
        made.write(frame, keys, run_id=f"r-{run + 1}")
    expected = dict(rows) | dict.fromkeys(replaced, 100)
    expected |= {cleared[3]: 200}
    for key in cleared[:3]:
        del expected[key]
    assert dict(made.rows()) == expected
    state = DeltaLog(made.path).state()
    assert {key: state.contents((key,)).rows for key in HOSTILE} == {
        key: int(key in expected) for key in HOSTILE
    }


def test_several_typed_columns_with_nulls_are_replaced_tuple_by_tuple(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day", "hour", "region")
    schema = "day DATE, hour INT, region STRING, n INT"
    everything = [
        (day, hour, region, 0)
        for day in (date(2024, 1, 1), date(2024, 1, 2), None)
        for hour in (0, 1, None)
        for region in ("eu", None)
    ]

    def scope(rows: list[tuple[Any, ...]]) -> list[dict[str, str | None]]:
        texts = [[None if value is None else str(value) for value in row[:3]] for row in rows]
        return [dict(zip(("day", "hour", "region"), text, strict=True)) for text in texts]

    made.write(spark.createDataFrame(everything, schema), scope(everything), run_id="r-0")
    chosen = [row for i, row in enumerate(everything) if i % 3 != 1]
    new = [(*row[:3], 1) for row in chosen]
    made.write(spark.createDataFrame(new, schema), scope(chosen))
    kept = [row for row in everything if row not in chosen]
    assert made.rows() == sorted([*new, *kept], key=repr)

    crossed = (date(2024, 1, 1), 0, "us", 1)
    with pytest.raises(UnexpectedPartitionError, match="day=2024-01-01/hour=0/region=us"):
        made.write(spark.createDataFrame([crossed], schema), scope(chosen), run_id="r-2")


def test_numbers_and_truth_values_are_keys_by_value(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("b", "l", "d")
    schema = "b BOOLEAN, l LONG, d DECIMAL(6,2), n INT"
    rows = [(True, -5, Decimal("1.50"), 1), (False, 2**40, Decimal("0.00"), 2)]
    scope = [
        {"b": "TRUE", "l": "-05", "d": "1.5"},
        {"b": "false", "l": str(2**40), "d": "0"},
    ]
    made.write(spark.createDataFrame(rows, schema), scope, run_id="r-0")
    made.write(spark.createDataFrame([], schema), scope[:1])
    assert made.rows() == rows[1:]


@pytest.mark.parametrize(
    ("kind", "value"), [("TIMESTAMP", "2024-01-01T00:00:00Z"), ("DOUBLE", "1.5")]
)
def test_columns_whose_values_have_no_one_text_are_refused(
    spark: SparkSession, table: Callable[..., Any], kind: str, value: str
) -> None:
    made = table("k")
    frame = spark.sql(f"SELECT CAST(NULL AS {kind}) AS k, 1 AS n")
    with pytest.raises(TableError, match="STRING, DATE or integer"):
        made.write(frame, [value])


def test_a_value_of_another_type_than_the_columns_is_refused(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("day")
    frame = spark.createDataFrame([(date(2024, 1, 1), 1)], "day DATE, n INT")
    with pytest.raises(PartitionValueError, match=r"2024-01'.*date"):
        made.write(frame, ["2024-01"])


def test_renamed_columns_are_found_under_their_new_names(
    spark: SparkSession, table: Callable[..., Any]
) -> None:
    made = table("new")
    properties = "'delta.columnMapping.mode' = 'name'"
    spark.sql(
        f"CREATE TABLE delta.`{made.path}` (old STRING, n INT) USING delta "
        f"PARTITIONED BY (old) TBLPROPERTIES ({properties})"
    )
    spark.sql(f"INSERT INTO delta.`{made.path}` VALUES ('a', 1), (NULL, 2)")
    spark.sql(f"ALTER TABLE delta.`{made.path}` RENAME COLUMN old TO new")
    frame = spark.createDataFrame([("a", 3)], "new STRING, n INT")
    result = made.write(frame, ["a", {"new": None}])
    assert made.rows() == [("a", 3)]
    assert [(p.rows_before, p.rows) for p in result.partitions] == [(1, 1), (1, 0)]


#: What quoting, escaping, paths, patterns and terminals trip over, and then any other character.
FUZZED = st.text(
    st.one_of(
        st.sampled_from("'\"\\`%${}[]()*?/=:;,.~#&|<>! \t\n\r\x7f\u2028\u0301é😀\u017f0Aa_-"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    min_size=1,
    max_size=20,
).filter(lambda text: text != "__HIVE_DEFAULT_PARTITION__")


@pytest.mark.parametrize("kind", ["delta"])
def test_a_thousand_fuzzed_texts_are_only_texts(
    spark: SparkSession, make_table: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    """Two tables of 250 keys each and format: written, a part replaced, a part cleared."""

    @settings(max_examples=2, derandomize=True, phases=[Phase.generate])
    @given(keys=st.lists(FUZZED, min_size=250, max_size=250, unique=True))
    def check(keys: list[str]) -> None:
        made = make_table(tmp_path / str(abs(hash(tuple(keys)))), ("k",), kind)
        expected = dict.fromkeys(keys, 0)
        frame = spark.createDataFrame(list(expected.items()), "k STRING, n INT")
        made.write(frame, keys, run_id="r-0")
        replaced, cleared = keys[::3], keys[1::3]
        frame = spark.createDataFrame([(key, 1) for key in replaced], "k STRING, n INT")
        result = made.write(frame, replaced + cleared)
        expected.update(dict.fromkeys(replaced, 1))
        for key in cleared:
            del expected[key]
        assert dict(made.rows()) == expected
        assert [part.rows for part in result.partitions] == [1] * len(replaced) + [0] * len(cleared)

    check()


@pytest.mark.parametrize("key", ["nul\0", "half \ud83d"])
def test_what_no_folder_can_be_named_by_is_refused(
    spark: SparkSession, table: Callable[..., Any], key: str
) -> None:
    frame = spark.createDataFrame([("x", 1)], "k STRING, n INT")
    with pytest.raises(PartitionValueError, match="character cannot be stored"):
        table("k").write(frame, [key])
