"""The plan: what will run, for which partitions, in which order, and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from operator import itemgetter
from typing import Any, Literal, Protocol

from msgspec import Struct

from lineage_backfill.model import DatasetRef, JobRef, named
from lineage_backfill.partitions.text import KeySet, in_short

#: A plan with more runs, or jobs and runs, computes them each time its document is written.
HELD_RUNS = 10_000
_SORTED = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False
)

JobStatus = Literal["planned", "blocked", "left_stale", "skipped"]


class DatasetPartitions(Struct, frozen=True, kw_only=True):
    """Partitions of one dataset; `keys` is None if a run reads the whole dataset."""

    dataset: DatasetRef
    keys: KeySet | None

    def to_dict(self) -> dict[str, Any]:
        """Return the partitions as a document; `*` means all."""
        keys = "*" if self.keys is None else list(self.keys)
        return {"dataset": named(self.dataset), "partitions": keys}


class PlannedRun(Struct, frozen=True, kw_only=True):
    """One run of one job over one set of its run keys."""

    id: str  # stable: made from the job and the keys
    job: JobRef
    partitions: KeySet
    count: int
    wave: int
    upstream: tuple[str, ...]  # ids of the runs whose partitions it reads
    engine: str | None
    reads: tuple[DatasetPartitions, ...]
    writes: tuple[DatasetPartitions, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the run."""
        return {
            "id": self.id,
            "job": named(self.job),
            "partitions": list(self.partitions),
            "count": self.count,
            "wave": self.wave,
            "upstream": list(self.upstream),
            "engine": self.engine,
            "reads": [part.to_dict() for part in self.reads],
            "writes": [part.to_dict() for part in self.writes],
        }


