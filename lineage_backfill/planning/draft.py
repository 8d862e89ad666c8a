"""A first project file drafted from the lineage: what it tells, and questions for the rest.

A question is a commented line that begins with `#?`; without the mark it is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from glob import escape

from lineage_backfill.lineage.families import Family, find_families
from lineage_backfill.lineage.snapshot import LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.planning.folding import Folding
from lineage_backfill.planning.infer import Inference
from lineage_backfill.planning.resolver import Resolver
from lineage_backfill.planning.sql_windows import sql_spans
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    calendar_in_words,
)

#: What would end a line, move the cursor or hide text where the file is shown.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
#: Halves of surrogate pairs: no file holds them.
_HALVES = re.compile("[\ud800-\udfff]")
#: The naming rules of OpenLineage make an address of these namespaces and the name below them
#: (https://openlineage.io/docs/spec/naming).
_STORAGE = re.compile(r"(abfss?|dbfs|gs|hdfs|s3a?|wasbs?)://")
_SHOWN = 6
_SHOWN_FIELDS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The text of a project file, how much of the lineage it knows, and what it asks."""

    text: str
    jobs: int
    datasets: int
    known: int  # datasets whose partitioning the lineage tells
    questions: int


def draft(
    snapshot: LineageSnapshot, source: Mapping[str, str | Sequence[str]], *, now: datetime
) -> Draft:
    """Return a project file for the lineage; `source` is what its `[lineage]` table holds.

    An empty `source` is one that is not to be written down.
    """
    return _Drafting(snapshot, now).draft(source)


def quoted(text: str) -> str:
    r"""Return the text as a TOML string; what no file can hold becomes a replacement character.

    >>> print(quoted('a "b"\n'))
    "a \"b\"\u000a"
    """
    return '"' + _visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _HALVES.sub("\ufffd", text))


