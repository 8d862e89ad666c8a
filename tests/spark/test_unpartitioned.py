"""A table without partitions is replaced whole only where somebody has declared that."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lineage_backfill.errors import DeclarationError
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = """
[project]
namespace = "test"

[[dataset]]
name = "names"
grain = "none"
location = "names"

[[job]]
name = "naming"

[[job.writes]]
dataset = "names"
{mode}
"""

JOBS = """
from pyspark.sql import DataFrame
from spark_runtime import RunContext, job

@job(output="names"{mode})
def naming(context: RunContext) -> DataFrame:
    return context.spark.sql("SELECT 'new' AS name")
"""


@pytest.mark.parametrize(
    ("in_file", "in_code", "expected"),
    [
        ("", "", ["old"]),
        ("lookback = 0", "", ["old"]),
        ('mode = "full"', "", ["new"]),
        ('mode = "overwrite"', "", ["new"]),
        ('mode = "append"', "", ["new", "old"]),
        (None, ', mode="full"', ["new"]),
        (None, "", ["old"]),
    ],
)
def test_the_default_replaces_no_whole_table(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_file: str | None,
    in_code: str,
    expected: list[str],
) -> None:
    name = f"naming_{abs(hash((in_file, in_code)))}"
    (tmp_path / f"{name}.py").write_text(JOBS.format(mode=in_code))
    text = PROJECT.format(mode=in_file)
    if in_file is None:
        text = text.partition("[[job]]")[0]
    (tmp_path / "lineage-backfill.toml").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    place = str(tmp_path / "names")
    spark.sql("SELECT 'old' AS name").write.format("delta").save(place)
    project, job = load_project(Path()), load_job(f"{name}:naming")
    declared = declare(
        project, "naming", entrypoint=f"{name}:naming", reads=job.reads, writes=job.writes
    )
    if expected == ["old"]:
        with pytest.raises(DeclarationError, match="nothing declares how it is written") as refused:
            run_specs(declared, project, StartRequest(), datetime.now(UTC))
        assert 'mode = "full"' in refused.value.hint
        return
    (spec,) = run_specs(declared, project, StartRequest(), datetime.now(UTC))
    assert run(spark, spec, Tables(spark)).error is None
    rows = spark.read.format("delta").load(place).collect()
    assert sorted(row["name"] for row in rows) == expected
