"""Random small worlds of datasets and jobs, for the definition and for the planner alike."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.lengths import Span
from lineage_backfill.plans.plan import Plan
from lineage_backfill.plans.request import ChangedDataset, ChangedJob, Request
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    DimensionDeclaration,
    JobDeclaration,
    ReadDeclaration,
    WriteDeclaration,
    WriteMode,
)
from tests.oracle.definition import Cal, Column, Job, Key, Read, World, numbered, rows, spans

NOW = datetime(2024, 12, 20, 12, tzinfo=UTC)  # every calendar here has ended by then
ZONES = (
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Beirut",
)
#: Where the walked time holds a jump of New York's, Beirut's and Lord Howe's clocks.
MOMENTS = ("2023-11-02", "2024-03-07", "2024-03-28", "2024-04-04")
REGIONS = ("eu", "us", "apac")
EVERY = ("*",)  # runtime keys
COLUMNS = ("a", "b", "c")
#: How many periods of a grain make a few days to a few months.
COUNTS = {"hour": 60, "half": 40, "eight": 12, "day": 12, "week": 4, "month": 3, "quarter": 1}
_WHOLE = ("default", "all", "none")  # mappings that an unpartitioned input may have
ORDER = ("half", "hour", "eight", "day", "week", "month", "quarter")


def _calendar(rng: random.Random, around: str, lists: random.Random) -> Cal:
    shape = rng.random()
    if shape < 0.08:
        return Cal()
    if shape < 0.16:
        some = tuple(sorted(rng.sample(REGIONS, rng.randint(1, 3))))
        return Cal(statics=some if shape < 0.14 else EVERY)
    grain = rng.choice(("hour", "hour", "day", "day", "day", "half", "eight", "week", "month"))
    if lists.random() < 0.2:
        grain = f"list{lists.randrange(3)}"
    zone = "UTC" if grain == "eight" else rng.choice(ZONES)
    periods = spans(grain, zone)
    begin = datetime.fromisoformat(around).replace(tzinfo=UTC)
    first = bisect_left(periods, begin, key=lambda span: span.start)
    first -= rng.randint(0, 2)
    count = COUNTS.get(grain, 8)
    last = first + rng.randint(max(1, count // 2), count)
    statics = tuple(sorted(rng.sample(REGIONS, 2))) if shape > 0.88 else None
    if shape > 0.96:
        statics = EVERY
    zones: tuple[tuple[str, str], ...] = ()
    if lists.random() < 0.1 and statics is None:
        statics = tuple(sorted(lists.sample(REGIONS, 2)))
    if statics and statics != EVERY and grain not in ("hour", "half", "eight"):
        zones = tuple((key, lists.choice(ZONES)) for key in statics)
    return Cal(
        grain=grain,
        zone=zone,
        first=periods[first].label,
        last=periods[last].label,
        statics=statics,
        zones=zones,
    )


def _finer_or_same(cal: Cal, run: Cal) -> bool:
    """Whether one run key makes whole partitions of the output (the planner refuses others)."""
    if run.statics and not cal.statics:
        return False
    if EVERY in (run.statics, cal.statics) and run.statics and run.statics != cal.statics:
        return False  # named keys would be planned by their names
    if run.statics and not run.grain and cal.grain:
        # A job's plain static keys have no column, so no dimension of a product bears their name.
        return False
    if not run.grain:
        return True
    if not cal.grain or cal.zone != run.zone or cal.zones != run.zones:
        return False
    if cal.grain == run.grain:
        return True
    return (cal.grain, run.grain) in {("hour", "day"), ("day", "week"), ("day", "month")}


def make_world(seed: int) -> World:
    """Return the world of a seed: up to seven jobs in layers, with every kind of mapping."""
    rng = random.Random(seed)
    around = rng.choice(MOMENTS)
    lists = random.Random(f"lists of {seed}")
    datasets = {"root": _calendar(rng, around, lists)}
    if rng.random() < 0.3:
        datasets["other"] = _calendar(rng, around, lists)
    jobs: list[Job] = []
    for number in range(rng.randint(1, 6)):
        name = f"j{number}"
        run = _calendar(rng, around, lists)
        output = f"d{number}"
        declares = False
        outputs = {output: run}
        shape = rng.random()
        if shape < 0.15:
            # A second output of a finer calendar, under a declared run calendar.
            second = _calendar(rng, around, lists)
            if _finer_or_same(second, run) and second != run:
                outputs[f"{output}b"] = second
                declares = True
        elif shape < 0.35 and run.grain and run.grain != "eight":  # it counts from its start
            # Outputs with other bounds: the run calendar has the first and last key of any.
            outputs[f"{output}b"] = _shifted(rng, run)
            run = _joined(tuple(outputs.values()))
        elif shape < 0.45 and run.grain:
            outputs[output] = _shifted(rng, run)
            declares = True
        known = sorted(datasets)
        if run.statics == EVERY:  # named keys would be planned by their names
            known = [name for name in known if datasets[name].statics in (None, EVERY)]
        reads = [
            _read(rng, dataset, datasets[dataset], run)
            for dataset in rng.sample(known, min(len(known), rng.randint(1, 3)))
        ]
        lookback = rng.choice((0, 0, 0, 1, 2)) if run.grain else 0
        datasets.update(outputs)
        reads += [
            _read_own(rng, own)
            for own in outputs
            if run.grain and datasets[own].grain and rng.random() < 0.25
        ]
        jobs.append(Job(name, run, tuple(reads), tuple(outputs), lookback, declares))
    world = World(datasets, jobs, _some_keys(rng, {"root": datasets["root"]}, (1, 1, 2, 5)))
    world.exact = rng.random() < 0.2
    world.excluded = {job.name for job in jobs if rng.random() < 0.08}
    _ask_for_more(rng, world)
    if rng.random() < 0.3:
        _write_twice(rng, world)
    if rng.random() < 0.3:
        _tie(rng, world)
    more = random.Random(f"more of {seed}")
    if more.random() < 0.6:
        for number, job in enumerate(world.jobs):
            varied = tuple([_vary(more, world, job, read) for read in job.reads])
            world.jobs[number] = replace(job, reads=varied)
        for number in range(len(world.jobs)):
            if more.random() < 0.2:
                _let_depend(more, world, number)
    return world


def _write_twice(rng: random.Random, world: World) -> None:
    """Let a job write a dataset that another one writes, or that is a root."""
    pairs = [
        (place, dataset)
        for place, job in enumerate(world.jobs)
        for dataset, cal in sorted(world.datasets.items())
        if dataset not in job.writes
        and "eight" not in (cal.grain, job.run.grain)
        and _finer_or_same(cal, job.run)
        and not (cal.statics and not job.run.statics and job.run.grain and not cal.grain)
    ]
    if pairs:
        place, dataset = rng.choice(pairs)
        job = world.jobs[place]
        reads = [read for read in job.reads if read.dataset != dataset]
        if len(reads) < len(job.reads) and job.run.grain and world.datasets[dataset].grain:
            reads.append(_read_own(rng, dataset))
        writes = (*job.writes, dataset)
        world.jobs[place] = replace(job, reads=tuple(reads), writes=writes, declares_run=True)


def _tie(rng: random.Random, world: World) -> None:
    """Let an earlier job read what a later one writes, so that datasets form a cycle."""
    pairs = [
        (place, dataset)
        for place, job in enumerate(world.jobs)
        for later in world.jobs[place + 1 :]
        for dataset in later.writes
        if dataset not in job.writes and dataset not in {read.dataset for read in job.reads}
        if job.run.statics != EVERY or world.datasets[dataset].statics in (None, EVERY)
    ]
    for place, dataset in rng.sample(pairs, min(len(pairs), rng.randint(1, 2))):
        job, up = world.jobs[place], world.datasets[dataset]
        read = _read(rng, dataset, up, job.run)
        if up.grain and job.run.grain and rng.random() < 0.5:
            back = rng.randint(1, 4)
            read = Read(dataset, "offset", before=back, after=-back)
        if dataset not in {read.dataset for read in job.reads}:
            world.jobs[place] = replace(job, reads=(*job.reads, read))


def _some_keys(
    rng: random.Random, calendars: Mapping[str, Cal], counts: tuple[int, ...]
) -> dict[str, set[Key]]:
    found = {}
    for name, cal in calendars.items():
        keys = cal.existing()
        found[name] = set(rng.sample(keys, min(len(keys), rng.choice(counts))))
    return found


def _ask_for_more(rng: random.Random, world: World) -> None:
    """Let a request have several roots, and limits of every kind."""
    if rng.random() < 0.35:
        names = rng.sample(sorted(world.datasets), rng.randint(1, min(3, len(world.datasets))))
        more = _some_keys(rng, {name: world.datasets[name] for name in names}, (1, 2))
        for name, keys in more.items():
            world.changed[name] = world.changed.get(name, set()) | keys
    if rng.random() < 0.25:
        some = rng.sample(world.jobs, rng.randint(1, min(2, len(world.jobs))))
        world.asked = _some_keys(rng, {job.name: job.run for job in some}, (1, 2))
        world.asked_exactly = {name for name in world.asked if rng.random() < 0.3}
    if rng.random() < 0.15:
        world.depth = rng.randint(1, 3)
    if rng.random() < 0.3:
        timed = [name for name, cal in world.datasets.items() if cal.grain]
        world.retention = {
            name: rng.randint(1, COUNTS.get(world.datasets[name].grain or "day", 8))
            for name in timed
            if rng.random() < 0.4
        }
        world.allow_expired = rng.random() < 0.15
    if rng.random() < 0.35:
        world.columns = set(rng.sample(COLUMNS, rng.randint(1, 2)))
        for job in world.jobs:
            for read in job.reads:
                for written in job.writes if rng.random() < 0.8 else ():
                    world.column_lineage += _columns(rng, job.name, read.dataset, written)


def _columns(rng: random.Random, job: str, read: str, written: str) -> list[Column]:
    found = [
        Column(job, read, source, written, rng.choice(COLUMNS))
        for source in COLUMNS
        if rng.random() < 0.45
    ]
    if rng.random() < 0.1:  # a filter: it decides which rows there are
        found.append(Column(job, read, rng.choice(COLUMNS), written, "*"))
    return found


def _shifted(rng: random.Random, cal: Cal) -> Cal:
    """Return the calendar with other bounds."""
    places = numbered(cal.grain or "", cal.zone)
    first = places[cal.first or ""] + rng.randint(-4, 4)
    labels = cal.all_spans
    last = min(max(first, places[cal.last or ""] + rng.randint(-6, 6)), len(labels) - 1)
    while labels[last].end > NOW:
        last -= 1
    return replace(cal, first=labels[first].label, last=labels[last].label)


def _joined(calendars: tuple[Cal, ...]) -> Cal:
    """Return the calendar from the earliest first key to the newest last key."""
    places = numbered(calendars[0].grain or "", calendars[0].zone)
    first = min((cal.first or "" for cal in calendars), key=places.__getitem__)
    last = max((cal.last or "" for cal in calendars), key=places.__getitem__)
    return replace(calendars[0], first=first, last=last)


def _read_own(rng: random.Random, output: str) -> Read:
    kind = rng.choice(("offset", "offset", "window", "none"))
    back = rng.choice((1, 1, 2, 3))
    if kind == "offset":
        return Read(output, "offset", before=back, after=-back)
    return Read(output, kind, before=back if kind == "window" else 0)


def _vary(rng: random.Random, world: World, job: Job, read: Read) -> Read:
    """Return an input with what is drawn last, so that other worlds keep their seeds."""
    if read.mapping == "none" or read.dataset in job.writes or not job.run.grain:
        return read
    if rng.random() < 0.15:
        read = replace(read, lookback=rng.choice((0, 1, 3)))
    if not world.datasets[read.dataset].grain or rng.random() > 0.3:
        return read
    kind = rng.choice(("as_of", "last", "window", "window", "offset"))
    if kind == "offset":
        by = rng.choice(("-1d", "-2d", "6h", "-30m", "-1w", "1d"))
        back = by[1:] if by[0] == "-" else f"-{by}"
        return replace(read, mapping=kind, before=0, after=0, lengths=(back, by))
    if kind == "window":
        sizes = ("", "0d", "1d", "4h", "90m", "2d")
        lengths = (rng.choice(sizes), rng.choice(sizes[1:]))
        before = 0 if lengths[0] else rng.randint(0, 2)
        return replace(read, mapping=kind, before=before, after=0, lengths=lengths)
    return replace(read, mapping=kind, before=0, after=0)


def _let_depend(rng: random.Random, world: World, number: int) -> None:
    """Let a job depend on its past, and merge into a table without partitions where that fits."""
    job = world.jobs[number]
    grains = {world.datasets[name].grain for name in job.writes}
    if not job.run.grain or any(world.datasets[name] != job.run for name in job.writes):
        return
    world.jobs[number] = job = replace(job, depends_on_past=True)
    touching = [
        other.name
        for other in world.jobs
        for name in (*other.writes, *(r.dataset for r in other.reads if r.mapping not in _WHOLE))
        if name in job.writes
    ]
    (name, *others) = job.writes
    free = not others and touching == [job.name] and name not in world.retention
    if free and "eight" not in grains and name not in world.changed and rng.random() < 0.6:
        world.datasets[name] = Cal()
        world.jobs[number] = replace(job, declares_run=True)


def _read(rng: random.Random, dataset: str, up: Cal, run: Cal) -> Read:
    roll = rng.random()
    if up.grain and run.grain:
        if roll < 0.2:
            return Read(dataset, "window", before=rng.randint(0, 3), after=rng.randint(0, 1))
        if roll < 0.3:
            by = rng.choice((-1, -2, 1))
            return Read(dataset, "offset", before=-by, after=by)
    if roll > 0.95:
        return Read(dataset, "all")
    if roll > 0.9:
        return Read(dataset, "none")
    if up.statics and run.statics and not (up.grain or run.grain) and roll < 0.4:
        table = tuple(
            (key, tuple(rng.sample(up.statics, rng.randint(0, len(up.statics)))))
            for key in run.statics
        )
        return Read(dataset, "map", table=table)
    return Read(dataset)


# --- the same world for the planner ---------------------------------------------------------------


def time_fields(cal: Cal) -> dict[str, Any]:
    """Return what declares the time dimension of a calendar; nothing where it has none."""
    if not cal.grain:
        return {}
    slices = {"half": {"cron": "30 * * * *"}, "eight": {"every": "8h"}}
    kind: dict[str, Any] = slices.get(cal.grain, {"grain": cal.grain})
    if cal.grain.startswith("list"):
        kind = {"boundaries": rows(cal.grain)}
    return {
        **kind,
        "zone": (("by", "region"), *cal.zones) if cal.zones else cal.zone,
        "start": cal.first,
        "end": cal.last,
    }


def _static(cal: Cal) -> CalendarDeclaration:
    return CalendarDeclaration(keys="runtime" if cal.statics == EVERY else cal.statics)


def reaches(read: Read) -> dict[str, Any]:
    """Return how far a window or an offset reaches, as a project file has it."""
    before, after = (Span.read(text) for text in read.lengths)
    if read.mapping == "window":
        return {"before": before or read.before, "after": after or read.after}
    return {"by": after or read.after} if read.mapping == "offset" else {}


def _declare(cal: Cal) -> dict[str, Any]:
    time = time_fields(cal)
    if cal.statics and cal.grain:
        return {
            "dimensions": (
                DimensionDeclaration(name="time", calendar=CalendarDeclaration(**time)),
                DimensionDeclaration(name="region", calendar=_static(cal)),
            )
        }
    if cal.statics:
        return {"calendar": _static(cal), "columns": {"region": None}}
    return {"calendar": CalendarDeclaration(**(time or {"grain": "none"}))}


def planner_input(world: World) -> tuple[Request, LineageSnapshot, Declarations]:
    """Return the world in the planner's own terms."""

    def ref(name: str) -> DatasetRef:
        return DatasetRef("w", name)

    jobs = [
        JobNode(
            ref=JobRef("w", job.name),
            reads=tuple(sorted(ref(read.dataset) for read in job.reads)),
            writes=tuple(sorted(ref(name) for name in job.writes)),
        )
        for job in world.jobs
    ]
    declared = []
    for job in world.jobs:
        run = _declare(job.run) if job.declares_run else {}
        run.pop("columns", None)
        reads = []
        for read in job.reads:
            if read.mapping == "default" and read.lookback is None:
                continue
            reads.append(
                ReadDeclaration(
                    dataset=read.dataset,
                    mapping=None if read.mapping == "default" else read.mapping,  # type: ignore[arg-type]
                    lookback=read.lookback,
                    map=dict(read.table),
                    **reaches(read),
                )
            )
        mode: WriteMode | None = "merge" if job.depends_on_past else None
        writes = tuple(
            WriteDeclaration(dataset=name, lookback=job.lookback, mode=mode) for name in job.writes
        )
        run["depends_on_past"] = job.depends_on_past or None
        declared.append(JobDeclaration(name=job.name, reads=tuple(reads), writes=writes, **run))
    declarations = Declarations(
        namespace="w",
        datasets=tuple(
            DatasetDeclaration(name=name, retention=world.retention.get(name), **_declare(cal))
            for name, cal in world.datasets.items()
        ),
        jobs=tuple(declared),
    )
    changed = tuple(
        ChangedDataset(
            dataset=ref(name),
            keys=tuple(_request_key(world.datasets[name], key) for key in sorted(keys, key=str)),
        )
        for name, keys in world.changed.items()
    )
    runs = {job.name: job.run for job in world.jobs}
    request = Request(
        changed=changed,
        jobs=tuple(
            ChangedJob(
                job=JobRef("w", name),
                keys=tuple(_request_key(runs[name], key) for key in sorted(keys, key=str)),
                exact=name in world.asked_exactly,
            )
            for name, keys in world.asked.items()
        ),
        exclude=tuple(sorted(world.excluded)),
        columns=tuple(sorted(world.columns)),
        depth=world.depth,
        exact=world.exact,
        allow=frozenset({"expired"} if world.allow_expired else ()),
    )
    columns = tuple(
        ColumnEdge(
            job=JobRef("w", one.job),
            input=ref(one.read),
            input_column=one.read_column,
            output=ref(one.written),
            output_column=one.written_column,
            direct=one.written_column != "*",
        )
        for one in dict.fromkeys(world.column_lineage)
    )
    # That a dataset is known which no job names is no fault of a plan.
    known = [DatasetNode(ref=one.dataset, fields=COLUMNS) for one in request.changed]
    return request, LineageSnapshot.of(jobs, known, column_edges=columns), declarations