class _Drafting:
    """One draft: the lineage, what the catalog makes of it, and how names are written in it."""

    def __init__(self, snapshot: LineageSnapshot, now: datetime) -> None:
        found = {one.dataset: one for one in reversed(find_families(snapshot))}
        self._families = sorted(found.values(), key=lambda one: one.dataset)
        snapshot = _whole(snapshot, self._families)
        self._snapshot = snapshot
        self._resolver = Resolver(snapshot, Declarations(), now=now)
        refs: list[DatasetRef | JobRef] = [*snapshot.jobs, *snapshot.datasets]
        spaces = {ref.namespace for ref in refs}
        self._home = next(iter(spaces)) if len(spaces) == 1 else None
        used = {*snapshot.readers, *snapshot.writers}
        self._datasets = [ref for ref in self._in_order_of_flow() if ref in used - found.keys()]

    def draft(self, source: Mapping[str, str | Sequence[str]]) -> Draft:
        facet, inferred, unknown = self._sorted()
        blocks = [
            self._head(),
            self._project(),
            _lines("[lineage]", *_source(source)),
            *map(self._family, self._families),
            *self._sent(facet),
            *(self._inferred(ref) for ref in inferred),
            *self._asked(unknown),
            *self._jobs(),
        ]
        text = "\n".join(blocks)
        return Draft(
            text=text,
            jobs=len(self._snapshot.jobs),
            datasets=len(self._datasets) + len(self._families),
            known=len(facet) + len(inferred),
            questions=sum(line.startswith("#? [[") for line in text.splitlines()),
        )

    # --- what there is ---------------------------------------------------------------------------

    def _in_order_of_flow(self) -> list[DatasetRef]:
        """Return the datasets, those first that others are made from."""
        import networkx as nx

        graph = self._snapshot.graph()
        circles = nx.condensation(graph)
        found = []
        for generation in nx.topological_generations(circles):
            members = (ref for one in generation for ref in circles.nodes[one]["members"])
            found += sorted(ref for ref in members if isinstance(ref, DatasetRef))
        return found

    def _sorted(self) -> tuple[list[DatasetRef], list[DatasetRef], list[DatasetRef]]:
        """Return the datasets known by a facet, by inference, and those not known."""
        found: dict[str | None, list[DatasetRef]] = {"facet": [], "inferred": [], None: []}
        for ref in self._datasets:
            found[self._resolver.dataset(ref).origin].append(ref)
        return found["facet"], found["inferred"], found[None]

    def _writers(self, ref: DatasetRef) -> tuple[JobRef, ...]:
        return self._snapshot.writers.get(ref, ())

    def _history(self, jobs: Iterable[JobRef]) -> list[ObservedRun]:
        wanted = set(jobs)
        return [one for one in self._snapshot.history if one.job in wanted]

    def _oldest(self, jobs: Iterable[JobRef]) -> datetime | None:
        return min(
            (
                when
                for one in self._history(jobs)
                if (when := one.nominal_start or one.started_at or one.ended_at) is not None
            ),
            default=None,
        )

    def _name(self, ref: DatasetRef | JobRef) -> str:
        """Return the name as comments write it; quoted, for a name may hold a line break."""
        return quoted(ref.name if ref.namespace == self._home else str(ref))

    def _named(self, refs: Sequence[DatasetRef | JobRef]) -> str:
        more = len(refs) - _SHOWN
        shown = ", ".join(self._name(ref) for ref in refs[:_SHOWN])
        return f"{shown} and {more} more" if more > 0 else shown

    def _table(self, kind: str, ref: DatasetRef | JobRef) -> list[str]:
        # A name with the signs of a glob is written so that it means itself.
        name = escape(ref.name)
        lines = [f"[[{kind}]]", f"name = {quoted(name)}"]
        if ref.namespace != self._home:
            space = ref.namespace if name == ref.name else escape(ref.namespace)
            lines.append(f"namespace = {quoted(space)}")
        return lines

    # --- what is written -------------------------------------------------------------------------

    def _head(self) -> str:
        taken = self._snapshot.taken_at
        as_of = f" as of {taken:%Y-%m-%d %H:%M} UTC" if taken else ""
        counts = (
            f"{len(self._snapshot.jobs)} jobs, {len(self._datasets) + len(self._families)} datasets"
        )
        return _lines(
            "# The project file of lineage-backfill, drafted by `lineage-backfill init`.",
            f"# From {self._snapshot.source}{as_of}: {counts} that they read or write.",
            "#",
            "# Lines that begin with `#?` are questions that the lineage does not answer. Take the",
            "# mark off and correct what stands there; what stands there now is only an example.",
            "# A job that needs an answer is blocked until it has one: nothing is guessed.",
            "# Afterwards: lineage-backfill config check",
        )

    def _project(self) -> str:
        home = [f"namespace = {quoted(self._home)}  # what a bare name means"] if self._home else []
        return _lines(
            "[project]",
            *home,
            '#? zone = "Europe/Berlin"  # where your days begin; without it, in UTC',
        )

    def _family(self, family: Family) -> str:
        """Return the question whether names are partitions of one dataset; a plan needs it."""
        number = len(family.members)
        return _lines(
            f"# {number} names look like partitions of one dataset, as"
            f" {self._name(family.members[-1])}. Are they?",
            "# What each touches is refused until they are declared, as here or each by its name.",
            *(f"#? {_visible(line)}" for line in family.lines),
        )

    def _sent(self, refs: Sequence[DatasetRef]) -> Iterator[str]:
        if refs:
            yield _lines(
                "# The jobs send the partitioning of these with their lineage; nothing is to be"
                " declared.",
                *(f"#   {self._name(ref)}: {self._sent_calendar(ref)}" for ref in refs),
            )

    def _sent_calendar(self, ref: DatasetRef) -> str:
        sent = self._snapshot.datasets[ref].partitioning
        read = facets.read_calendar(sent, str(ref)) if sent else None
        assert read is not None  # it is where the catalog has it from
        return _visible(calendar_in_words(read[0], read[1], "UTC"))

    def _inferred(self, ref: DatasetRef) -> str:
        job, inference = self._inference(ref)
        calendar = inference.calendar
        grain, zone = calendar.grain or "", calendar.zone or ""
        lines = [
            f"# Inferred: {inference.evidence} (job {self._name(job)}).",
            *self._table("dataset", ref),
            f"grain = {quoted(grain)}",
            f"zone = {quoted(zone)}",
        ]
        if oldest := self._oldest(self._writers(ref)):
            grid = grain_grid(grain, zone)
            first = quoted(grid.label(grid.at(int(oldest.timestamp()))))
            lines.append(f"#? start = {first}  # the oldest run on record; no key is older")
        return _lines(*lines, *self._stored(ref))

    def _inference(self, ref: DatasetRef) -> tuple[JobRef, Inference]:
        found = ((job, self._resolver.inference(job)) for job in self._writers(ref))
        return next((job, one) for job, one in found if one is not None)

    def _asked(self, refs: Sequence[DatasetRef]) -> Iterator[str]:
        if not refs:
            return
        oldest = self._oldest(self._snapshot.jobs)
        start = f"{oldest:%Y-%m-%d}" if oldest else "2024-01-01"  # only an example
        calendar = ['#? grain = "day"', f"#? start = {quoted(start)}"]
        yield _lines(
            f"# Which partitions have the {len(refs)} datasets below?",
            "#   grain     hour, day, week, month, quarter or year; none: it is not partitioned;",
            "#             or instead cron, every, keys or dimensions",
            "#   start     its first key",
            "#   column    what holds the key in the table  (only `run` needs this,",
            "#   location  where the table is stored         and this)",
            "# Where most are alike, answer for all at once; the table of an exact name wins.",
            "#? [[dataset]]",
            '#? name = "*"',
            *calendar,
        )
        for ref in refs:
            yield _lines(
                *self._clues(ref),
                *(f"#? {line}" for line in self._table("dataset", ref)),
                *calendar,
                *self._stored(ref),
            )

    def _clues(self, ref: DatasetRef) -> Iterator[str]:
        """Yield what is known of a dataset whose partitioning is not."""
        writers, readers = self._writers(ref), self._snapshot.readers.get(ref, ())
        parts = [
            f"{word} {self._named(jobs)}"
            for word, jobs in (("written by", writers), ("read by", readers))
            if jobs
        ]
        yield f"# {self._name(ref)}: {', '.join(parts)}."
        inferred = {
            inference.calendar.grain
            for job in writers
            if (inference := self._resolver.inference(job)) is not None
        }
        if len(inferred) > 1:
            yield f"# Its writers do not agree: {' and '.join(sorted(map(str, inferred)))}."
        sent = self._snapshot.datasets[ref].partitioning
        if sent is not None:
            yield "# A partitioning was sent with the lineage, and cannot be read."
        history = self._history(writers)
        keys = list(dict.fromkeys(one.partition_key for one in history if one.partition_key))
        if keys:
            yield f"# Keys of its runs: {', '.join(quoted(key) for key in keys[:_SHOWN])}."
        spans = {
            (one.nominal_start, one.nominal_end)
            for one in history
            if one.nominal_start and one.nominal_end and one.nominal_start < one.nominal_end
        }
        if spans:
            first, last = max(spans)
            yield f"# The nominal time of its newest run: {first:%FT%RZ} to {last:%FT%RZ}."

    def _stored(self, ref: DatasetRef) -> Iterator[str]:
        """Yield the questions that only `run` needs answered."""
        fields = self._snapshot.datasets[ref].fields
        more = ", …" if len(fields) > _SHOWN_FIELDS else ""
        columns = f"  # one of {_visible(', '.join(fields[:_SHOWN_FIELDS]))}{more}"
        yield f'#? column = "ds"{columns if fields else ""}'
        yield f"#? location = {quoted(_address(ref))}"

    def _jobs(self) -> Iterator[str]:
        yield _lines(
            "# How is each job run? `impact` needs none of this, `run` needs all of it.",
            "#? [[job]]",
            '#? name = "*"  # one table for all, or one for each by its name',
            '#? engine = "local"  # Spark on this machine, or a name from [engines.*]',
            '#? entrypoint = "package.module:function"',
            "# The table of an exact name stands instead of that of `*`: it repeats what it needs.",
        )
        for ref in self._snapshot.jobs:
            asked = [*self._own_output(ref), *self._problem(ref)]
            yield from asked or self._spans(ref)
        yield from self._parents()

    def _own_output(self, ref: JobRef) -> Iterator[str]:
        facts = self._resolver.job(ref)
        for edge in facts.inputs:
            if edge.undeclared:
                yield _lines(
                    f"# {self._name(ref)} reads its own output {self._name(edge.dataset)}: how?",
                    *(f"#? {line}" for line in self._table("job", ref)),
                    *(f"#? {line}" for line in self._read(edge.dataset)),
                    '#? mapping = "offset"  # the key before; or "window" with before = 6; or'
                    ' "none"',
                    "#? by = -1",
                )

    def _read(self, dataset: DatasetRef) -> list[str]:
        space = [] if dataset.namespace == self._home else [dataset.namespace]
        return [
            "[[job.reads]]",
            f"dataset = {quoted(escape(dataset.name))}",
            *(f"namespace = {quoted(one)}" for one in space),
        ]

    def _problem(self, ref: JobRef) -> Iterator[str]:
        """Yield a question for a job that is not planned although all that it touches is known."""
        facts = self._resolver.job(ref)
        touched = [edge.dataset for edge in facts.inputs]
        touched += [edge.dataset for edge in facts.outputs]
        known = touched and all(self._resolver.calendar(dataset) for dataset in touched)
        if facts.problem is None or not known or any(edge.undeclared for edge in facts.inputs):
            return
        yield _lines(
            f"# {self._name(ref)}: {_visible(facts.problem)}.",
            *(f"#? {line}" for line in self._table("job", ref)),
            '#? grain = "day"  # which keys is it run for?',
        )

    def _spans(self, ref: JobRef) -> Iterator[str]:
        """Yield a question for a job whose SQL names a span of time; none is ever taken for one."""
        spans = sql_spans(self._snapshot.jobs[ref].query or "")
        inputs = [edge.dataset for edge in self._resolver.job(ref).inputs]
        if not spans or not inputs:
            return
        texts = ", ".join(quoted(one.text) for one in spans[:_SHOWN])
        others = f"  # or {self._named(inputs[1:])}" if inputs[1:] else ""
        table = self._read(inputs[0])
        yield _lines(
            f"# The SQL of {self._name(ref)} has {texts}. Does it read keys before its own?",
            *(f"#? {line}" for line in self._table("job", ref)),
            f"#? {table[0]}",
            f"#? {table[1]}{others}",
            *(f"#? {line}" for line in table[2:]),
            '#? mapping = "window"',
            f"#? before = {spans[0].length}  # keys of its input, by its grain",
        )

    def _parents(self) -> Iterator[str]:
        children: dict[JobRef, list[JobRef]] = {}
        for node in self._snapshot.jobs.values():
            if node.parent is not None and (node.reads or node.writes):
                children.setdefault(node.parent, []).append(node.ref)
        for parent, parts in sorted(children.items()):
            own = self._snapshot.jobs.get(parent)
            if own is None or not (own.reads or own.writes):
                yield _lines(
                    f"# {self._name(parent)} runs {self._named(parts)}.",
                    "# Is it run as a whole? Else its parts are planned one by one.",
                    *(f"#? {line}" for line in self._table("job", parent)),
                )


