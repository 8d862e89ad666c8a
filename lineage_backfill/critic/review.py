"""Compares declarations with the lineage: unmatched, contradictory or missing settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any, Literal

from lineage_backfill.critic.questions import questions
from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, did_you_mean, listed
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.mapping import KeyFunction
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.matching import names
from lineage_backfill.project.merge import MAPPING, merged
from lineage_backfill.project.resolve.physical_columns import unplaced
from lineage_backfill.project.resolve.resolver import JobFacts
from lineage_backfill.typed import plain

_YEAR = 366 * 86_400  # seconds

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding about the declarations; `place` is the table, dataset or job.

    An error stops every plan that needs it, a warning is probably a mistake or blocks a job, a note
    is for information. `kind` is stable.
    """

    level: Level
    kind: str
    place: str
    text: str
    hint: str = ""

    @classmethod
    def of(cls, place: str, error: UsageError) -> Finding:
        """Return an error as a finding."""
        text, hint = str(error), error.hint
        return cls(level="error", kind="contradiction", place=place, text=text, hint=hint)


def review(
    snapshot: LineageSnapshot,
    declarations: Declarations,
    *,
    now: datetime,
    functions: Mapping[str, KeyFunction] | None = None,
) -> tuple[Finding, ...]:
    """Return the findings for declarations and lineage, errors first."""
    found = _Review(snapshot, declarations, now, functions or {}).findings()
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order[one.level]))