def _request_key(cal: Cal, key: Key) -> Any:
    if cal.grain and cal.statics:
        time, static = key
        assert time is not None
        return {"time": [cal.all_spans[time].label], "region": [static]}
    return cal.label(key)


def labels(cal: Cal, keys: Any) -> set[str]:
    """Return the labels of keys that a plan prints as keys, ranges and boxes."""
    found: set[str] = set()

    def times(texts: Any) -> list[str]:
        assert cal.grain is not None
        places = numbered(cal.grain, cal.zone)
        result = []
        for text in texts:
            first, _, last = text.partition("..")
            periods = cal.all_spans[places[first] : places[last or first] + 1]
            result += [span.label for span in periods]
        return result

    for key in keys:
        if not isinstance(key, str):
            found |= {f"{t}/{s}" for t in times(key["time"]) for s in key["region"]}
        elif cal.grain:
            found |= set(times([key]))
        else:
            found.add(key)
    return found


def run_waits(world: World, plan: Plan) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return, for each (job, key) of a plan's runs, those that it waits for."""
    cals = {job.name: job.run for job in world.jobs}
    assert plan.runs is not None
    names = {}
    for run in plan.runs:
        (label,) = labels(cals[run.job.name], run.partitions)
        names[run.id] = (run.job.name, label)
    return {names[run.id]: {names[up] for up in run.upstream} for run in plan.runs}
