"""Lists that serve several planned slices of a DAG at once, so that each run takes few requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

from lineage_backfill.engines.airflow.api import AirflowApi, segment
from lineage_backfill.engines.airflow.slice import Slice

_Answer = Mapping[str, Any]
#: Planned slices, runs of them, and task instances that one list covers: a page of Airflow.
_MOST = 100


@dataclass
class _Tasks:
    """What is known of some tasks of a DAG: instances by run, and keys not listed yet."""

    left: dict[str, None]
    of: dict[str, tuple[_Answer, list[_Answer]]] = field(default_factory=dict)


class ListsAhead:
    """Reads the runs and tasks of planned slices together; what it returns serves once."""

    def __init__(self, api: AirflowApi) -> None:
        self._api = api
        self._slices: dict[str, dict[Slice, None]] = {}
        self._runs: dict[str, dict[datetime, Sequence[_Answer] | None]] = {}
        self._tasks: dict[tuple[str, ...], _Tasks] = {}

    def clear(self) -> None:
        """Forget everything, also what is planned."""
        self._slices.clear()
        self._runs.clear()
        self._tasks.clear()

    def plan(self, dag: str, slice_: Slice) -> None:
        """Add a planned slice of a DAG."""
        self._slices.setdefault(dag, {})[slice_] = None

    def runs(self, dag: str, first: datetime | None) -> Sequence[_Answer] | None:
        """Return the runs of a logical date; None if unknown.

        They may be out of date. If a run is created meanwhile, Airflow refuses a second one for its
        logical date.
        """
        if first is None:
            return None
        known = self._runs.setdefault(dag, {})
        if first not in known:
            dates = sorted(
                of.logical_date
                for of in self._slices.get(dag, ())
                if of.logical_date is not None and of.logical_date >= first
            )
            if first not in dates:
                return None
            ahead = dates[:_MOST]
            query = {
                "logical_date_gte": first.isoformat(),
                "logical_date_lte": ahead[-1].isoformat(),
                "order_by": "logical_date",
            }
            answer = self._page(dag, query)
            taken = {datetime.fromisoformat(run["logical_date"]): run for run in answer["dag_runs"]}
            last = max(taken) if len(taken) < answer["total_entries"] else ahead[-1]
            known |= {
                date: [taken[date]] if date in taken else [] for date in ahead if date <= last
            }
        found = known.get(first)
        known[first] = None
        return found

    def tasks(
        self, dag: str, key: str | None, runs: Sequence[_Answer], tasks: Sequence[str]
    ) -> list[_Answer] | None:
        """Return the instances of tasks in the runs of a partition key; None if unknown.

        A run serves only if it is as it was when they were listed: none has started since then.
        """
        if key is None:
            return None
        place = (dag, *tasks)
        if place not in self._tasks:
            planned = (of.key for of in self._slices.get(dag, ()))
            self._tasks[place] = _Tasks(dict.fromkeys(one for one in planned if one is not None))
        known = self._tasks[place]
        if key in known.left:
            self._list_tasks(dag, key, tasks, known)
        found = [known.of.pop(run["dag_run_id"], None) for run in runs]
        if any(one is None or one[0] != run for one, run in zip(found, runs, strict=True)):
            return None
        return [task for one in found if one for task in one[1]]

    def _list_tasks(self, dag: str, key: str, tasks: Sequence[str], known: _Tasks) -> None:
        most = _MOST // len(tasks)
        others = (other for other in list(known.left) if other != key)
        ahead = [key, *islice(others, max(most - 1, 0))]
        for one in ahead:
            known.left.pop(one, None)
        if len(ahead) > 2:  # else it would not save a request
            of_key = {"partition_key_prefix_pattern": _common(ahead), "order_by": "-run_after"}
            answer = self._page(dag, of_key)
            runs = [run for run in answer["dag_runs"] if run.get("partition_key") in ahead][:most]
            names = {run["dag_run_id"]: run for run in runs}
            instances = self._api.task_instances([dag], [*names], tasks) if names else ()
            found = list(islice(instances, _MOST + 1))
            if len(found) <= _MOST:  # more than a page may change between two pages
                known.of |= {name: (run, []) for name, run in names.items()}
                for task in found:
                    known.of[task["dag_run_id"]][1].append(task)

    def _page(self, dag: str, query: Mapping[str, Any]) -> Any:
        return self._api.get(f"/dags/{segment(dag)}/dagRuns", {**query, "limit": _MOST})


def _common(keys: Sequence[str]) -> str:
    """Return the longest common beginning of keys.

    >>> _common(["2024-06-15T14", "2024-06-08T00", "2024-06-10T03"])
    '2024-06-'
    """
    both = zip(min(keys), max(keys), strict=False)
    return "".join(one for one, _ in takewhile(lambda two: two[0] == two[1], both))
