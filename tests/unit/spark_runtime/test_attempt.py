"""What the result file says of an error of Spark's, and what a run is without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import InputSpec, Partition, Target
from spark_runtime.job.attempt import Attempt, describe_error
from spark_runtime.read.reader import Inputs
from spark_runtime.tables.tables import Tables

SAID = (
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file {}. File does not "
    "exist. It is possible the underlying files have been updated."
)


def read(name: str, kind: str) -> InputSpec:
    dataset = DatasetRef("n", name)
    where = f"/data/{name}"
    return InputSpec(dataset=dataset, format=kind, columns=(), location=where, partitions=None)


@pytest.mark.parametrize(
    ("file", "expected", "transient"),
    [
        ("file:/data/prices/day=a%20b/f.parquet", "InputChangedError", True),
        ("file:///data/prices/f.parquet", "InputChangedError", True),
        ("file:/data/prices_old/f.parquet", "InputMissingError", False),
        ("file:/data/orders/f.parquet", "InputMissingError", False),
        ("s3a://data/prices/f.parquet", "InputMissingError", False),
    ],
)
def test_a_file_that_is_gone_may_come_back_with_a_retry_where_a_table_keeps_no_versions(
    file: str, expected: str, transient: bool
) -> None:
    inputs = [read("orders", "delta"), read("prices", "parquet")]
    described = describe_error(RuntimeError(SAID.format(file)), inputs)
    assert (described.class_name, described.transient) == (expected, transient)
    assert file in described.message
    assert describe_error(RuntimeError(SAID.format(file))).class_name == "InputMissingError"


def test_a_run_whose_result_file_has_no_place_ends_as_it_would(
    document: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    document["result_path"] = str(tmp_path / "file" / "result.json")
    attempt = Attempt(cast("Any", None), parse_spec(document), Tables())
    assert attempt.end().state == "succeeded"
    assert f"{document['result_path']} was not written: " in caplog.text


class NoTable(Tables):
    """Tables that do not exist yet."""

    def __init__(self) -> None:
        pass

    def latest_version(self, target: Target) -> int | None:
        return None


def test_a_run_of_several_keys_may_read_all_of_an_input() -> None:
    days = tuple(Partition(key=day, values={"ds": day}) for day in ("d1", "d2"))
    spec = replace(
        read("days", "delta"),
        columns=("ds",),
        partitions=days,
        needs=(((0, 0),), ((0, 1),)),
        written=((0, 0),),
        on_missing="read",
    )
    inputs = Inputs(None, (spec,), NoTable())
    assert inputs.read(spec.dataset.name, all_partitions=True) is None
    assert inputs.specs()[0].partitions is None
