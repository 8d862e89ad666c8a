"""What a plan is, said as plainly as possible: sets of single keys, and rules applied until
nothing changes. Shares no code with the planner; slow, and meant to be obviously right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, cached_property
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

STEP = timedelta(minutes=30)  # every border of every calendar used here lies on such a step
WALK_FROM = datetime(2023, 3, 1, tzinfo=UTC)
WALK_TO = datetime(2025, 2, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Span:
    """One period of a grain: its label and its half-open interval in UTC."""

    label: str
    start: datetime
    end: datetime

    def meets(self, start: datetime, end: datetime) -> bool:
        return self.start < end and start < self.end


@cache
def _offset(offset: timedelta | None) -> str:
    return datetime(2024, 1, 1, tzinfo=timezone(offset or timedelta())).strftime("%z")


def _period(local: datetime, grain: str) -> str:
    if grain == "half":  # the cron expression 30 * * * *
        local -= timedelta(minutes=30)
    day = f"{local.year:04}-{local.month:02}-{local.day:02}"
    if grain == "hour":
        return f"{day}T{local.hour:02}{_offset(local.utcoffset())}"
    if grain == "half":
        return f"{day}T{local.hour:02}:30"
    if grain == "eight":  # every 8h from 2024-01-01T00:00 in UTC
        return f"{day}T{local.hour // 8 * 8:02}:00"
    if grain == "day":
        return day
    if grain == "week":
        year, week, _ = local.isocalendar()
        return f"{year:04}-W{week:02}"
    month = {"month": local.month, "quarter": (local.month - 1) // 3 * 3 + 1}.get(grain, 1)
    return f"{local.year:04}-{month:02}-01"


@cache
def clock(zone: str) -> tuple[tuple[datetime, datetime], ...]:
    """Return each half hour of the walked time, and what the clock of the zone shows then."""
    here = ZoneInfo(zone)
    moments = (WALK_FROM + number * STEP for number in range((WALK_TO - WALK_FROM) // STEP))
    return tuple((moment, moment.astimezone(here)) for moment in moments)


@cache
def rows(grain: str) -> tuple[tuple[str, str, str], ...]:
    """Return the keys of a calendar by list (`list1`), with their local starts and ends."""
    rng = random.Random(grain)
    found: list[tuple[str, str, str]] = []
    moment = datetime(2023, 3, 6, tzinfo=UTC)
    while moment < datetime(2025, 1, 5, tzinfo=UTC):
        end = moment + timedelta(days=rng.choice((1, 1, 2, 5, 7)), hours=rng.choice((0, 0, 0, 7)))
        found.append((f"P{len(found):03}", f"{moment:%FT%H:%M}", f"{end:%F %H:%M}"))
        moment = end + timedelta(days=rng.choice((0, 0, 0, 1, 3)))
        if moment.hour > 8:
            moment = moment.replace(hour=0) + timedelta(days=1)
    return tuple(found)


def _shown(zone: str, text: str) -> datetime:
    """Return the first moment at which the clock of a zone shows a local time, or a later one."""
    wanted = datetime.fromisoformat(text)
    near = (wanted.replace(tzinfo=UTC) - WALK_FROM) // STEP - 30
    return next(m for m, local in clock(zone)[near:] if local.replace(tzinfo=None) >= wanted)


@cache
def spans(grain: str, zone: str) -> tuple[Span, ...]:
    """Return all whole periods of the walked time, by looking at the clock every half hour."""
    if grain.startswith("list"):
        listed = ((key, _shown(zone, start), _shown(zone, end)) for key, start, end in rows(grain))
        return tuple(Span(*one) for one in listed)
    found: list[tuple[str, datetime]] = []
    for moment, local in clock(zone):
        label = _period(local, grain)
        if not found or found[-1][0] != label:
            found.append((label, moment))
    whole = [
        Span(label, start, found[index + 1][1])
        for index, (label, start) in enumerate(found[:-1])
        if index
    ]
    if grain != "hour":
        return tuple(whole)
    # An hour shows its offset only where its local label happens twice.
    plain = [span.label[:13] for span in whole]
    return tuple(
        Span(span.label if plain.count(text) > 1 else text, span.start, span.end)
        if text in plain[max(0, index - 3) : index] + plain[index + 1 : index + 4]
        else Span(text, span.start, span.end)
        for index, (span, text) in enumerate(zip(whole, plain, strict=True))
    )


@cache
def numbered(grain: str, zone: str) -> dict[str, int]:
    """Return the place of each label among the periods."""
    return {span.label: place for place, span in enumerate(spans(grain, zone))}


@dataclass(frozen=True)
class Cal:
    """A calendar: a time dimension (grain, zone, existing labels first..last), static keys, both
    or neither; in a product, static keys may have zones of their own."""

    grain: str | None = None
    zone: str = "UTC"
    first: str | None = None
    last: str | None = None
    statics: tuple[str, ...] | None = None
    zones: tuple[tuple[str, str], ...] = ()

    def zone_of(self, static: str | None) -> str:
        """Return the zone of the periods of a static key."""
        return dict(self.zones).get(static or "", self.zone)

    def span(self, place: int, static: str | None) -> Span:
        """Return the period of a place in the zone of a static key: the one with its label."""
        found, zone = self.all_spans[place], self.zone_of(static)
        if zone == self.zone or self.grain is None:
            return found
        return spans(self.grain, zone)[numbered(self.grain, zone)[found.label]]

    @cached_property
    def all_spans(self) -> tuple[Span, ...]:
        return spans(self.grain, self.zone) if self.grain else ()

    def existing(self) -> list[tuple[int | None, str | None]]:
        """Return the keys that exist as (index of the period, static key)."""
        times: list[int | None] = [None]
        if self.grain:
            if self.last is None or self.first is None:
                times = []
            else:
                places = numbered(self.grain, self.zone)
                times = list(range(places[self.first], places[self.last] + 1))
        return list(product(times, self.statics or (None,)))

    def label(self, key: tuple[int | None, str | None]) -> str:
        time, static = key
        if time is not None and static is not None:
            return f"{self.all_spans[time].label}/{static}"
        if time is not None:
            return self.all_spans[time].label
        return static if static is not None else "*"


@dataclass(frozen=True)
class Read:
    """An input of a job and its mapping."""

    dataset: str
    mapping: str = "default"  # default, window, offset, all, none, map, last, as_of
    before: int = 0
    after: int = 0
    lengths: tuple[str, str] = ("", "")  # in place of these: 4h, -2d
    lookback: int | None = None  # None: that of the job
    table: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Job:
    name: str
    run: Cal
    reads: tuple[Read, ...]
    writes: tuple[str, ...]
    lookback: int = 0
    declares_run: bool = False
    depends_on_past: bool = False


@dataclass(frozen=True)
class Column:
    """A column of an output that a job makes from a column of an input."""

    job: str
    read: str
    read_column: str
    written: str
    written_column: str


@dataclass
class World:
    """Datasets and jobs, and a request: what changed, which keys of jobs are to be run again."""

    datasets: dict[str, Cal]
    jobs: list[Job]
    changed: dict[str, set[tuple[int | None, str | None]]]
    asked: dict[str, set[tuple[int | None, str | None]]] = field(default_factory=dict)
    asked_exactly: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    depth: int | None = None
    exact: bool = False
    retention: dict[str, int] = field(default_factory=dict)
    allow_expired: bool = False
    columns: set[str] = field(default_factory=set)
    column_lineage: list[Column] = field(default_factory=list)


Key = tuple[int | None, str | None]


def place(key: Key) -> int:
    """Return the index of the period of a key that has one."""
    assert key[0] is not None
    return key[0]


def same_static(one: Key, other: Key) -> bool:
    """Whether two static keys are the same; `*` stands for every present and future one."""
    return one[1] == other[1] or "*" in (one[1], other[1])


def reads_key(world: World, job: Job, read: Read, run_key: Key, input_key: Key) -> bool:
    """Whether the run key reads that partition of the input, by the table of mappings."""
    if read.mapping == "none":
        return False
    up, run = world.datasets[read.dataset], job.run
    if read.mapping == "map":
        return up.label(input_key) in dict(read.table).get(run.label(run_key), ())
    if read.mapping == "all":
        return True
    own = read.dataset in job.writes
    time_ok = True
    if up.grain and run.grain:
        static = run_key[1]
        before, after = read.before, read.after
        if own and read.mapping == "window":
            after = -1
        start = run.span(place(run_key) - before, static).start
        end = run.span(place(run_key) + after, static).end
        if read.lengths[0]:
            own_start = run.span(place(run_key), static).start
            start = later(own_start, read.lengths[0], run.zone_of(static), -1)
        if read.lengths[1]:
            own_end = run.span(place(run_key), static).end
            end = later(own_end, read.lengths[1], run.zone_of(static))
            end = max(end, start + timedelta(seconds=1))
        time_ok = up.span(place(input_key), input_key[1]).meets(start, end)
        if read.mapping in ("last", "as_of"):
            same = [k for k in up.existing() if k[1] == input_key[1]]
            begun: list[Any] = [k[0] for k in same if up.span(place(k), k[1]).start <= start]
            time_ok = bool(begun) and input_key[0] == max(begun)
    static_ok = True
    # Keys that a job declares belong to no column: no dimension of a product bears their name.
    nameless = job.declares_run and not run.grain
    if up.statics and run.statics and not (nameless and up.grain):
        static_ok = same_static(input_key, run_key)
    return time_ok and static_ok


def makes_key(world: World, job: Job, dataset: str, run_key: Key, output_key: Key) -> bool:
    """Whether the run key writes into that partition of the output."""
    out, run = world.datasets[dataset], job.run
    if out.grain and run.grain:
        span = run.span(place(run_key), run_key[1])
        if not out.span(place(output_key), output_key[1]).meets(span.start, span.end):
            return False
    return not (out.statics and run.statics) or same_static(output_key, run_key)


def lookback_of(job: Job, read: Read) -> int:
    """Return how many later run keys' reads of an input a partition depends on."""
    if read.dataset in job.writes:
        return 0
    return job.lookback if read.lookback is None else read.lookback


