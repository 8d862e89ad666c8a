"""What the lineage leaves open: one table under two names, one job under several, lost sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from json import dumps
from typing import Final, Literal

from lineage_backfill.lineage.events.event_facets import only_changes
from lineage_backfill.lineage.identity.merge import last_completed
from lineage_backfill.lineage.identity.naming import Spelling, spelling
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef, listed
from lineage_backfill.partitions.patterns import NamePattern, escaped
from lineage_backfill.plans.plan import Decision, Plan
from lineage_backfill.project.declarations import Declarations, JobDeclaration
from lineage_backfill.project.locations import dataset_storage
from lineage_backfill.project.matching import DeclaredNames, Layers

Kind = Literal["same-table", "job-names", "replaced", "sources", "outputs"]
#: A day or month in a name, with its form; an id or the time of a run.
_DATE: Final = re.compile(
    r"(?<!\d)(?:19|20)\d\d([-_.]?)(?:0[1-9]|1[0-2])(\1(?:0[1-9]|[12]\d|3[01]))?(?!\d)", re.ASCII
)
_ID: Final = re.compile(
    r"[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|\d{8}_\d{6}_\d{5}_\w{5}"
    r"|(?<!\d)(?:19|20)\d\d([-_.]?)[01]\d\1[0-3]\d[-_.T ]?[0-2]\d(?:([-_.:]?)[0-5]\d){0,2}"
    r"(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?(?!\d)|(?<!\d)\d{9,}(?:_\d+)*(?!\d)",
    re.ASCII,
)
#: Ways of writing that have sources.
_FROM_SOURCES: Final = ("merge", "overwrite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, with the lines of a project file that answer it with yes.

    `written` are the datasets whose change makes it matter, `jobs` those that it is about.
    """

    kind: Kind
    text: str
    lines: tuple[str, ...] = ()
    written: tuple[DatasetRef, ...] = ()
    jobs: tuple[JobRef, ...] = ()


def questions(snapshot: LineageSnapshot, declarations: Declarations) -> tuple[Question, ...]:
    """Return what the lineage and the declarations leave open, each once."""
    return (
        *_tables(snapshot),
        *_job_names(snapshot),
        *_replaced(snapshot),
        *_lost(snapshot, jobs := DeclaredNames(declarations).jobs),
        *_sinks(snapshot, jobs),
    )


def decisions(
    plan: Plan, snapshot: LineageSnapshot, declarations: Declarations
) -> Iterator[Decision]:
    """Yield the questions that bear on a plan."""
    asked = questions(snapshot, declarations)
    if not asked:
        return
    planned = {job.job for job in plan.jobs if job.status != "skipped"}
    changed = {one.dataset for one in plan.changed}
    changed.update(*(snapshot.jobs[ref].writes for ref in planned if ref in snapshot.jobs))
    for one in asked:
        if text := _bearing(one, planned, changed, snapshot):
            yield Decision(kind=one.kind, text=text)


def _bearing(
    one: Question,
    planned: AbstractSet[JobRef],
    changed: Collection[DatasetRef],
    snapshot: LineageSnapshot,
) -> str | None:
    """Return a question as a plan asks it; None if it does not matter there."""
    if one.kind == "sources":
        return one.text
    if one.kind == "outputs":
        return None if planned.isdisjoint(one.jobs) else one.text
    if one.kind == "same-table":
        left = [ref.name for ref in one.jobs if ref not in planned]
        matters = left and any(ref in changed for ref in one.written)
        return f"{one.text} {listed(left)} would follow" if matters else None
    both = sum(ref in planned for ref in one.jobs) > 1
    if one.kind == "job-names":
        return f"{one.text} [[job]] {one.lines[-1]}" if both else None
    modes = {mode for ref in one.jobs for _, mode in snapshot.jobs[ref].modes}
    if both and modes and "overwrite" not in modes:  # others meet as two writers
        return f"{one.text} (`replaces` in its [[job]])"
    return None


