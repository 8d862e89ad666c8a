"""DAG runs to create: the whole DAG runs then, so what it writes must be planned."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from lineage_backfill import redaction
from lineage_backfill.engines.airflow.api import AirflowApi
from lineage_backfill.engines.airflow.dag import Dag, runs_of
from lineage_backfill.engines.airflow.slices import Slice
from lineage_backfill.errors import EngineError, GuardRailError, UnfitRunError
from lineage_backfill.model import DatasetRef
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.project.declarations import DagTasks

_log = logging.getLogger(__name__)
_SHOWN = 5
_PART = re.compile(r"{(key|start|end)}")


class NewRuns:
    """Judges what creating the DAG runs of a plan would run.

    `writers` returns what the tasks of a DAG write, `waits` are the runs that others wait for, as
    Airflow starts all tasks of a new run together, and `also_writes` what runs write outside the
    plan.
    """

    def __init__(
        self, api: AirflowApi, writers: Callable[[str], Mapping[str, Collection[DatasetRef]]]
    ) -> None:
        self._api = api
        self._writers = writers
        self._groups: dict[tuple[str, Slice], dict[str, DagTasks]] = {}
        self._upstream: dict[str, Sequence[str]] = {}
        self._present = set[tuple[str, Slice]]()
        self.waits: dict[str, Collection[str]] = {}
        self.also_writes: dict[str, Collection[DatasetRef]] = {}

    def judge(
        self, planned: Iterable[tuple[PlannedRun, DagTasks, Slice]], dags: Mapping[str, Dag]
    ) -> None:
        """Refuse new runs that would write more than is planned, before any run has begun."""
        self._groups.clear()
        self._present.clear()
        self.waits, self.also_writes = {}, {}
        for run, task, slice_ in planned:
            self._groups.setdefault((task.dag, slice_), {})[run.id] = task
            self._upstream[run.id] = run.upstream
        along = defaultdict[str, set[str]](set)
        for (dag, slice_), group in self._groups.items():
            if self._others(dag, slice_) or len(group) > 1 or len(dags[dag].tasks) > 1:
                if any(map(slice_.fits, runs_of(self._api, dag, slice_.query()))):
                    self._present.add((dag, slice_))
                else:
                    along[dag] |= self._judge_new(dags[dag], slice_, group)
        for dag, tasks in along.items():
            if tasks:
                _log.warning(
                    "missing runs of DAG %s will be created; also run in them: %s",
                    dag, ", ".join(sorted(tasks)),
                )  # fmt: skip

    def _judge_new(self, dag: Dag, slice_: Slice, group: Mapping[str, DagTasks]) -> frozenset[str]:
        """Refuse a new run that would write too much; return the tasks that also run in it."""
        others = self._others(dag.id, slice_)
        if others and not all(task.whole_dag for task in group.values()):
            shown = ", ".join(f"{dag.id}.{task}" for task in sorted(others)[:_SHOWN])
            raise GuardRailError(
                f"DAG {dag.id} has no run for {slice_.label}, and a new one would also run"
                f" tasks that write and are not planned for it: {shown}",
                hint="Give the planned jobs of this DAG `whole_dag = true` to run them as well,"
                " let Airflow run the slice first, or leave these keys out.",
            )
        if written := sorted({one for each in others.values() for one in each}):
            self.also_writes |= dict.fromkeys(group, written)
        above = {name for run in group for name in self._upstream[run]} - group.keys()
        self.waits |= {run: above.difference(self._upstream[run]) for run in group}
        return dag.tasks - self.planned(dag.id, slice_)

    def refuse_deleted(self, dag: str, slice_: Slice) -> None:
        """Raise EngineError for a run that was there when the backfill began."""
        if (dag, slice_) in self._present:
            raise EngineError(
                f"the run of DAG {dag} for {slice_.label} was deleted since the backfill began",
                hint="`resume` the backfill: it then creates the run once all its inputs are done.",
            )

    def planned(self, dag: str, slice_: Slice) -> set[str]:
        """Return the tasks of a DAG that are planned for a slice."""
        groups = self._groups.get((dag, slice_), {}).values()
        return {name for task in groups for name in task.tasks}

    def conf(self, task: DagTasks, slice_: Slice, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the conf of a new run; raises UnfitRunError for secrets: every user can read it.

        It holds the run spec if the run is for one job, and the `conf` of each of its jobs.
        """
        given = {"parameters": spec.get("parameters") or {}}
        if redaction.document(given) != given:
            raise UnfitRunError(
                "a secret parameter cannot be passed to Airflow: everyone who sees the run can read"
                " it",
                hint="Keep it in a Connection or Variable of Airflow.",
            )
        (key,) = spec["keys"]
        group = self._groups.get((task.dag, slice_), {})
        made: dict[str, Any] = {"lineage_backfill": dict(key)}
        if len(group) <= 1:
            made["lineage_backfill"] |= {"token": spec["token"], "spec": dict(spec)}
        for one in (*group.values(), task):
            for name, text in one.conf.items():
                made[name] = _PART.sub(lambda found: str(key.get(found[1])), text)
        return made

    def _others(self, dag: str, slice_: Slice) -> Mapping[str, Collection[DatasetRef]]:
        """Return the tasks that write and are not planned for a slice."""
        planned = self.planned(dag, slice_)
        return {task: of for task, of in self._writers(dag).items() if task not in planned}
