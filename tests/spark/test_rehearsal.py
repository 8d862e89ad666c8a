"""A run on clones of its tables tells which rows it would change, and changes none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.runspec.values import (
    InputSpec,
    JobSpec,
    LineageSpec,
    OutputSpec,
    Partition,
    RunKey,
    RunSpec,
)
from spark_runtime.logs.rehearsal import rehearse
from tests.sampling import a_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

JOBS = """
from pyspark.sql import functions as F
from spark_runtime import job

@job(inputs={"raw": "raw"}, output="out")
def copy(raw):
    return raw

@job(inputs={"raw": "raw"}, output="out", mode="merge", merge_on=["id"])
def merge(raw):
    return raw

@job(inputs={"raw": "raw", "out": "out"}, output="out", mode="append")
def add(raw, out):
    return raw.withColumn("n", F.lit(out.count()))

@job(inputs={"raw": "raw"}, output="out")
def fail(raw):
    return raw.where("1/0 > 0")
"""
SCHEMA = "day STRING, id INT, n INT"
RAW = [("d1", 1, 10), ("d1", 2, 25), ("d1", 3, 30)]
OUT = [("d1", 1, 10), ("d1", 2, 20), ("d2", 9, 90)]
OUTCOMES = {"copy": (1, 0, 1), "merge": (1, 0, 1), "add": (3, 0, 0)}


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, rows in (("raw", RAW), ("out", OUT)):
        frame = spark.createDataFrame(rows, SCHEMA)
        frame.write.format("delta").partitionBy("day").save(str(tmp_path / name))
    (tmp_path / "rehearsed.py").write_text(JOBS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("rehearsed", None)


def asked(folder: Path, job: str, **more: Any) -> dict[str, Any]:
    clones = folder / "clones"
    clones.mkdir(exist_ok=True)
    part = (Partition(key="d1", values={"day": "d1"}),)
    place: dict[str, Any] = {"format": "delta", "columns": ("day",)}
    modes: dict[str, Any] = {"merge": "merge", "add": "append"}
    reads = ("raw", "out") if job == "add" else ("raw",)
    output = {
        "dataset": DatasetRef("n", "out"),
        "location": str(folder / "out"),
        "scope": part,
        "mode": modes.get(job, "overwrite"),
        **place,
        **more,
    }
    spec = RunSpec(
        backfill_id="dry-run",
        run_id="r",
        attempt=1,
        token="dry-run",
        job=JobSpec(name=JobRef("n", job), entrypoint=f"rehearsed:{job}"),
        partitions=("d1",),
        keys=(RunKey(key="d1", start=None, end=None),),
        outputs=(OutputSpec(**output),),
        inputs=tuple(
            InputSpec(
                dataset=DatasetRef("n", name),
                location=str(folder / name),
                partitions=part,
                **place,
            )
            for name in reads
        ),
        parameters={},
        lineage=LineageSpec(outbox=str(folder / "outbox")),
        result_path=str(folder / "result.json"),
    )
    return {
        "spec": spec.to_dict(),
        "folder": str(clones),
        "rows": [{"row_key": ["id"], "most": 5}],
    }


def held(folder: Path) -> dict[str, bytes]:
    """All files but those of the clones."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"clones", "__pycache__"} & set(path.parts)
    }


@pytest.mark.parametrize(("job", "expected"), a_part(OUTCOMES.items(), every=2))
def test_it_tells_what_changes_and_leaves_all_as_it_is(
    spark: SparkSession, folder: Path, job: str, expected: tuple[int, int, int]
) -> None:
    before = held(folder)
    (output,) = rehearse(spark, asked(folder, job))["outputs"]
    kinds = ("added", "removed", "changed")
    assert tuple(output[kind]["count"] for kind in kinds) == expected
    assert held(folder) == before
    assert output["dataset"] == {"namespace": "n", "name": "out"}
    if job == "copy":
        assert output["changed"]["rows"] == [{"id": "2", "n": {"before": "20", "after": "25"}}]


def test_a_table_that_is_not_there_yet_is_all_new(spark: SparkSession, folder: Path) -> None:
    (output,) = rehearse(spark, asked(folder, "copy", location=str(folder / "new")))["outputs"]
    assert (output["rows_before"], output["added"]["count"]) == (0, 3)
    assert not (folder / "new").exists()


def test_a_run_that_fails_says_why(spark: SparkSession, folder: Path) -> None:
    before = held(folder)
    with pytest.raises(BackfillError, match=r"fail failed: .*DIVIDE_BY_ZERO"):
        rehearse(spark, asked(folder, "fail"))
    with pytest.raises(BackfillError, match="only Delta tables can be cloned"):
        rehearse(spark, asked(folder, "copy", format="parquet"))
    assert held(folder) == before
