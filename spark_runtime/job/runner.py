"""Runs one run spec in a session: inputs, job, outputs, lineage, result file."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

from lineage_backfill.runspec.values import RunResult, RunSpec
from spark_runtime.job.attempt import Attempt
from spark_runtime.job.context import RunContext
from spark_runtime.job.decorator import load_job
from spark_runtime.job.script import entered
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, spec: RunSpec, tables: Tables) -> RunResult:
    """Run the job of a run spec and write its result file in any case.

    Never raises for errors of the job: a failure is a result with state "failed".
    """
    attempt = Attempt(spark, spec, tables)
    try:
        if spec.undo is not None:
            attempt.undo(spec.undo)
            return attempt.end()
        context = RunContext(attempt)
        with entered(context):
            attempt.begin()
            job = load_job(spec.job.entrypoint)
            attempt.batch(job.batch)
            job.run(context)
        attempt.check_written()
    except Exception as error:  # noqa: BLE001 (whatever a job raises is a result)
        result = attempt.end(error)
        if result.error is not None:
            what = f"{result.error.class_name}: {result.error.message}"
            sys.stderr.write(f"{spec.job.name} failed: {what}\n")
        traceback.print_exc(file=sys.stderr)
        return result
    except BaseException as stop:  # the process is being ended: report it, then end
        attempt.end(stop)
        raise
    return attempt.end()