def _tables(snapshot: LineageSnapshot) -> Iterator[Question]:
    """Yield names that jobs read and none writes, and that may mean a table that one writes."""
    by_last: dict[str, list[tuple[DatasetRef, DatasetRef]]] = {}
    for ref in snapshot.writers:
        for name in _names(snapshot, ref):
            by_last.setdefault(_parts(name)[-1].casefold(), []).append((ref, name))
    touched: dict[DatasetRef, set[JobRef]] = {}
    for refs in (snapshot.readers, snapshot.writers):
        for ref, jobs in refs.items():
            touched.setdefault(ref, set()).update(jobs)
    for ref, readers in sorted(snapshot.readers.items()):
        if ref in snapshot.writers:
            continue
        alike = [
            (why, one)
            for own in _names(snapshot, ref)
            for one, name in sorted(by_last.get(_parts(own)[-1].casefold(), ()))
            if touched[one].isdisjoint(touched[ref]) and (why := _alike(own, name))
        ]
        alike = [(why, one) for one, why in {one: why for why, one in alike}.items()]
        if alike:
            why, table = alike[0]
            others = f" (or {listed([str(one) for _, one in alike[1:]], 2)})" if alike[1:] else ""
            yield Question(
                kind="same-table",
                text=f"is {ref} the table {table}{others}? {why} (`aliases` in its [[dataset]]);",
                lines=(
                    "[[dataset]]",
                    f"namespace = {dumps(table.namespace, ensure_ascii=False)}",
                    f"name = {dumps(table.name, ensure_ascii=False)}",
                    f"aliases = [{dumps(str(ref), ensure_ascii=False)}]",
                ),
                written=tuple(one for _, one in alike),
                jobs=readers,
            )


def _names(snapshot: LineageSnapshot, ref: DatasetRef) -> tuple[DatasetRef, ...]:
    """Return all names of a dataset: its folder may have an id in place of its name."""
    node = snapshot.datasets.get(ref)
    return (ref, *node.aliases) if node else (ref,)


def _alike(read: DatasetRef, written: DatasetRef) -> str | None:
    """Return how two names differ that may mean one table; None for other ones."""
    one, other = spelling(read), spelling(written)
    if one and other and one.platform is other.platform:
        return _differ(one, other)
    parts = [tuple(part.casefold() for part in _parts(ref)) for ref in (read, written)]
    if any(len(part) < 2 for part in parts) or parts[0][-2:] != parts[1][-2:]:
        return None
    places = [dataset_storage(*ref[:2]) for ref in (read, written)]
    if all(places):
        first, second = (str(place).split("/", 3) for place in places)
        is_other_host = first[0] == second[0] == "hdfs:" and first[3] == second[3]
        return "Only their hosts differ" if is_other_host else None
    return None if read.namespace == written.namespace else "Both end alike"


def _differ(one: Spelling, other: Spelling) -> str | None:
    short, long = sorted((one.folded[1], other.folded[1]), key=len)
    if long[len(long) - len(short) :] != short:
        return None
    if one.space == other.space:
        if len(short) < len(long):
            return "One is without its database"
        is_one = one.parts == other.parts or one.platform.case == "exact"
        return None if is_one else "They differ by letter case"
    hosts = [space.partition("://")[2].partition(":") for space in (one.space, other.space)]
    (host, _, port), (far, _, far_port) = hosts
    labels = {host.partition(".")[0], far.partition(".")[0]}
    if len(labels) == 1 and port == far_port and ("." in host) != ("." in far):
        return "One host is without its domain"
    return "Only their hosts differ" if len(short) == len(long) else None


def _parts(ref: DatasetRef) -> tuple[str, ...]:
    found = spelling(ref)
    if found is not None:
        return found.parts
    name = ref.name.strip("/")
    parts = name.split("/") if "/" in name else name.split(".")
    return tuple(part.removesuffix(".db") for part in parts) or (ref.name,)


def _job_names(snapshot: LineageSnapshot) -> Iterator[Question]:
    """Yield jobs whose names differ only in a date or an id."""
    found: dict[tuple[str, str], list[JobRef]] = {}
    for ref, node in snapshot.jobs.items():
        if (node.reads or node.writes) and (pattern := _pattern(ref.name)):
            found.setdefault((ref.namespace, pattern), []).append(ref)
    for (namespace, pattern), refs in sorted(found.items()):
        if len(refs) >= (2 if "{id}" in pattern or "%d" in pattern else 3):
            stem = NamePattern(pattern).stem or "job"
            yield Question(
                kind="job-names",
                text=f"are {len(refs)} jobs such as {refs[-1].name} runs of one job?",
                lines=(
                    "[[job]]",
                    f"namespace = {dumps(namespace, ensure_ascii=False)}",
                    *([] if NamePattern(pattern).stem else [f'name = "{stem}"']),
                    f"pattern = {dumps(pattern, ensure_ascii=False)}",
                ),
                jobs=tuple(sorted(refs)),
            )


