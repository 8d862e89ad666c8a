"""What the jobs declare to read and write: the lineage before any of them has run."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pyspark.sql import SparkSession

from spark_runtime.job.decorator import load_job


def edges(_spark: SparkSession, *, root: str) -> dict[str, dict[str, list[str]]]:
    """Return the datasets that each job of the project `reads` and `writes`, as decorated."""
    project = tomllib.loads((Path(root) / "lineage-backfill.toml").read_text(encoding="utf-8"))
    jobs = {job["name"]: load_job(job["entrypoint"]) for job in project["job"]}
    return {
        name: {
            "reads": sorted(str(edge.dataset) for edge in job.reads),
            "writes": sorted(str(edge.dataset) for edge in job.writes),
        }
        for name, job in jobs.items()
    }
