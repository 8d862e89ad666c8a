"""The library inside the Spark job: reads and writes exactly the partitions that a run names.

Nothing here imports Spark until a session is needed, and nothing imports `lineage_backfill`: the
two share only the run spec and the result file (`spark_runtime/schemas`) and OpenLineage events.
"""

from __future__ import annotations

from spark_runtime.context import RunContext
from spark_runtime.errors import RuntimeFailure
from spark_runtime.job import JobDefinition, job
from spark_runtime.spec import RunSpec, load_spec, parse_spec
from spark_runtime.writer import write_partitions

__all__ = [
    "JobDefinition",
    "RunContext",
    "RunSpec",
    "RuntimeFailure",
    "job",
    "load_spec",
    "parse_spec",
    "write_partitions",
]
