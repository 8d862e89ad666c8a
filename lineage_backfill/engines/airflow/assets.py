"""The lineage of Airflow's assets: which task reads and writes which, and their runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from lineage_backfill.engines.airflow.api import AirflowApi, AirflowSettings, segment
from lineage_backfill.engines.airflow.dag import Dag, runs_of
from lineage_backfill.engines.airflow.slices import instant
from lineage_backfill.errors import LineageError, UnfitRunError
from lineage_backfill.lineage.snapshot import AirflowTask, JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.declarations import DagTasks
from lineage_backfill.project.locations import address_names

_STATES: Final = {"success": "COMPLETE", "failed": "FAIL", "running": "RUNNING"}
#: A task: its DAG and its name there.
Task = tuple[str, str]
Edges = defaultdict[Task, set[str]]


class AirflowAssets:
    """Lineage from the assets of one Airflow; takes the settings of the engine airflow.

    `namespace` is that of jobs which no other lineage names.
    """

    def __init__(self, *, project: Path, namespace: str = "airflow", **settings: Any) -> None:
        self._namespace = namespace
        self._api = AirflowApi(AirflowSettings(**settings))

    def read(self) -> LineageSnapshot:
        """Return the lineage of all assets; raises LineageError, and the errors of the client."""
        return self.read_beside(LineageSnapshot.of([]))

    def read_beside(self, others: LineageSnapshot) -> LineageSnapshot:
        """Return the lineage with the names that `others` give tasks; raises as `read` does."""
        try:
            self._api.refuse_other_versions()
            return self._read(others)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LineageError(
                f"{self._api.url}: an answer of an unknown shape: {error!r}",
                hint="Read the events of Airflow's OpenLineage provider instead.",
            ) from error
        finally:
            self._api.close()

    def _read(self, others: LineageSnapshot) -> LineageSnapshot:
        reads, writes = self._edges()
        names = {(n.airflow.dag, n.airflow.task): n.ref for n in others.jobs.values() if n.airflow}
        tasks = sorted({*reads, *writes})
        refs = {task: names.get(task) or JobRef(self._namespace, ".".join(task)) for task in tasks}
        timetables = {dag: self._timetable(dag) for dag in sorted({dag for dag, _ in tasks})}
        jobs = [
            JobNode(
                ref=refs[dag, task],
                reads=_datasets(reads[dag, task]),
                writes=_datasets(writes[dag, task]),
                airflow=AirflowTask(
                    dag=dag,
                    task=task,
                    inlets=tuple(sorted(reads[dag, task])),
                    outlets=tuple(sorted(writes[dag, task])),
                    timetable=timetables[dag],
                ),
            )
            for dag, task in tasks
        ]
        have_runs = {run.job for run in others.history}
        without = {task: ref for task, ref in refs.items() if ref not in have_runs}
        return LineageSnapshot.of(
            jobs,
            history=tuple(self._history(without)),
            source="airflow",
            taken_at=datetime.now(UTC),
        )

    def _edges(self) -> tuple[Edges, Edges]:
        """Return the addresses that each task reads, and those that it writes."""
        reads, writes = Edges(set), Edges(set)
        starts = defaultdict[str, set[str]](set)
        for one in self._assets():
            for task in one["producing_tasks"]:
                writes[task["dag_id"], task["task_id"]].add(one["uri"])
            for task in one["consuming_tasks"]:
                reads[task["dag_id"], task["task_id"]].add(one["uri"])
            for dag in one["scheduled_dags"]:
                starts[dag["dag_id"]].add(one["uri"])
        for name, uris in starts.items():
            known = {task for task in (*reads, *writes) if task[0] == name}
            read = {uri for task in known for uri in reads[task]}
            for where in known & writes.keys() or known or set(self._first(name)):
                reads[where] |= uris - read
        return reads, writes

    def _assets(self) -> list[Mapping[str, Any]]:
        """Return all assets; raises LineageError for a part of them."""
        assets = list(self._api.listed("/assets", {"order_by": "id"}, "assets"))
        total = self._api.get("/assets", {"limit": 1})["total_entries"]
        if len({one["id"] for one in assets}) != total:
            raise LineageError(
                f"{self._api.url}: {len(assets)} of {total} assets were read",
                hint="Try again: they changed meanwhile.",
            )
        return assets

    def _first(self, dag: str) -> Iterator[Task]:
        """Yield the tasks with which a DAG begins."""
        tasks = self._api.get(f"/dags/{segment(dag)}/tasks")["tasks"]
        below = {name for one in tasks for name in one["downstream_task_ids"]}
        yield from ((dag, one["task_id"]) for one in tasks if one["task_id"] not in below)

    def _timetable(self, dag: str) -> Mapping[str, Any] | None:
        """Return the cron timetable of a DAG, as the provider's events send it; None for others.

        Airflow names neither the mappers of assets nor the zone, which the next run must confirm.
        """
        found = Dag(self._api.get(f"/dags/{segment(dag)}/details"), frozenset())
        with suppress(UnfitRunError):
            if found.kind(DagTasks()) == "interval":
                zone = found.details.get("timezone") or "UTC"
                cron = {"expression": found.details["timetable_summary"], "timezone": zone}
                return cron if found.grid(DagTasks(), zone) is not None else None
        return None

    def _history(self, jobs: Mapping[Task, JobRef]) -> Iterator[ObservedRun]:
        """Yield the newest runs of jobs, with the intervals of scheduled ones."""
        for dag in sorted({dag for dag, _ in jobs}):
            runs = {one["dag_run_id"]: one for one in runs_of(self._api, dag, {})}
            for one in self._api.task_instances([dag], list(runs)):
                job, state = jobs.get((dag, one["task_id"])), _STATES.get(one["state"])
                if job is None or state is None:
                    continue
                run = runs[one["dag_run_id"]]
                start, end = instant(run["data_interval_start"]), instant(run["data_interval_end"])
                is_sliced = start != end and run.get("run_type") != "manual"
                yield ObservedRun(
                    job=job,
                    run_id=f"{run['dag_run_id']}/{one['id']}",
                    state=state,
                    started_at=instant(one["start_date"]),
                    ended_at=instant(one["end_date"]),
                    nominal_start=start if is_sliced else None,
                    nominal_end=end if is_sliced else None,
                    partition_key=run.get("partition_key"),
                )


def _datasets(uris: set[str]) -> tuple[DatasetRef, ...]:
    return tuple(sorted(DatasetRef(*(address_names(uri) or ("asset", uri))) for uri in uris))
