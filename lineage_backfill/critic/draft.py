"""Drafts a project file from the lineage, with questions for what it does not tell.

An unknown grain is written as "?", with the reason. Another question is a commented line that
begins with `#?`; without the mark it is the answer.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from glob import escape

from lineage_backfill.critic.questions import questions
from lineage_backfill.errors import UsageError
from lineage_backfill.lineage.identity.families import Family, find_families
from lineage_backfill.lineage.identity.folding import Folding
from lineage_backfill.lineage.inference.infer import Inference, skipping
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot, ObservedRun
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.grid import grain_grid
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project import facets
from lineage_backfill.project.declarations import (
    UNANSWERED,
    DatasetDeclaration,
    Declarations,
    calendar_in_words,
)

#: Characters that end a line, move the cursor or hide text.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
#: Halves of surrogate pairs: no file can contain them.
_HALVES = re.compile("[\ud800-\udfff]")
#: By the naming rules of OpenLineage these namespaces and the name below form an address
#: (https://openlineage.io/docs/spec/naming).
_STORAGE = re.compile(r"(abfss?|dbfs|gs|hdfs|s3a?|wasbs?)://")
_SHOWN = 6
_UNKNOWN = f'grain = "{UNANSWERED}"'
_SHOWN_FIELDS = 12
_NOTHING = Declarations()
_PLAIN_SLICE = '#? slice = "logical_date + 1d"  # "logical_date" if a key begins when the DAG fires'


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The text of a project file, with the number of known datasets and of questions."""

    text: str
    jobs: int
    datasets: int
    known: int  # datasets whose partitioning is known
    questions: int


def draft(
    snapshot: LineageSnapshot,
    source: Mapping[str, str | Sequence[str]] | None,
    *,
    now: datetime,
    declarations: Declarations = _NOTHING,
    code: Sequence[str] = (),
    text: str = "",
) -> Draft:
    """Return a project file for the lineage; `source` is its `[lineage]` table, None without one.

    An empty `source` is one with a password, which is not written. `declarations` are those of the
    project, `code` the entries of `[project] jobs`. `text` is the file so far, which stays: what it
    lacks is added.
    """
    return _Drafting(snapshot, now, declarations).draft(source, code, text)