def _pattern(name: str) -> str | None:
    """Return the pattern that a name suggests.

    >>> _pattern("deequ_agg_ds=2024_06_02"), _pattern("query_20240605_101112_00012_ab3de")
    ('deequ_agg_ds={day:%Y_%m_%d}', 'query_{id}')
    """
    if found := _ID.search(name):
        middle = "{id}"
    elif found := _DATE.search(name):
        grain, day = ("day", f"{found[1]}%d") if found[2] else ("month", "")
        middle = f"{{{grain}:%Y{found[1]}%m{day}}}"
    else:
        return None
    pattern = escaped(name[: found.start()]) + middle + escaped(name[found.end() :])
    return pattern if NamePattern(pattern).match(name) else None


def _replaced(snapshot: LineageSnapshot) -> Iterator[Question]:
    """Yield jobs that a newer one with the same edges seems to replace, as after a renaming."""
    shared = {ref: jobs for ref, jobs in snapshot.writers.items() if len(jobs) > 1}
    if not shared:
        return
    ended, begun = last_completed(snapshot), _first_runs(snapshot)
    pairs = {
        (old, new)
        for jobs in shared.values()
        for old in jobs
        for new in jobs
        if old in ended and new in begun and ended[old] < begun[new]
        if _edges(snapshot.jobs[old]) == _edges(snapshot.jobs[new])
        if _pattern(old.name) is None
    }
    for old, new in sorted(pairs):
        same = old.namespace == new.namespace
        yield Question(
            kind="replaced",
            text=f"does {new} replace {old}, which ran last before it began?",
            lines=(
                "[[job]]",
                f"namespace = {dumps(new.namespace, ensure_ascii=False)}",
                f"name = {dumps(new.name, ensure_ascii=False)}",
                f"replaces = {dumps(old.name if same else str(old), ensure_ascii=False)}",
            ),
            jobs=(old, new),
        )


def _edges(node: JobNode) -> tuple[Collection[DatasetRef], Collection[DatasetRef]]:
    return node.reads, node.writes


def _first_runs(snapshot: LineageSnapshot) -> Mapping[JobRef, datetime]:
    found: dict[JobRef, datetime] = {}
    for run in snapshot.history:
        when = run.started_at or run.ended_at
        if when is not None:
            found[run.job] = min(found.get(run.job, when), when)
    return found


def _lost(snapshot: LineageSnapshot, declared: Layers[JobDeclaration]) -> Iterator[Question]:
    """Yield jobs whose lineage names no source of a merge or overwrite, or nothing at all.

    One that overwrites what nothing else feeds may well load it from outside. Declared reads answer
    the question.
    """
    lost: dict[tuple[str, str], list[JobRef]] = {}
    silent = list[JobRef]()
    for ref, node in snapshot.jobs.items():
        if (found := declared.find(ref)) is not None and found.reads:
            continue
        if node.names_nothing:
            silent.append(ref)
            continue
        if node.reads or any(only_changes(one.name) for one in (ref, *node.parts)):
            continue
        for dataset, mode in node.modes:
            if mode == "merge" or (mode in _FROM_SOURCES and _is_fed(snapshot, node, dataset)):
                lost.setdefault((mode, dataset.name), []).append(ref)
    for (mode, name), refs in sorted(lost.items()):
        what = "merge into" if mode == "merge" else "overwrite of"
        yield Question(
            kind="sources",
            text=f"{what} {name}: its sources are not in the lineage"
            f" ({listed([ref.name for ref in refs], 2)}; declare [[job.reads]])",
            jobs=tuple(refs),
        )
    if silent:
        yield Question(
            kind="sources",
            text=f"{listed([ref.name for ref in silent], 2)}: what is read and written is not in"
            " the lineage (declare [[job.reads]] and [[job.writes]])",
            jobs=tuple(silent),
        )


def _sinks(snapshot: LineageSnapshot, declared: Layers[JobDeclaration]) -> Iterator[Question]:
    """Yield streams that read and whose events name no output, until it is declared."""
    for ref, node in snapshot.jobs.items():
        if node.processing == "STREAM" and node.reads and not node.writes:
            found = declared.find(ref)
            if found is None or not found.writes:
                yield Question(
                    kind="outputs",
                    text=f"{ref.name}: what this stream writes is not in the lineage (declare"
                    " [[job.writes]])",
                    jobs=(ref,),
                )


def _is_fed(snapshot: LineageSnapshot, node: JobNode, dataset: DatasetRef) -> bool:
    others: Iterable[JobRef] = snapshot.writers.get(dataset, ())
    return bool(node.former_reads) or any(snapshot.jobs[ref].reads for ref in others)