def largest_lookback(job: Job) -> int:
    """Return how many partitions before its key a run corrects."""
    live = [r for r in job.reads if r.mapping != "none" and r.dataset not in job.writes]
    return max((lookback_of(job, read) for read in live), default=job.lookback)


def later(instant: datetime, length: str, zone: str, sign: int = 1) -> datetime:
    """Return the instant so much later, by the clock of the zone for days and weeks."""
    count, unit = sign * int(length[:-1]), length[-1]
    if unit in "mh":
        return instant + count * timedelta(minutes=1 if unit == "m" else 60)
    ahead = count * timedelta(days=7 if unit == "w" else 1)
    wanted = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0) + ahead
    near = (instant + ahead - WALK_FROM) // STEP - 8
    shown = ((moment, local.replace(tzinfo=None, fold=0)) for moment, local in clock(zone)[near:])
    return next(moment for moment, local in shown if local >= wanted) if count else instant


def requires_key(world: World, job: Job, read: Read, run_key: Key, input_key: Key) -> bool:
    """Whether the next run of a key reads that partition: of `last`, the newest."""
    up = world.datasets[read.dataset]
    if read.mapping != "last":
        return reads_key(world, job, read, run_key, input_key)
    newest = max((place(key) for key in up.existing()), default=None)
    by_static = not (up.statics and job.run.statics) or same_static(input_key, run_key)
    return input_key[0] == newest and by_static