class _Review:
    def __init__(
        self,
        snapshot: LineageSnapshot,
        declarations: Declarations,
        now: datetime,
        functions: Mapping[str, KeyFunction],
    ) -> None:
        self._snapshot = snapshot
        self._declarations = declarations
        self._resolver = Resolver(snapshot, declarations, now=now, functions=functions)
        self._jobs = list(self._resolver.edges.jobs)
        self._broken: set[DatasetRef | JobRef] = set()

    def findings(self) -> Iterator[Finding]:
        for one in self._resolver.unmatched:
            kind = "job" if one.kind == "job" else "dataset"
            yield Finding(
                level="error",
                kind=f"unknown-{kind}",
                place=one.place,
                text=f"no {kind} of this name is known",
                hint=one.hint,
            )
        yield from self._dataset_tables()
        yield from self._job_tables()
        yield from self._over_code()
        yield from self._contradictions()
        yield from self._repeated_hours()
        yield from self._unknown()
        yield from self._to_run()
        for asked in questions(self._snapshot, self._declarations):
            answer = "; ".join(asked.lines[1:])
            yield Finding(
                level="warning",
                kind=asked.kind,
                place="lineage",
                text=asked.text,
                hint=f"If so: {asked.lines[0]} {answer}" if asked.lines else "",
            )
        for ref, error in self._resolver.misplaced.items():
            yield Finding.of(f'[[dataset]] "{self._name(ref)}"', error)
        for text in self._resolver.troubles.values():
            yield Finding(level="warning", kind="facet", place="lineage", text=text)

    def _name(self, ref: DatasetRef | JobRef) -> str:
        return ref.name if ref.namespace == self._declarations.namespace else str(ref)

    def _few(self, refs: Sequence[DatasetRef | JobRef]) -> str:
        return listed(refs, name=self._name)

    # --- names ----------------------------------------------------------------------------------

    def _touched(self) -> set[DatasetRef]:
        """Return the datasets of the lineage and of declared edges."""
        return {*self._snapshot.datasets}.union(*map(self._near, self._jobs))

    def _near(self, job: JobRef) -> set[DatasetRef]:
        """Return what a job reads and writes."""
        return {*self._resolver.edges.reads(job), *self._resolver.edges.writes(job)}

    def _is_sound(self, job: JobRef) -> bool:
        """Whether the declarations of a job and its datasets are consistent."""
        return job not in self._broken and not self._near(job) & self._broken

    def _dataset_tables(self) -> Iterator[Finding]:
        touched = self._touched()
        used = self._used(touched)
        for declared in self._declarations.datasets:
            if is_glob(declared.name) and not used.get(id(declared)):
                yield self._unused(declared, "dataset")
            yield from self._columns(declared, touched)

    def _used(self, refs: Iterable[Any]) -> dict[int, list[Any]]:
        """Return the datasets or jobs for which each entry, by its id, states something."""
        adding: dict[tuple[int, ...], list[int]] = {}  # of the layers that names share
        used: dict[int, list[Any]] = {}
        for ref in refs:
            layers = self._resolver.layers(ref)
            which = tuple(map(id, layers))
            if which not in adding:
                adding[which] = [
                    id(one)
                    for rank, one in enumerate(layers)
                    if not rank or merged(layers[: rank + 1]) != merged(layers[:rank])
                ]
            for one in adding[which]:
                used.setdefault(one, []).append(ref)
        return used

    def _unused(self, declared: DatasetDeclaration | JobDeclaration, kind: str) -> Finding:
        return Finding(
            level="warning",
            kind=f"unknown-{kind}",
            place=f'[[{kind}]] "{declared.name}"',
            text=f"this entry applies to no {kind}: none matches, or other entries win",
            hint="Correct the pattern, or remove the entry.",
        )

    def _job_tables(self) -> Iterator[Finding]:
        used = self._used(self._jobs)
        for declared in self._declarations.jobs:
            jobs = used.get(id(declared), [])
            if not jobs and is_glob(declared.name):
                yield self._unused(declared, "job")
            for word, edges in (("reads", declared.reads), ("writes", declared.writes)):
                for edge in edges if jobs else ():
                    yield from self._edge(declared, jobs, word, edge)

    def _over_code(self) -> Iterator[Finding]:
        """Yield where a table changes the mode, the merge columns or a mapping of the code."""
        for job in self._declarations.jobs:
            if len(job.sources) != 2:
                continue
            (place, table), (_, code) = job.sources
            for side, groups in (("reads", (MAPPING,)), ("writes", (("mode",), ("merge_on",)))):
                below = {edge.dataset: edge for edge in getattr(code, side)}
                for edge, group in product(getattr(table, side), groups):
                    coded = below.get(edge.dataset)
                    own, other = _stated(edge, group), _stated(coded, group)
                    if own and other and own != other:
                        yield Finding(
                            level="warning",
                            kind="over-code",
                            place=place,
                            text=f"{side} {edge.dataset} with {own}, and the code with {other}",
                            hint="Remove it from the table if the code is right.",
                        )

    def _edge(
        self,
        declared: JobDeclaration,
        jobs: Sequence[JobRef],
        word: str,
        edge: ReadDeclaration | WriteDeclaration,
    ) -> Iterator[Finding]:
        place = f'[[job]] "{declared.name}" [[job.{word}]] "{edge.dataset}"'
        nodes = [node for ref in jobs if (node := self._snapshot.jobs.get(ref)) is not None]
        known = {ref for node in nodes for ref in getattr(node, word)}
        home = self._declarations.namespace
        if any(names(edge, ref, home) for ref in known):
            return
        target = self._resolver.edges.target(edge)
        if target is None or is_glob(declared.name):
            yield Finding(
                level="warning",
                kind="unknown-edge",
                place=place,
                text=f"no job of this table {word} such a dataset",
                hint=f"In the lineage, its jobs use {self._few(sorted(known))}." if known else "",
            )

    # --- what contradicts -----------------------------------------------------------------------

    def _columns(
        self, declared: DatasetDeclaration, touched: Iterable[DatasetRef]
    ) -> Iterator[Finding]:
        columns = {*declared.named_columns, *(d.column for d in declared.dimensions if d.column)}
        lacking: dict[str, list[DatasetRef]] = {}
        for ref in sorted(touched) if columns else ():
            node = self._snapshot.datasets.get(ref)
            own = next(iter(self._resolver.layers(ref)), None)
            if node and node.fields and own is declared:
                for column in sorted(columns - set(node.fields)):
                    lacking.setdefault(column, []).append(ref)
        for column, refs in lacking.items():
            fields = self._snapshot.datasets[refs[0]].fields
            yield Finding(
                level="warning",
                kind="unknown-column",
                place=f'[[dataset]] "{declared.name}"',
                text=f"no column {column!r} in {self._few(refs)}",
                hint=did_you_mean(column, fields) or f"Columns: {listed(fields)}.",
            )

    def _repeated_hours(self) -> Iterator[Finding]:
        """Yield the outputs that cannot tell apart the next hour that the clock shows twice."""
        sound = filter(self._is_sound, self._jobs)
        outputs = (edge for ref in sound for edge in self._resolver.job(ref).outputs)
        seen = set[DatasetRef]()
        for output in outputs:
            calendar = output.data.calendar
            is_new = output.dataset not in seen and output.policy.mode == "overwrite"
            if not is_new or calendar is None or calendar.time is None:
                continue
            seen.add(output.dataset)
            grid, last = calendar.time.grid, calendar.time.last
            ahead = calendar.full(OrdinalSet.range(last, grid.at(grid.start(last) + _YEAR)))
            if found := self._resolver.shared(output.data, ahead):
                yield Finding(
                    level="warning",
                    kind="one-partition",
                    place=f"dataset {self._name(output.dataset)}",
                    text=found[0],
                    hint=found[1],
                )

    def _contradictions(self) -> Iterator[Finding]:
        seen = set()  # a mistake in a glob is reported once
        for ref in sorted(self._touched()):
            try:
                self._resolver.calendar(ref)
            except UsageError as error:
                self._broken.add(ref)
                declared = self._resolver.dataset_declaration(ref)
                name = declared.name if declared else str(ref)
                if name not in seen:
                    yield Finding.of(f'[[dataset]] "{name}"', error)
                seen.add(name)
        for job in self._jobs:
            if not self._is_sound(job):
                continue
            try:
                self._resolver.job(job)
            except UsageError as error:
                self._broken.add(job)
                yield Finding.of(f"job {self._name(job)}", error)

    # --- what is missing ------------------------------------------------------------------------

    def _calendar(self, ref: DatasetRef) -> Calendar | None:
        try:
            return self._resolver.calendar(ref)
        except UsageError:
            return None  # reported as a contradiction

    def _unknown(self) -> Iterator[Finding]:
        blocked: dict[DatasetRef, list[JobRef]] = {}
        for job in self._jobs:
            if not self._is_sound(job):
                continue
            touched = self._near(job)
            unknown_here = [ref for ref in sorted(touched) if self._calendar(ref) is None]
            for ref in unknown_here:
                blocked.setdefault(ref, []).append(job)
            facts = self._resolver.job(job)
            if facts.problem and not unknown_here and touched:
                yield Finding(
                    level="error" if _contradicts(facts) else "warning",
                    kind="blocked",
                    place=f"job {self._name(job)}",
                    text=f"blocked: {facts.problem}",
                    hint=facts.hint,
                )
        for ref, jobs in sorted(blocked.items(), key=lambda one: (-len(one[1]), one[0])):
            written = any(ref in self._resolver.edges.writes(job) for job in jobs)
            when = "" if written else " if it changes"
            yield Finding(
                level="warning",
                kind="unknown-partitioning",
                place=f"dataset {self._name(ref)}",
                text=f"partitioning unknown; this blocks {self._few(jobs)}{when}",
                hint=self._resolver.dataset(ref).unknown[1],
            )

    def _to_run(self) -> Iterator[Finding]:
        """Yield what only `run` needs."""
        run = [job for job in self._jobs if self._near(job)]
        declared = {job: self._resolver.job_declaration(job) for job in run}
        engineless = [job for job, one in declared.items() if not (one and one.engine)]
        own = self._engines_of_any_job
        by_spark = {
            job: one
            for job, one in declared.items()
            if one and one.engine and one.engine not in own
        }
        aimless = [job for job, one in by_spark.items() if one.entrypoint is None]
        lacks = self._lacks(by_spark)
        placeless = [ref for ref, what in lacks.items() if what == "location"]
        columnless = [ref for ref, what in lacks.items() if what != "location"]
        for kind, refs, text in (
            ("no-engine", engineless, "no engine for {}"),
            ("no-entrypoint", aimless, "no entrypoint for {}"),
            ("no-location", placeless, "no location or table for {}"),
            ("no-column", columnless, "no key column for {}"),
            (
                "no-mode",
                sorted(self._modeless(by_spark)),
                "no write mode for {}, not partitioned",
            ),
        ):
            if refs:
                yield Finding(
                    level="note",
                    kind=kind,
                    place="to run",
                    text=text.format(self._few(refs)),
                    hint="`impact` does not need it; `run` refuses without it.",
                )

    @property
    def _engines_of_any_job(self) -> set[str]:
        return {one.name for one in self._declarations.engines if one.takes_any_job}

    def _lacks(self, jobs: Iterable[JobRef]) -> dict[DatasetRef, str]:
        """Map datasets of jobs, sorted, to what a run lacks to find or to divide them."""
        touched: set[DatasetRef] = set().union(*map(self._near, jobs))
        found = {
            ref: unplaced(self._resolver.dataset_declaration(ref), self._calendar(ref))
            for ref in sorted(touched)
        }
        return {ref: what for ref, what in found.items() if what}

    def _modeless(self, jobs: Iterable[JobRef]) -> set[DatasetRef]:
        """Return the outputs of known partitioning for which no write mode is declared."""
        return {
            output.dataset
            for job in jobs
            if self._is_sound(job)
            for output in self._resolver.job(job).outputs
            if output.data.calendar is not None and not output.says_mode
        }


def _contradicts(facts: JobFacts) -> bool:
    """Whether what blocks a job are declarations that do not fit each other."""
    tables = (facts.declaration, *(output.data.declaration for output in facts.outputs))
    if facts.calendar is None or not any(tables):
        return False
    if any(edge.undeclared for edge in facts.inputs) or facts.guessed:
        return any(edge.misdeclared for edge in facts.inputs)
    return all(output.mapping is not None for output in facts.outputs)


def _stated(edge: Any, names: Iterable[str]) -> str:
    """Return what an edge states of some attributes, as text."""
    found = {} if edge is None else plain(edge)
    return ", ".join(f"{name} = {found[name]!r}" for name in names if name in found)
