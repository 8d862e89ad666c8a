"""The run of Airflow whose task does a job: it holds a run spec, or the interval of its keys."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime

from lineage_backfill.errors import SpecError
from lineage_backfill.runspec.instants import read_instant
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import JobSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """What `dag_run` is in a template of Airflow.

    `spec` is that of the attempt that created the run. Once the run is cleared, that attempt has
    ended, and its run spec only names the keys.
    """

    interval: tuple[datetime, datetime] | None = None
    spec: RunSpec | None = None
    is_cleared: bool = False

    def spec_for(self, job: JobSpec) -> RunSpec | None:
        """Return the run spec of a job, None where the run holds none for it.

        Raises SpecError where the run is for another job and has no interval.
        """
        if self.spec is None:
            return None
        if self.spec.job.name == job.name:
            entrypoint = self.spec.job.entrypoint or job.entrypoint
            return replace(self.spec, job=JobSpec(name=job.name, entrypoint=entrypoint))
        if self.interval is None:
            raise SpecError(
                f"the run spec is for job {self.spec.job.name}, and its task does {job.name}",
                hint="Pass --job with the name of the job in the project file.",
            )
        return None


def read_dag_run(text: str | None) -> DagRun:
    """Read what `{{ dag_run.model_dump_json() }}` writes; raises SpecError."""
    if text is None:
        return DagRun()
    try:
        run = json.loads(text)
        start, end = run["data_interval_start"], run["data_interval_end"]
        spec = ((run["conf"] or {}).get("lineage_backfill") or {}).get("spec")
        return DagRun(
            interval=_interval(start, end) if start and end else None,
            spec=None if spec is None else parse_spec(spec),
            is_cleared=run["clear_number"] > 0,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(
            f"a run of Airflow cannot be read: {error!r}",
            hint='Pass it whole: "{{ dag_run.model_dump_json() }}".',
        ) from error


def _interval(start: str, end: str) -> tuple[datetime, datetime]:
    return read_instant(start), read_instant(end)