@dataclass
class Answer:
    planned: dict[str, set[Key]]
    left: dict[str, set[Key]]


#: A job, an input and an output.
Path = tuple[str, str, str]
#: Stale run keys by job and output.
Stale = dict[tuple[str, str], set[Key]]


def column_paths(world: World) -> set[Path]:
    """Return the ways (job, input, output) along which a change of the columns travels."""
    everything = "*"
    columns: dict[str, set[str]] = {name: set() for name in world.datasets}
    for name in world.changed:
        columns[name] |= world.columns or {everything}
    for job in world.jobs:
        if job.name in world.asked:
            for dataset in job.writes:
                columns[dataset].add(everything)
    sent = {(one.job, one.read) for one in world.column_lineage}
    told = {(one.job, one.written) for one in world.column_lineage}
    paths: set[Path] = set()
    while True:
        before = (len(paths), sum(map(len, columns.values())))
        for job, read, dataset in edges(world):
            changed = columns[read.dataset]
            if not changed:
                continue
            path = (job.name, read.dataset, dataset)
            if everything in changed or path[:2] not in sent or (job.name, dataset) not in told:
                made = {everything}
            else:
                made = {
                    one.written_column
                    for one in world.column_lineage
                    if (one.job, one.read, one.written) == path and one.read_column in changed
                }
            if made:
                paths.add(path)
                columns[dataset] |= made
        if before == (len(paths), sum(map(len, columns.values()))):
            return paths


