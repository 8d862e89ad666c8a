"""The library inside the Spark job: reads and writes exactly the partitions that a run names.

Nothing here imports Spark until a session is needed. Of `lineage_backfill` it imports only the pure
core: names, keys, calendars, mappings, the project file and the run spec.
"""

from __future__ import annotations

from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunKey, RunSpec
from spark_runtime.errors import NothingToRunError, RuntimeFailure
from spark_runtime.job.context import RunContext
from spark_runtime.job.datasets import (
    Calendar,
    Dataset,
    Dimension,
    Read,
    Write,
    all_partitions,
    as_of,
    last,
    new_partitions,
    offset,
    overlap,
    window,
)
from spark_runtime.job.decorator import JobDefinition, job
from spark_runtime.job.script import read, run_context, write_partitions
from spark_runtime.spec import load_spec

__all__ = [
    "Calendar",
    "Dataset",
    "Dimension",
    "JobDefinition",
    "NothingToRunError",
    "Read",
    "RunContext",
    "RunKey",
    "RunSpec",
    "RuntimeFailure",
    "Write",
    "all_partitions",
    "as_of",
    "job",
    "last",
    "load_spec",
    "new_partitions",
    "offset",
    "overlap",
    "parse_spec",
    "read",
    "run_context",
    "window",
    "write_partitions",
]
