"""Scopes are exactly the partitions that they name, and those that fit what they leave open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.values import InputSpec, Partition, ProductKey, Target
from spark_runtime.errors import PartitionValueError, TableError
from spark_runtime.tables.scope import Scope, describe, predicate
from spark_runtime.tables.state import NOTHING, TableState
from spark_runtime.tables.values import ANY, PartitionColumn, Pattern

DAY, HOUR, TEXT = (
    PartitionColumn("day", "date"),
    PartitionColumn("hour", "integer"),
    PartitionColumn("te`xt", "string"),
)
TARGET = Target(dataset=DatasetRef("n", "d"), format="delta", columns=(), location="/d")


def scope(columns: tuple[PartitionColumn, ...], *partitions: Partition) -> Scope:
    names = {column.name.lower(): column.name for column in columns}
    names |= {name.lower(): name for one in partitions for name in one.values}
    target = replace(TARGET, columns=tuple(names.values()))
    return Scope.of(TableState(columns=columns), target, partitions)


def named(day: str, region: str | None) -> dict[str, str | None]:
    return {"day": day, "Region": region}


def test_a_predicate_is_grouped_by_all_columns_but_the_widest() -> None:
    scope = [("2024-01-01", "1"), ("2024-01-01", "2"), ("2024-01-02", None), ("2024-01-01", None)]
    assert predicate((DAY, HOUR), scope) == (
        "(`day` = DATE'2024-01-01' AND "
        "(`hour` IN (CAST('1' AS INT), CAST('2' AS INT)) OR `hour` IS NULL))"
        " OR (`day` = DATE'2024-01-02' AND `hour` IS NULL)"
    )
    assert predicate((TEXT,), [("a",)]) == "(`te``xt` = CAST(X'61' AS STRING))"
    assert predicate((), [()]) == "true"


def test_an_empty_scope_has_no_predicate() -> None:
    with pytest.raises(ValueError, match="at least one"):
        predicate((DAY,), [])


def test_two_keys_in_one_partition_are_refused() -> None:
    keys = [Partition(key=key, values={"HOUR": text}) for key, text in (("a", "1"), ("b", "01"))]
    assert scope((HOUR,), *keys[:1]).keys == {("1",): "a"}
    with pytest.raises(PartitionValueError, match="keys 'a' and 'b' are both stored as hour=1"):
        scope((HOUR,), *keys)


def test_an_input_may_hold_two_keys_in_one_partition() -> None:
    keys = [Partition(key=key, values={"hour": "1"}) for key in ("T01-0400", "T01-0500")]
    read = InputSpec(
        dataset=TARGET.dataset, format="delta", columns=("hour",), location="/t", partitions=None
    )
    assert list(Scope.of(TableState(columns=(HOUR,)), read, keys)) == [("1",)]


def test_partitions_are_described_as_hive_writes_them() -> None:
    assert describe((DAY, HOUR), ("2024-01-01", None)) == "day=2024-01-01/hour=NULL"
    assert describe((), ()) == "*"


@pytest.mark.parametrize("names", [(), ("date",), ("day", "hour")])
def test_a_scope_names_the_columns_of_its_table(names: tuple[str, ...]) -> None:
    partition = Partition(key="k", values=dict.fromkeys(names, "1"))
    target = replace(TARGET, columns=names)
    with pytest.raises(TableError, match=r"partitioned by \['day'\], the run spec says"):
        Scope.of(TableState(columns=(DAY,)), target, [partition])


REGION = PartitionColumn("Region", "string")
OPEN_DAY = Partition(
    key=ProductKey({"day": "2024-01-01", "area": "*"}), values={"day": "2024-01-01"}
)


def test_an_open_column_has_no_term() -> None:
    one: Pattern = ("2024-01-01", "eu")
    open_: Pattern = ("2024-01-01", ANY)
    assert predicate((DAY, REGION), [open_]) == "(`day` = DATE'2024-01-01')"
    # What is named beside it is there anyway.
    assert predicate((DAY, REGION), [one, open_]) == "(`day` = DATE'2024-01-01')"
    two: list[Pattern] = [open_, ("2024-01-02", ANY), ("2024-01-03", "*")]
    assert predicate((DAY, REGION), two) == (
        "(`day` IN (DATE'2024-01-01', DATE'2024-01-02')) OR "
        "(`Region` = CAST(X'2a' AS STRING) AND `day` = DATE'2024-01-03')"
    )
    assert predicate((DAY, REGION), [one, (ANY, ANY)]) == "true"
    assert predicate((REGION,), [("*",)]) == "(`Region` = CAST(X'2a' AS STRING))"


def test_an_open_scope_holds_whatever_fits_it() -> None:
    found = scope((DAY, REGION), OPEN_DAY, Partition(key="x", values=named("2024-01-02", "*")))
    assert (found.is_open, found.is_single, len(found)) == (True, False, 2)
    held = [("2024-01-01", None), ("2024-01-01", "*"), ("2024-01-02", "*")]
    assert all(values in found for values in held)
    assert ("2024-01-02", "eu") not in found
    assert ("2024-01-03", "*") not in found


def test_the_members_of_an_open_scope_bear_their_own_keys() -> None:
    found = scope((DAY, REGION), OPEN_DAY)
    state = TableState(
        columns=(DAY, REGION),
        partitions={("2024-01-01", "*"): NOTHING, ("2024-01-02", "eu"): NOTHING},
    )
    members = found.members(state, also=[("2024-01-01", None), ("2024-01-01", "*")])
    assert [(str(one.key), one.values) for one in members.values()] == [
        ("day=2024-01-01/area=*", named("2024-01-01", "*")),
        ("day=2024-01-01/area=__HIVE_DEFAULT_PARTITION__", named("2024-01-01", None)),
    ]
    assert [one.within for one in members.values()] == [(OPEN_DAY.key,)] * 2
    # Where none fits, it stands for itself, and tells itself from a value `*`.
    (alone,) = found.members(TableState(columns=(DAY, REGION))).values()
    assert (alone.key, alone.values) == (OPEN_DAY.key, {"day": "2024-01-01"})


def test_a_partition_that_is_named_and_fits_is_one_and_bears_its_name() -> None:
    both = [Partition(key="k", values={"Region": "eu"}), Partition(key="*", values={})]
    found = scope((REGION,), *both)
    members = found.members(TableState(columns=(REGION,)), also=[("us",)])
    assert {values: (one.key, one.within) for values, one in members.items()} == {
        ("eu",): ("k", ("*",)),
        ("us",): ("us", ("*",)),
    }
    assert (members["eu",].values, members["us",].values) == (None, {"Region": "us"})


def test_which_partitions_there_are_has_to_be_known() -> None:
    found, incomplete = scope((REGION,), Partition(key="*", values={})), TableState(complete=False)
    with pytest.raises(TableError, match="does not reach back"):
        found.members(incomplete)
    assert scope((REGION,), Partition(key="k", values={"Region": "eu"})).members(incomplete)


def test_open_dimensions_take_the_columns_of_their_names_and_else_come_in_order() -> None:
    columns = tuple(PartitionColumn(name, "string") for name in ("a", "x", "b"))
    key = ProductKey({"one": "*", "b": "*", "a": "1"})
    members = scope(columns, Partition(key=key, values={"a": "1"})).members(also=[("1", "2", "3")])
    assert [str(one.key) for one in members.values()] == ["one=2/b=3/a=1"]