def edges(world: World) -> list[tuple[Job, Read, str]]:
    """Return each job with each of its inputs, but references, and each of its outputs."""
    return [
        (job, read, dataset)
        for job in world.jobs
        for read in job.reads
        if read.mapping != "none"
        for dataset in job.writes
    ]


def expired(world: World, dataset: str) -> set[Key]:
    """Return the partitions that are past their retention."""
    existing, count = world.datasets[dataset].existing(), world.retention.get(dataset)
    if count is None or not existing:
        return set()
    newest = max(place(key) for key in existing)
    return {key for key in existing if place(key) <= newest - count}


def too_deep(world: World) -> set[str]:
    """Return the jobs that are further from the change than `depth` jobs."""
    if world.depth is None:
        return set()
    near = set(world.asked)
    near |= {job.name for job, read, _ in edges(world) if read.dataset in world.changed}
    for _ in range(world.depth - 1):
        made = {dataset for job in world.jobs if job.name in near for dataset in job.writes}
        near |= {job.name for job, read, _ in edges(world) if read.dataset in made}
    return {job.name for job in world.jobs} - near


def solve(world: World) -> Answer:
    """Apply the rules until nothing changes."""
    run_keys = {job.name: set(job.run.existing()) for job in world.jobs}
    data_keys = {name: set(cal.existing()) for name, cal in world.datasets.items()}
    for name, keys in world.changed.items():
        data_keys[name] |= keys
    touched, needed = (
        {
            (job.name, read.dataset, key): {
                part for part in data_keys[read.dataset] if rule(world, job, read, key, part)
            }
            for job in world.jobs
            for read in job.reads
            for key in run_keys[job.name]
        }
        for rule in (reads_key, requires_key)
    )
    made = {
        (job.name, dataset, key): {
            part
            for part in world.datasets[dataset].existing()
            if makes_key(world, job, dataset, key, part)
        }
        for job in world.jobs
        for dataset in job.writes
        for key in run_keys[job.name]
    }
    paths = column_paths(world)

    def corrected_by(job: Job, key: Key, lookback: int) -> set[Key]:
        """Return the run keys whose reads the key depends on."""
        if not job.run.grain:
            return {key}
        found: set[Key] = {(place(key) + n, key[1]) for n in range(lookback + 1)}
        return found & run_keys[job.name]

    def reads(job: Job, read: Read, key: Key, widened: bool) -> set[Key]:
        keys = corrected_by(job, key, lookback_of(job, read)) if widened else {key}
        return {part for k in keys for part in touched[job.name, read.dataset, k]}

    def requires(job: Job, read: Read, key: Key) -> set[Key]:
        keys = corrected_by(job, key, lookback_of(job, read))
        return {part for k in keys for part in needed[job.name, read.dataset, k]}

    def asked(job: Job, key: Key, widened: bool) -> bool:
        wide = widened and job.name not in world.asked_exactly
        return bool(
            corrected_by(job, key, largest_lookback(job) if wide else 0)
            & world.asked.get(job.name, set())
        )

    def becomes_stale(
        job: Job, dataset: str, key: Key, bad: dict[str, set[Key]], widened: bool, stale: Stale
    ) -> bool:
        """Whether what a job makes of an output is stale, by what is bad so far."""
        earlier = (place(key) - 1, key[1]) if job.depends_on_past else None
        return (
            asked(job, key, widened)
            or earlier in stale[job.name, dataset]
            or any(
                (job.name, read.dataset, dataset) in paths
                and reads(job, read, key, widened) & bad[read.dataset]
                for read in job.reads
            )
        )

    def spread(jobs: list[Job], bad: dict[str, set[Key]], widened: bool) -> Stale:
        stale: Stale = {(job.name, dataset): set() for job in jobs for dataset in job.writes}
        while True:
            before = sum(map(len, stale.values()))
            for job in jobs:
                for dataset, key in product(job.writes, run_keys[job.name]):
                    known = stale[job.name, dataset]
                    writes = made[job.name, dataset, key]
                    if not writes or key in known:
                        continue
                    if becomes_stale(job, dataset, key, bad, widened, stale):
                        known.add(key)
                        bad[dataset] |= writes
            if before == sum(map(len, stale.values())):
                return stale

    def of(stale: Stale, job: Job) -> set[Key]:
        return {key for dataset in job.writes for key in stale[job.name, dataset]}

    dirty = {name: set(world.changed.get(name, ())) for name in world.datasets}
    stale = spread(world.jobs, dirty, widened=True)
    left: dict[str, set[Key]] = {job.name: set() for job in world.jobs}
    cut = world.excluded | too_deep(world)
    for job in world.jobs:
        if job.name in cut:
            left[job.name] |= of(stale, job)
        elif world.exact and largest_lookback(job):
            # Without the widening a key is stale by its own reads and by its own earlier keys.
            bad = {name: set(keys) for name, keys in dirty.items()}
            bad |= {name: set(world.changed.get(name, ())) for name in job.writes}
            for other, name in product(world.jobs, job.writes):
                if other is not job and name in other.writes:
                    for key in stale[other.name, name]:
                        bad[name] |= made[other.name, name, key]
            left[job.name] |= of(stale, job) - of(spread([job], bad, widened=False), job)
    if not world.allow_expired:
        for job in world.jobs:
            for key, read in product(of(stale, job), job.reads):
                if requires(job, read, key) & expired(world, read.dataset):
                    left[job.name].add(key)
            for key in of(stale, job):
                if all(made[job.name, one, key] <= expired(world, one) for one in job.writes):
                    left[job.name].add(key)
    # A key that requires what nobody repairs is left, and so is what it would have repaired.
    while True:
        before = sum(map(len, left.values()))
        unrepaired: dict[str, set[Key]] = {name: set() for name in world.datasets}
        for job in world.jobs:
            for dataset, key in product(job.writes, left[job.name]):
                if key in stale[job.name, dataset]:
                    unrepaired[dataset] |= made[job.name, dataset, key]
        for job in world.jobs:
            for key, read in product(of(stale, job), job.reads):
                leads = any((job.name, read.dataset, one) in paths for one in job.writes)
                if leads and requires(job, read, key) & unrepaired[read.dataset]:
                    left[job.name].add(key)
            for key in of(stale, job) if job.depends_on_past else ():
                if (place(key) - 1, key[1]) in left[job.name]:
                    left[job.name].add(key)
        if before == sum(map(len, left.values())):
            planned = {job.name: of(stale, job) - left[job.name] for job in world.jobs}
            answer = Answer(planned=planned, left=left)
            tied = in_cycles(waits(world, answer))
            if not tied:
                return answer
            for name, key in tied:
                left[name].add(key)


