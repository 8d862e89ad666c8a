"""The library inside the Spark job: reads and writes exactly the partitions that a run names.

Nothing here imports Spark until a session is needed, and nothing imports `lineage_backfill`: the
two share only the run spec and the result file (`spark_runtime/schemas`) and OpenLineage events.
"""

from __future__ import annotations

from spark_runtime.context import RunContext
from spark_runtime.datasets import (
    Calendar,
    Dataset,
    Dimension,
    Read,
    Write,
    all_partitions,
    offset,
    window,
)
from spark_runtime.errors import NothingToRunError, RuntimeFailure
from spark_runtime.job import JobDefinition, job
from spark_runtime.script import read, run_context, write_partitions
from spark_runtime.spec import RunSpec, load_spec, parse_spec

__all__ = [
    "Calendar",
    "Dataset",
    "Dimension",
    "JobDefinition",
    "NothingToRunError",
    "Read",
    "RunContext",
    "RunSpec",
    "RuntimeFailure",
    "Write",
    "all_partitions",
    "job",
    "load_spec",
    "offset",
    "parse_spec",
    "read",
    "run_context",
    "window",
    "write_partitions",
]
