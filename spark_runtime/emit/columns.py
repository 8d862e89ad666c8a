"""Column lineage of an output from Spark's own plan: complete, or none.

The planner skips readers that a column change does not reach: partial column lineage would make it
wrong. So there is none if a step of Spark's plan is unknown, if a column comes from elsewhere, or
if the job ran other Spark jobs: a value collected from an input is a constant in the plan.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lineage_backfill.model import DatasetRef
from spark_runtime import classic
from spark_runtime.session import EVERY_QUERY_IS_A_JOB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: A column of an input.
Origin = tuple[DatasetRef, str]

#: The members with which each kind of step defines columns, besides those it passes through.
_DEFINES = {
    "Project": "projectList",
    "Aggregate": "aggregateExpressions",
    "Window": "windowExpressions",
}
#: Steps that pass through the columns of their one input.
_HANDS_ON = {
    "CollectMetrics",
    "Deduplicate",
    "Distinct",
    "Filter",
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sample",
    "Sort",
    "SubqueryAlias",
    "View",
}
#: An expression with a nested plan, which is not examined.
_PLANS_INSIDE = ("Subquery", "Exists", "ListQuery", "OuterReference")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLineage:
    """The input columns of each output column, and those that decide which rows exist."""

    fields: Mapping[str, frozenset[Origin]]
    rows: frozenset[Origin]


class ColumnTrace:
    """Traces the columns of a run's inputs to its outputs; on any failure, returns None."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._origins: dict[int, Origin] = {}
        self._known = self._count()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do not count Spark jobs in this block as the job's own."""
        before = self._count()
        try:
            yield
        finally:
            self._known += self._count() - before

    def take(self, dataset: DatasetRef, frame: DataFrame) -> None:
        """Record the columns of an input that the job gets."""
        try:
            columns = _Plan(classic.plan_of(frame)).columns()
        except Exception as error:  # noqa: BLE001 (no run fails by its lineage)
            _log.debug("the columns of %s cannot be traced: %s", dataset, error)
            return
        names = [(dataset, name) for name in frame.columns]
        self._origins |= dict(zip(columns, names, strict=True))

    def of(self, frame: DataFrame) -> ColumnLineage | None:
        """Return the column lineage of an output, None if it is incomplete."""
        if self._count() != self._known:
            return None
        try:
            plan = _Plan(classic.plan_of(frame))
            return plan.lineage(frame.columns, self._origins)
        except Exception as error:  # noqa: BLE001 (no run fails by its lineage)
            _log.debug("columns cannot be traced: %s", error)
            return None

    def _count(self) -> float:
        """Return the number of Spark jobs so far.

        NaN, which equals nothing, if it is unknown or not every query is a job.
        """
        try:
            jobs = classic.jobs_so_far(self._spark)
            is_counted = self._spark.conf.get(EVERY_QUERY_IS_A_JOB) == "false"
        except Exception:  # noqa: BLE001 (a session without a scheduler of its own tells nothing)
            return math.nan
        return float(jobs) if is_counted else math.nan


class _UntraceableError(Exception):
    """A plan with an unknown part."""


@dataclass(slots=True)
class _Step:
    kind: str
    node: Mapping[str, Any]
    inputs: list[_Step] = field(default_factory=list)


class _Plan:
    """A plan in Spark's JSON: steps and expressions are lists in preorder."""

    def __init__(self, document: list[dict[str, Any]]) -> None:
        self._made: dict[int, set[int]] = {}
        self._choosing: set[int] = set()
        self._top = self._step(iter(document))

    def columns(self) -> list[int]:
        """Return the ids of the columns; raises _UntraceableError."""
        return self._columns(self._top)

    def lineage(self, names: Iterable[str], origins: Mapping[int, Origin]) -> ColumnLineage:
        """Return the sources of the columns; raises _UntraceableError unless all are known."""
        self._define(self._top)

        def origin(column: int) -> frozenset[Origin]:
            found, seen, todo = set(), set(), [column]
            while todo:
                one = todo.pop()
                if one in origins:
                    found.add(origins[one])
                elif one not in self._made:
                    raise _UntraceableError(f"column {one} comes from elsewhere")
                seen.add(one)
                todo += self._made.get(one, set()) - seen
            return frozenset(found)

        columns = zip(names, self.columns(), strict=True)
        return ColumnLineage(
            fields={name: origin(column) for name, column in columns},
            rows=frozenset().union(*map(origin, self._choosing)),
        )

    def _step(self, rest: Iterator[dict[str, Any]]) -> _Step:
        node = next(rest)
        step = _Step(_kind(node), node)
        step.inputs = [self._step(rest) for _ in range(node["num-children"])]
        return step

    def _columns(self, step: _Step) -> list[int]:
        if step.kind in ("Project", "Aggregate"):
            return [_id(tree[0]) for tree in step.node[_DEFINES[step.kind]]]
        if step.kind == "Window":
            made = [_id(tree[0]) for tree in step.node["windowExpressions"]]
            return [*self._columns(step.inputs[0]), *made]
        if step.kind == "Generate":
            made = [_id(tree[0]) for tree in step.node["generatorOutput"]]
            return [*self._columns(step.inputs[0]), *made]
        if step.kind == "Join":
            left, right = step.inputs
            kind = str(step.node["joinType"])
            if "Existence" in kind:
                raise _UntraceableError(kind)
            only_left = "LeftSemi" in kind or "LeftAnti" in kind
            return self._columns(left) + ([] if only_left else self._columns(right))
        if step.kind == "Union":
            return self._columns(step.inputs[0])
        if step.kind in _HANDS_ON:
            return self._columns(step.inputs[0])
        if not step.inputs and "output" in step.node:
            return [_id(tree[0]) for tree in step.node["output"]]
        raise _UntraceableError(step.kind)

    def _define(self, step: _Step) -> None:
        """Record the sources of columns in a step and below it, and what decides the rows."""
        for one in step.inputs:
            self._define(one)
        if not step.inputs:
            self._columns(step)
            return
        defined = step.node.get(_DEFINES.get(step.kind, ""), ())
        for tree in defined:
            if _kind(tree[0]) != "AttributeReference":
                self._made[_id(tree[0])] = _references(tree)
        if step.kind == "Generate":
            made = _references(step.node["generator"])
            self._made |= {_id(tree[0]): made for tree in step.node["generatorOutput"]}
        if step.kind == "Union":
            for first, *others in zip(*map(self._columns, step.inputs), strict=True):
                self._made[first] = self._made.get(first, set()) | set(others)
        if step.kind == "Distinct":
            self._choosing |= set(self._columns(step))
        elif step.kind not in ("Project", "Window"):
            rest = {name: part for name, part in step.node.items() if part is not defined}
            self._choosing |= _references(list(rest.values()))
        self._columns(step)


def _references(part: Any) -> set[int]:
    """Return the columns that an expression or a step refers to."""
    found: set[int] = set()
    todo = [part]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            kind = _kind(one)
            if any(word in kind for word in _PLANS_INSIDE):
                raise _UntraceableError(kind)
            if kind == "AttributeReference":
                found.add(_id(one))
            else:
                todo += one.values()
    return found


def _kind(node: Mapping[str, Any]) -> str:
    return str(node.get("class", "")).rpartition(".")[2]


def _id(node: Mapping[str, Any]) -> int:
    return int(node["exprId"]["id"])
