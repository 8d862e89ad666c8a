"""Fix a table upstream; re-run exactly what it broke downstream: no more, no less, nothing lost.

The planner is a plain library: values in, a plan out, without Spark, Java or any I/O.

>>> from datetime import UTC, datetime
>>> from lineage_backfill import (
...     CalendarDeclaration, ChangedDataset, DatasetDeclaration, DatasetRef, Declarations, JobNode,
...     JobRef, LineageSnapshot, Request, build_plan,
... )
>>> orders, daily = DatasetRef("shop", "orders_hourly"), DatasetRef("shop", "orders_daily")
>>> rollup = JobNode(ref=JobRef("shop", "rollup"), reads=(orders,), writes=(daily,))
>>> plan = build_plan(
...     Request(changed=(ChangedDataset(dataset=orders, keys=("2024-06-15T22..2024-06-16T01",)),)),
...     LineageSnapshot.of([rollup]),
...     Declarations(
...         zone="Europe/Berlin",
...         datasets=(
...             DatasetDeclaration(
...                 name="orders_hourly",
...                 calendar=CalendarDeclaration(grain="hour", start="2024-01-01T00"),
...             ),
...             DatasetDeclaration(
...                 name="orders_daily",
...                 calendar=CalendarDeclaration(grain="day", start="2024-01-01"),
...             ),
...         ),
...     ),
...     now=datetime(2024, 7, 1, tzinfo=UTC),
... )
>>> [(run.job.name, run.partitions) for run in plan.runs]
[('rollup', ('2024-06-15',)), ('rollup', ('2024-06-16',))]

A `Planner` plans many requests on one lineage, and indexes it once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lineage_backfill.api import Document as Document
    from lineage_backfill.api import Project as Project
    from lineage_backfill.api import read_lineage as read_lineage
    from lineage_backfill.errors import BackfillError as BackfillError
    from lineage_backfill.lineage.snapshot import ColumnEdge as ColumnEdge
    from lineage_backfill.lineage.snapshot import DatasetNode as DatasetNode
    from lineage_backfill.lineage.snapshot import JobNode as JobNode
    from lineage_backfill.lineage.snapshot import LineageSnapshot as LineageSnapshot
    from lineage_backfill.lineage.snapshot import ObservedRun as ObservedRun
    from lineage_backfill.model import DatasetRef as DatasetRef
    from lineage_backfill.model import JobRef as JobRef
    from lineage_backfill.planning.planner import Planner as Planner
    from lineage_backfill.planning.planner import build_plan as build_plan
    from lineage_backfill.plans.document import plan_from_dict as plan_from_dict
    from lineage_backfill.plans.document import plan_to_dict as plan_to_dict
    from lineage_backfill.plans.notice import Notice as Notice
    from lineage_backfill.plans.plan import Plan as Plan
    from lineage_backfill.plans.plan import PlannedJob as PlannedJob
    from lineage_backfill.plans.plan import PlannedRun as PlannedRun
    from lineage_backfill.plans.request import ChangedDataset as ChangedDataset
    from lineage_backfill.plans.request import ChangedJob as ChangedJob
    from lineage_backfill.plans.request import Request as Request
    from lineage_backfill.project.declarations import CalendarDeclaration as CalendarDeclaration
    from lineage_backfill.project.declarations import DatasetDeclaration as DatasetDeclaration
    from lineage_backfill.project.declarations import Declarations as Declarations
    from lineage_backfill.project.declarations import JobDeclaration as JobDeclaration
    from lineage_backfill.project.declarations import ReadDeclaration as ReadDeclaration
    from lineage_backfill.project.declarations import WriteDeclaration as WriteDeclaration

#: Each public name is loaded from its module on first use, so that the command line starts fast.
_HOME = {
    "BackfillError": "errors",
    "CalendarDeclaration": "project.declarations",
    "ChangedDataset": "plans.request",
    "ChangedJob": "plans.request",
    "ColumnEdge": "lineage.snapshot",
    "DatasetDeclaration": "project.declarations",
    "DatasetNode": "lineage.snapshot",
    "DatasetRef": "model",
    "Declarations": "project.declarations",
    "Document": "api",
    "JobDeclaration": "project.declarations",
    "JobNode": "lineage.snapshot",
    "JobRef": "model",
    "LineageSnapshot": "lineage.snapshot",
    "Notice": "plans.notice",
    "ObservedRun": "lineage.snapshot",
    "Plan": "plans.plan",
    "PlannedJob": "plans.plan",
    "PlannedRun": "plans.plan",
    "Planner": "planning.planner",
    "Project": "api",
    "ReadDeclaration": "project.declarations",
    "Request": "plans.request",
    "WriteDeclaration": "project.declarations",
    "build_plan": "planning.planner",
    "plan_from_dict": "plans.document",
    "plan_to_dict": "plans.document",
    "read_lineage": "api",
}
__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