def quoted(text: str) -> str:
    r"""Return the text as a TOML string; unpaired surrogates become U+FFFD.

    >>> print(quoted('a "b"\n'))
    "a \"b\"\u000a"
    """
    return '"' + _visible(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", _HALVES.sub("\ufffd", text))


class _Drafting:
    """One draft: the lineage, its resolver, and the way names are written."""

    def __init__(
        self, snapshot: LineageSnapshot, now: datetime, declarations: Declarations
    ) -> None:
        unsent = (ref for ref, node in snapshot.datasets.items() if node.partitioning is None)
        found = {one.dataset: one for one in reversed(find_families(unsent))}
        self._families = sorted(found.values(), key=lambda one: one.dataset)
        snapshot = _whole(snapshot, self._families)
        self._resolver = Resolver(snapshot, declarations, now=now)
        snapshot = self._snapshot = self._resolver.edges.shown
        self._home = declarations.namespace or home_of(snapshot)
        used = {*snapshot.readers, *snapshot.writers}
        self._datasets = [ref for ref in self._in_order_of_flow() if ref in used - found.keys()]

    def draft(
        self,
        source: Mapping[str, str | Sequence[str]] | None,
        code: Sequence[str],
        before: str,
    ) -> Draft:
        facet, inferred, unknown = self._sorted()
        kept = _with_code(before, code)
        blocks = [
            *([] if before else [self._head()]),
            *([] if "project" in tomllib.loads(before) else [self._project(code)]),
            *([] if source is None else [_lines("[lineage]", *_source(source))]),
            *map(self._family, self._families),
            *self._questions(),
            *self._sent(facet),
            *(self._inferred(ref) for ref in inferred),
            *self._asked(unknown),
            *self._jobs(),
        ]
        added = "\n".join(block for block in blocks if block not in before)
        text = kept + ("\n" if kept and added else "") + added
        datasets = len(self._datasets) + len(self._families)
        return Draft(
            text=text,
            jobs=len(self._snapshot.jobs),
            datasets=datasets,
            known=datasets - len(self._families) - len(unknown),
            questions=sum(line.startswith(("#? [[", _UNKNOWN)) for line in text.splitlines()),
        )

    # --- what there is ---------------------------------------------------------------------------

    def _in_order_of_flow(self) -> list[DatasetRef]:
        """Return the datasets, upstream first."""
        import networkx as nx

        graph = self._snapshot.graph()
        circles = nx.condensation(graph)
        found = []
        for generation in nx.topological_generations(circles):
            members = (ref for one in generation for ref in circles.nodes[one]["members"])
            found += sorted(ref for ref in members if isinstance(ref, DatasetRef))
        return found

    def _sorted(self) -> tuple[list[DatasetRef], list[DatasetRef], list[DatasetRef]]:
        """Return the datasets known from a facet, by inference, and the unknown ones.

        What is declared is in none of them.
        """
        found = defaultdict[str | None, list[DatasetRef]](list)
        for ref in self._datasets:
            if not self._is_declared(ref):
                found[self._resolver.dataset(ref).origin].append(ref)
        return found["facet"], found["inferred"], found[None]

    def _is_declared(self, ref: DatasetRef | JobRef) -> bool:
        """Whether the project has a table of just this name, in its file or its code."""
        find = self._resolver
        table = (
            find.dataset(ref).declaration
            if isinstance(ref, DatasetRef)
            else find.job(ref).declaration
        )
        return table is not None and table.name in (ref.name, escape(ref.name))

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
        """Return the name for a comment; quoted, as it may contain a line break."""
        return quoted(ref.name if ref.namespace == self._home else str(ref))

    def _named(self, refs: Sequence[DatasetRef | JobRef]) -> str:
        return listed(refs, _SHOWN, self._name)

    def _table(self, kind: str, ref: DatasetRef | JobRef) -> list[str]:
        # Glob characters in a name are escaped.
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
            '# A grain "?" is not known from the lineage: write hour, day, week, month, quarter,',
            "# year, or none (not partitioned); or use cron, every, keys or dimensions instead.",
            "# To answer a line that begins with `#?`, remove the mark and write your value.",
            "# A job that needs an unanswered question is blocked: nothing is guessed.",
            "# Then run: lineage-backfill config check",
        )

    def _project(self, code: Sequence[str]) -> str:
        home = (
            [f"namespace = {quoted(self._home)}  # the namespace of bare names"]
            if self._home
            else []
        )
        return _lines(
            "[project]",
            *home,
            *_jobs_setting(code),
            '#? zone = "Europe/Berlin"  # time zone of your days; default: UTC',
        )

    def _family(self, family: Family) -> str:
        """Return the question whether names are partitions of one dataset."""
        number = len(family.members)
        return _lines(
            f"# {number} names look like partitions of one dataset, as"
            f" {self._name(family.members[-1])}. Are they?",
            *(f"#? {_visible(line)}" for line in family.lines),
        )

    def _questions(self) -> Iterator[str]:
        for one in questions(self._snapshot, self._resolver.declarations):
            yield _lines(f"# {_visible(one.text)}", *(f"#? {_visible(line)}" for line in one.lines))

    def _sent(self, refs: Sequence[DatasetRef]) -> Iterator[str]:
        if refs:
            yield _lines(
                "# The jobs send the partitioning of these with their lineage: nothing to declare.",
                *(f"#   {self._name(ref)}: {self._sent_calendar(ref)}" for ref in refs),
            )

    def _sent_calendar(self, ref: DatasetRef) -> str:
        sent = self._snapshot.datasets[ref].partitioning
        read = facets.read_dataset(sent or {}, str(ref))
        return _visible(calendar_in_words(read.calendar, read.dimensions, "UTC"))

    def _inferred(self, ref: DatasetRef) -> str:
        job, inference = self._inference(ref)
        calendar = inference.calendar
        grain, zone = calendar.grain or "", str(calendar.zone or "")
        lines = [
            f"# Inferred: {inference.evidence} (job {self._name(job)}).",
            *self._table("dataset", ref),
            f"grain = {quoted(grain)}",
            f"zone = {quoted(zone)}",
        ]
        if oldest := self._oldest(self._writers(ref)):
            grid = grain_grid(grain, zone)
            first = quoted(grid.label(grid.at(int(oldest.timestamp()))))
            lines.append(f"#? start = {first}  # the oldest recorded run; there are no older keys")
        return _lines(*lines, *self._stored(ref))

    def _inference(self, ref: DatasetRef) -> tuple[JobRef, Inference]:
        found = ((job, self._resolver.inference(job)) for job in self._writers(ref))
        return next((job, one) for job, one in found if one is not None)

    def _asked(self, refs: Sequence[DatasetRef]) -> Iterator[str]:
        if refs:
            oldest = self._oldest(self._snapshot.jobs)
            start = f"{oldest:%Y-%m-%d}" if oldest else "2024-01-01"  # only an example
            yield _lines(
                f"# If most of the {len(refs)} datasets below are alike, answer for all at once:",
                "#? [[dataset]]",
                '#? name = "*"',
                *self._any_space(refs),
                '#? grain = "day"',
                f"#? start = {quoted(start)}  # its first key",
            )
        for ref in refs:
            grain = f"{_UNKNOWN}  # {self._why(ref)}"
            yield _lines(*self._table("dataset", ref), grain, *self._stored(ref))

    def _why(self, ref: DatasetRef) -> str:
        """Return why the grain of a dataset is not known."""
        writers = self._writers(ref)
        found = {one.calendar.grain for job in writers if (one := self._resolver.inference(job))}
        history = self._history(writers)
        if self._snapshot.datasets[ref].partitioning is not None:
            return "the partitioning sent with the lineage cannot be read"
        if len(found) > 1:
            return f"its writers disagree: {' and '.join(sorted(map(str, found)))}"
        if skips := skipping(history):
            return _visible(next(iter(skips.values())))
        if not writers:
            return f"no job writes it; read by {self._named(self._snapshot.readers.get(ref, ()))}"
        runs = f"{len(history):,} recorded run{'' if len(history) == 1 else 's'}"
        return f"written by {self._named(writers)}; {runs} show no one grain"

    def _stored(self, ref: DatasetRef) -> Iterator[str]:
        """Yield the questions that only `run` needs."""
        fields = self._snapshot.datasets[ref].fields
        more = ", …" if len(fields) > _SHOWN_FIELDS else ""
        columns = f"  # one of {_visible(', '.join(fields[:_SHOWN_FIELDS]))}{more}"
        yield f'#? column = "ds"{columns if fields else ""}'
        yield f"#? location = {quoted(_address(ref))}"

    def _jobs(self) -> Iterator[str]:
        edged = [node for node in self._snapshot.jobs.values() if node.reads or node.writes]
        tasks = [node for node in edged if node.airflow is not None]
        yield from self._tasks([node for node in tasks if not self._is_declared(node.ref)])
        rest = [node.ref for node in edged if node.airflow is None]
        lacking = [ref for ref in rest if not self._states(ref, "engine")]
        if lacking or not edged:
            yield from self._engine(lacking)
        for ref in self._snapshot.jobs:
            yield from self._own_output(ref)
            yield from self._problem(ref)
        yield from self._parents()

    def _tasks(self, tasks: Sequence[JobNode]) -> Iterator[str]:
        """Yield the engine `airflow`, and the jobs that Airflow runs."""
        if tasks:
            yield _lines(
                "# Airflow runs these jobs. Only `run` needs these settings, `impact` does not.",
                "[engines.airflow]",
                'kind = "airflow"',
                'url = "http://localhost:8080"  # your api-server',
                'username = "backfill"',
                'password = "env:AIRFLOW_PASSWORD"',
            )
        for node in tasks:
            task = node.airflow
            assert task is not None
            timetable = task.timetable or {}
            is_plain = "interval" in timetable and "key_format" not in timetable
            yield _lines(
                *self._table("job", node.ref),
                'engine = "airflow"',
                f"dag = {quoted(task.dag)}",
                f"task = {quoted(task.task)}",
                'batch = "key"',
                *[_PLAIN_SLICE] * is_plain,
            )

    def _states(self, ref: JobRef, setting: str) -> bool:
        table = self._resolver.job(ref).declaration
        return table is not None and getattr(table, setting) is not None

    def _any_space(self, refs: Sequence[DatasetRef | JobRef]) -> Iterator[str]:
        """Yield the namespace of a pattern that matches all the names, if it needs one."""
        if self._home and any(ref.namespace != self._home for ref in refs):
            yield '#? namespace = "*"  # of all namespaces'

    def _engine(self, refs: Sequence[JobRef]) -> Iterator[str]:
        coded = refs and all(self._states(ref, "entrypoint") for ref in refs)
        yield _lines(
            "# How does each job run? Only `run` needs these settings, `impact` does not.",
            "#? [[job]]",
            '#? name = "*"  # one entry for all jobs, or one per job',
            *self._any_space(refs),
            '#? engine = "local"  # Spark on this machine, or a name from [engines.*]',
            *([] if coded else ['#? entrypoint = "package.module:function"']),
            "# An entry with an exact name adds to that of `*`, and wins.",
        )

    def _own_output(self, ref: JobRef) -> Iterator[str]:
        facts = self._resolver.job(ref)
        for edge in facts.inputs:
            if edge.undeclared:
                yield _lines(
                    f"# {self._name(ref)} reads its own output {self._name(edge.dataset)}: how?",
                    *(f"#? {line}" for line in self._table("job", ref)),
                    *(f"#? {line}" for line in self._read(edge.dataset)),
                    '#? mapping = "offset"  # the previous key; or "window" with before = 6; or'
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
        """Yield a question for a job that is blocked although its datasets are known."""
        facts = self._resolver.job(ref)
        touched = [edge.dataset for edge in facts.inputs]
        touched += [edge.dataset for edge in facts.outputs]
        known = touched and all(self._resolver.calendar(dataset) for dataset in touched)
        if facts.problem is None or not known or any(edge.undeclared for edge in facts.inputs):
            return
        yield _lines(
            f"# {self._name(ref)}: {_visible(facts.problem)}.",
            *(f"#? {line}" for line in self._table("job", ref)),
            '#? grain = "day"  # the keys of its runs',
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
                    "# Does it run as a whole? If not, its parts are planned one by one.",
                    *(f"#? {line}" for line in self._table("job", parent)),
                )


def home_of(snapshot: LineageSnapshot) -> str | None:
    """Return the one namespace of all names of a lineage, None if there are several."""
    refs: list[DatasetRef | JobRef] = [*snapshot.jobs, *snapshot.datasets]
    spaces = {ref.namespace for ref in refs}
    return next(iter(spaces)) if len(spaces) == 1 else None


def _jobs_setting(code: Sequence[str]) -> list[str]:
    return [f"jobs = [{', '.join(map(quoted, code))}]"] if code else []


def _with_code(text: str, code: Sequence[str]) -> str:
    """Return a project file with `[project] jobs`, where its table lacks them."""
    table = tomllib.loads(text).get("project")
    if not code or table is None or table.get("jobs") == [*code]:
        return text
    head = re.search(r"(?m)^\[project\].*\n?", text)
    if "jobs" in table or head is None:
        raise UsageError(
            "the project file names its code itself",
            hint=f"Change its table [project]: {_jobs_setting(code)[0]}",
        )
    return f"{text[: head.end()].rstrip()}\n{_jobs_setting(code)[0]}\n{text[head.end() :]}"


def _whole(snapshot: LineageSnapshot, families: Sequence[Family]) -> LineageSnapshot:
    """Return the lineage with one dataset instead of each family."""
    tables = [
        DatasetDeclaration(
            name=one.dataset.name, namespace=one.dataset.namespace, pattern=one.pattern
        )
        for one in families
    ]
    return Folding(Declarations(datasets=tuple(tables))).fold(snapshot)


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _source(source: Mapping[str, str | Sequence[str]]) -> Iterator[str]:
    if not source:
        yield "# Its address contains a password, which is not stored here. Set this variable:"
        yield "# LINEAGE_BACKFILL_LINEAGE_MARQUEZ."
    for key, value in source.items():
        if isinstance(value, str):
            yield f"{key} = {quoted(value)}"
        else:
            yield f"{key} = [{', '.join(quoted(one) for one in value)}]"


def _address(ref: DatasetRef) -> str:
    """Return the location of the dataset if its name contains it, else an example."""
    if _STORAGE.match(ref.namespace):
        return f"{ref.namespace.rstrip('/')}/{ref.name.lstrip('/')}"
    if ref.namespace == "file" or ref.namespace.startswith("file:"):
        return ref.name
    return f"data/{ref.name}"
