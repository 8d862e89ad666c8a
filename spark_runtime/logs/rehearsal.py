"""Runs a run spec on clones of its tables, and compares them with the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lineage_backfill.model import named
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import LineageSpec, OutputSpec
from spark_runtime.errors import RuntimeFailure, TableError
from spark_runtime.job.runner import run
from spark_runtime.logs.rows import RowsRequest, difference
from spark_runtime.tables.tables import Tables
from spark_runtime.tables.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rehearse(spark: SparkSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return which rows of its outputs a run would change, without changing its tables.

    `asked` has the run spec (`spec`), an empty `folder` for shallow clones of the tables, and the
    members of RowsRequest for each output (`rows`). No lineage is sent. Raises TableError for
    tables that cannot be cloned, RuntimeFailure if the run fails.
    """
    spec, tables = parse_spec(asked["spec"]), Tables(spark)
    clones = {
        output.dataset: _clone(spark, tables, output, f"{asked['folder']}/{number}")
        for number, output in enumerate(spec.outputs)
    }
    before = {ref: tables.latest_version(clone) for ref, clone in clones.items()}
    cloned = {ref: clones[ref] for ref, version in before.items() if version is not None}
    inputs = [
        replace(one, location=cloned[one.dataset].location, table=None)
        if one.dataset in cloned
        else one
        for one in spec.inputs
    ]
    moved = replace(
        spec,
        outputs=tuple(clones.values()),
        inputs=tuple(inputs),
        lineage=LineageSpec(),
        result_path=None,
    )
    if error := run(spark, moved, tables).error:
        raise RuntimeFailure(f"{spec.job.name} failed: {error.message}")
    outputs = []
    for clone, how in zip(moved.outputs, asked["rows"], strict=True):
        after = tables.latest_version(clone)
        if after is None:
            raise TableError(f"{clone.dataset} has no table, and the run writes no rows to it")
        request = RowsRequest(
            location=clone.location or "",
            before=before[clone.dataset],
            after=after,
            partitions=[one.values for one in clone.scope],
            scoped_by=clone.scoped_by,
            time_format=clone.time_format,
            **how,
        )
        outputs.append({"dataset": named(clone.dataset), **difference(spark, request)})
    return {"outputs": outputs}


def _clone(spark: SparkSession, tables: Tables, output: OutputSpec, path: str) -> OutputSpec:
    """Return the output with a clone of its table, if that exists; it shares the data files."""
    if output.format != "delta":
        raise TableError(
            f"{output.dataset} is a {output.format} table, and only Delta tables can be cloned",
            hint="Leave out --dry-run-diff for jobs that write it.",
        )
    if tables.latest_version(output) is not None:
        source = output.table or f"delta.{quoted(output.location or '')}"
        spark.sql(f"CREATE TABLE delta.{quoted(path)} SHALLOW CLONE {source}")
    return replace(output, location=path, table=None)