def _whole(snapshot: LineageSnapshot, families: Sequence[Family]) -> LineageSnapshot:
    """Return the lineage with one dataset in place of each family."""
    tables = [
        DatasetDeclaration(
            name=one.dataset.name, namespace=one.dataset.namespace, pattern=one.pattern
        )
        for one in families
    ]
    others = [
        DatasetDeclaration(name=ref.name, namespace=ref.namespace)
        for one in families
        for ref in one.others
    ]
    return Folding(Declarations(datasets=(*tables, *others))).fold(snapshot)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _source(source: Mapping[str, str | Sequence[str]]) -> Iterator[str]:
    if not source:
        yield "# Its address holds a password, which is not kept here. Name it in the environment:"
        yield "# LINEAGE_BACKFILL_LINEAGE_MARQUEZ."
    for key, value in source.items():
        if isinstance(value, str):
            yield f"{key} = {quoted(value)}"
        else:
            yield f"{key} = [{', '.join(quoted(one) for one in value)}]"


def _address(ref: DatasetRef) -> str:
    """Return where the dataset is stored if its name tells, else an example."""
    if _STORAGE.match(ref.namespace):
        return f"{ref.namespace.rstrip('/')}/{ref.name.lstrip('/')}"
    if ref.namespace == "file" or ref.namespace.startswith("file:"):
        return ref.name
    return f"data/{ref.name}"