class PlannedJob(Struct, frozen=True, kw_only=True):
    """One affected job of the plan."""

    job: JobRef
    status: JobStatus
    level: int
    partitions: KeySet
    count: int
    left_stale: KeySet
    reason: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the job."""
        return {
            "job": named(self.job),
            "status": self.status,
            "level": self.level,
            "partitions": list(self.partitions),
            "count": self.count,
            "left_stale": list(self.left_stale),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something that needs a decision of a person, with the nearest way out.

    `kind` is stable. Of what is `refused`, `run` needs the guard rail of that name to be allowed.
    """

    kind: str
    text: str
    refused: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the decision."""
        return {"kind": self.kind, "text": self.text, "refused": self.refused}


class Details(Protocol):
    """The large parts of a plan, computed on first use."""

    @property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """Every affected job, in a possible run order."""

    @property
    def runs(self) -> Iterable[PlannedRun] | None:
        """The runs in a possible start order, recomputed each time; None above the limit."""

    @property
    def lineage(self) -> Mapping[str, Any]:
        """The source of the lineage, and the hash of the plan's basis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Details that are already computed."""

    jobs: tuple[PlannedJob, ...]
    runs: tuple[PlannedRun, ...] | None
    lineage: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A whole plan; `plan.document.plan_to_dict` gives the document of `impact --json`.

    `now` is an ISO instant in UTC. Plans are equal if all their members are.
    """

    now: str
    request: Mapping[str, Any]
    changed: tuple[DatasetPartitions, ...]
    totals: Mapping[str, int]
    limits: Mapping[str, int] = field(default_factory=dict)  # limits in effect when it was made
    warnings: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    details: Details = field(repr=False)

    @cached_property
    def jobs(self) -> tuple[PlannedJob, ...]:
        """Every affected job, in a possible run order."""
        return self.details.jobs

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...] | None:
        """The runs in a possible start order; None above the limit."""
        return None if self.details.runs is None else tuple(self.details.runs)

    @cached_property
    def lineage(self) -> Mapping[str, Any]:
        """The source of the lineage, and the hash of the plan's basis."""
        return self.details.lineage

    @cached_property
    def id(self) -> str:
        """`sha256:…` over everything in the plan, computed on first use."""
        return _hash(_texts(self.members()))

    @property
    def has_work(self) -> bool:
        """Whether there are runs, or jobs that the plan leaves out."""
        return bool(self.totals["runs"]) or bool(self.left_out)

    @property
    def left_out(self) -> tuple[Decision, ...]:
        """The decisions about jobs that the lineage may lead to, and that are not in the plan."""
        return tuple(one for one in self.decisions if one.kind in ("former", "inner"))

    @property
    def is_blocked(self) -> bool:
        """Whether some job is blocked and nothing can run."""
        return not self.totals["runs"] and any(job.status == "blocked" for job in self.jobs)

    @property
    def title(self) -> str:
        """What changed, in a few words: the first dataset or job with its keys."""
        return changed_in_short(
            {"changed": [one.to_dict() for one in self.changed], "request": self.request}
        )

    @property
    def refused(self) -> tuple[Decision, ...]:
        """The decisions without which `run` refuses, because their guard rail is not allowed."""
        allowed = self.request.get("allow", ())
        return tuple(one for one in self.decisions if one.refused and one.kind not in allowed)

    def detailed(self, **given: Any) -> Plan:
        """Return the plan with other `jobs`, `runs` or `lineage`."""
        held = {"jobs": self.jobs, "runs": self.runs, "lineage": self.lineage}
        return replace(self, details=Listed(**{**held, **given}))

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the plan's document, without its id.

        Jobs and runs are iterators over documents.
        """
        runs = self.runs if self.totals.get("runs", 0) <= HELD_RUNS else self.details.runs
        yield "now", self.now
        yield "request", self.request
        yield "lineage", self.lineage
        yield "changed", [part.to_dict() for part in self.changed]
        yield "jobs", (job.to_dict() for job in self.jobs)
        if runs is not None:
            yield "runs", (run.to_dict() for run in runs)
        yield "totals", dict(self.totals)
        if self.limits:  # absent from plans of earlier versions
            yield "limits", dict(self.limits)
        yield "warnings", list(self.warnings)
        if self.decisions:
            yield "decisions", [one.to_dict() for one in self.decisions]

    def with_id(self) -> Iterator[tuple[str, Any]]:
        """Yield the members of the plan's document, its id first."""
        members: Iterable[tuple[str, Any]] = self.members()
        if "id" not in self.__dict__ and self._is_small:
            # Made once: the hash takes all of them before the first can be written.
            members = [(name, _held(value)) for name, value in members]
            self.__dict__["id"] = _hash([_SORTED.encode(dict(members))])
        yield "id", self.id
        yield from members

    @property
    def _is_small(self) -> bool:
        return len(self.jobs) + self.totals.get("runs", 0) <= HELD_RUNS

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)


def _held(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def _hash(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
    return "sha256:" + digest.hexdigest()


def _texts(members: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield the text of sorted members; of an iterator, 64 items are in memory at once."""
    encode = _SORTED.encode
    for place, (name, value) in enumerate(sorted(members, key=itemgetter(0))):
        yield ("," if place else "{") + f'"{name}":'
        if isinstance(value, Iterator):
            yield "["
            begin = ""
            while some := list(islice(value, 64)):
                yield begin + encode(some)[1:-1]
                begin = ","
            yield "]"
        else:
            yield encode(value)
    yield "}"


def changed_in_short(plan: Mapping[str, Any]) -> str:
    """Return what changed by a plan's document: the first dataset or job with its keys.

    Several jobs alone are counted: a catch-up names all that is stale, and none of them first.
    """
    jobs = plan["request"].get("jobs", ())
    if len(jobs) > 1 and not plan["changed"]:
        return f"{len(jobs):,} jobs"
    changed = [
        *((one["dataset"]["name"], one["partitions"]) for one in plan["changed"]),
        *((f"job {one['job']['name']}", one.get("partitions")) for one in jobs),
    ]
    if not changed:
        return ""
    (name, keys), more = changed[0], len(changed) - 1
    text = f"{name} {in_short(tuple(keys or '*'))}"
    return text + (f" and {more:,} more" if more else "")
