"""The command-line arguments of a run: the same for a job, a query and a script.

Names may be written with hyphens or underscores: Databricks passes job parameters as
`--backfill_key=2024-06-15`. An empty value and Airflow's `None` count as not given.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lineage_backfill.errors import SpecError
from lineage_backfill.runspec.instants import read_instant
from spark_runtime.job.dagrun import DagRun, read_dag_run
from spark_runtime.job.scheduled import StartRequest
from spark_runtime.spec import load_spec

_NOT_GIVEN = ("", "None")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that set the keys of a run."""
    given = parser.add_argument_group("keys", "by default, the newest complete key")
    for name, words in (
        ("backfill-key", "keys of the run, separated by commas"),
        ("data-interval-start", "start of Airflow's data interval, an instant with its offset"),
        ("data-interval-end", "its end; runs the keys that became complete within it"),
        ("airflow-run", "Airflow's dag_run as JSON: the run spec in its conf, else its interval"),
        ("lineage-backfill-spec", "a run spec of a backfill, which takes precedence over keys"),
        (
            "schedule",
            "cron expression that starts the run; runs the keys since its previous firing",
        ),
        ("schedule-zone", "the time zone of the schedule, by default that of the keys"),
    ):
        # Only the first form is shown.
        given.add_argument(f"--{name}", dest=name.replace("-", "_"), metavar="TEXT", help=words)
        if "-" in name:
            given.add_argument(f"--{name.replace('-', '_')}", help=argparse.SUPPRESS)
    given.add_argument(
        "--exact", action="store_true", help="leave out keys added by a lookback or a schedule"
    )


def read_request(
    options: argparse.Namespace,
    *,
    parameters: Mapping[str, Any] | None = None,
    result_path: str | None = None,
) -> StartRequest:
    """Return the request in the arguments; raises SpecError for invalid ones."""
    keys = _given(options.backfill_key)
    dag_run = read_dag_run(_given(options.airflow_run))
    if (handed := _given(options.lineage_backfill_spec)) is not None:
        dag_run = DagRun(spec=load_spec(handed))
    given = interval(options.data_interval_start, options.data_interval_end)
    return StartRequest(
        keys=() if keys is None else (keys,),
        interval=given or dag_run.interval,
        dag_run=dag_run,
        schedule=_given(options.schedule),
        schedule_zone=_given(options.schedule_zone),
        exact=options.exact,
        parameters=parameters or {},
        result_path=result_path,
    )


def interval(start: str | None, end: str | None) -> tuple[datetime, datetime] | None:
    """Return the data interval given by two texts, None if it is not given.

    Raises SpecError if a text is not an instant, one is missing, or the end is before the start.
    """
    texts = [text for text in (_given(start), _given(end)) if text is not None]
    if not texts:
        return None
    if len(texts) == 1:
        raise SpecError("a data interval has a start and an end", hint="Give both of them.")
    first, last = map(read_instant, texts)
    if last < first:
        raise SpecError(f"the data interval {texts[0]} to {texts[1]} ends before it begins")
    return first, last


def _given(text: str | None) -> str | None:
    return None if text is None or text in _NOT_GIVEN else text