def in_cycles(needs: dict[tuple[str, Key], set[tuple[str, Key]]]) -> set[tuple[str, Key]]:
    """Return the (job, key) that wait for themselves."""
    found = set()
    for node, direct in needs.items():
        front, reached = list(direct), set(direct)
        while front and node not in reached:
            front = [other for one in front for other in needs[one] if other not in reached]
            reached.update(front)
        if node in reached:
            found.add(node)
    return found


def waits(world: World, answer: Answer) -> dict[tuple[str, Key], set[tuple[str, Key]]]:
    """Return, for each planned (job, key), the planned ones whose partitions it reads."""
    data = {name: cal.existing() for name, cal in world.datasets.items()}
    makers: dict[str, list[tuple[str, Key, set[Key]]]] = {}
    for job in world.jobs:
        for key in answer.planned[job.name]:
            for dataset in job.writes:
                parts = {p for p in data[dataset] if makes_key(world, job, dataset, key, p)}
                makers.setdefault(dataset, []).append((job.name, key, parts))
    found: dict[tuple[str, Key], set[tuple[str, Key]]] = {}
    for job in world.jobs:
        existing = set(job.run.existing())
        for key in answer.planned[job.name]:
            needs = found.setdefault((job.name, key), set())
            if job.depends_on_past and (place(key) - 1, key[1]) in answer.planned[job.name]:
                needs.add((job.name, (place(key) - 1, key[1])))
            for read in job.reads:
                keys = [key]
                if job.run.grain:
                    keys = [
                        k
                        for step in range(lookback_of(job, read) + 1)
                        if (k := (place(key) + step, key[1])) in existing
                    ]
                wanted = {
                    part
                    for part in data[read.dataset]
                    if any(requires_key(world, job, read, k, part) for k in keys)
                }
                for name, other, parts in makers.get(read.dataset, ()):
                    if parts & wanted and (name, other) != (job.name, key):
                        needs.add((name, other))
    both = {node: set(needs) for node, needs in found.items()}
    for made in makers.values():
        _after_other_writers(world, made, both)
    return both if _has_order(both) else found


def _after_other_writers(
    world: World, made: list[tuple[str, Key, set[Key]]], found: dict[tuple[str, Key], set[Any]]
) -> None:
    """Let writers of one partition run one after the other, by the data, else by their names."""
    left = sorted({name for name, _, _ in made})
    while left:
        free = (n for n in left if not any(n in _below(world, o) for o in left if o != n))
        first = next(free, left[0])
        left.remove(first)
        for name, key, parts in made:
            for other, earlier, others in made:
                if other == first and name in left and parts & others:
                    found[name, key].add((other, earlier))


def _below(world: World, name: str) -> set[str]:
    """Return the jobs downstream of a job, except by references."""
    found: set[str] = set()
    front = [name]
    while front:
        written = {d for job in world.jobs if job.name == front[-1] for d in job.writes}
        front.pop()
        for job in world.jobs:
            reads = {read.dataset for read in job.reads if read.mapping != "none"}
            if reads & written and job.name not in found:
                found.add(job.name)
                front.append(job.name)
    return found


def _has_order(found: dict[tuple[str, Key], set[Any]]) -> bool:
    done: set[Any] = set()
    while ready := {node for node, needs in found.items() if node not in done and needs <= done}:
        done |= ready
    return len(done) == len(found)
