"""What a plan is, said as plainly as possible: sets of single keys, and rules applied until
nothing changes. Shares no code with the planner; slow, and meant to be obviously right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import cache, cached_property
from itertools import product
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
def spans(grain: str, zone: str) -> tuple[Span, ...]:
    """Return all whole periods of the walked time, by looking at the clock every half hour."""
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
    or neither."""

    grain: str | None = None
    zone: str = "UTC"
    first: str | None = None
    last: str | None = None
    statics: tuple[str, ...] | None = None

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
    mapping: str = "default"  # default, window, offset, all, none, map
    before: int = 0
    after: int = 0
    table: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Job:
    name: str
    run: Cal
    reads: tuple[Read, ...]
    writes: tuple[str, ...]
    lookback: int = 0
    declares_run: bool = False


@dataclass
class World:
    datasets: dict[str, Cal]
    jobs: list[Job]
    changed: dict[str, set[tuple[int | None, str | None]]]
    excluded: set[str] = field(default_factory=set)
    exact: bool = False


Key = tuple[int | None, str | None]


def place(key: Key) -> int:
    """Return the index of the period of a key that has one."""
    assert key[0] is not None
    return key[0]


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
        periods = run.all_spans
        before, after = read.before, read.after
        if own and read.mapping == "window":
            after = -1
        start = periods[place(run_key) - before].start
        end = periods[place(run_key) + after].end
        time_ok = up.all_spans[place(input_key)].meets(start, end)
    static_ok = True
    if up.statics and run.statics:
        static_ok = input_key[1] == run_key[1]
    return time_ok and static_ok


def makes_key(world: World, job: Job, dataset: str, run_key: Key, output_key: Key) -> bool:
    """Whether the run key writes into that partition of the output."""
    out, run = world.datasets[dataset], job.run
    if out.grain and run.grain:
        span = run.all_spans[place(run_key)]
        if not out.all_spans[place(output_key)].meets(span.start, span.end):
            return False
    return not (out.statics and run.statics) or output_key[1] == run_key[1]


@dataclass
class Answer:
    planned: dict[str, set[Key]]
    left: dict[str, set[Key]]


def solve(world: World) -> Answer:
    """Apply the rules until nothing changes."""
    run_keys = {job.name: job.run.existing() for job in world.jobs}
    data_keys = {name: cal.existing() for name, cal in world.datasets.items()}
    for name, keys in world.changed.items():
        data_keys[name] = sorted({*data_keys[name], *keys}, key=str)
    touched = {
        (job.name, read.dataset, key): {
            part for part in data_keys[read.dataset] if reads_key(world, job, read, key, part)
        }
        for job in world.jobs
        for read in job.reads
        for key in run_keys[job.name]
    }
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

    def depends(job: Job, key: Key, bad: dict[str, set[Key]], widened: bool) -> bool:
        for read in job.reads:
            own = read.dataset in job.writes
            keys = [key]
            if widened and not own and job.run.grain:
                keys = [
                    (place(key) + step, key[1])
                    for step in range(job.lookback + 1)
                    if (place(key) + step, key[1]) in run_keys[job.name]
                ]
            if any(touched[job.name, read.dataset, k] & bad[read.dataset] for k in keys):
                return True
        return False

    def spread(bad: dict[str, set[Key]], keys: dict[str, set[Key]], widened: bool) -> None:
        changed = True
        while changed:
            changed = False
            for job in world.jobs:
                for key in run_keys[job.name]:
                    if key in keys[job.name] or not depends(job, key, bad, widened):
                        continue
                    keys[job.name].add(key)
                    for dataset in job.writes:
                        bad[dataset] |= made[job.name, dataset, key]
                    changed = True

    dirty = {name: set(world.changed.get(name, ())) for name in world.datasets}
    stale: dict[str, set[Key]] = {job.name: set() for job in world.jobs}
    spread(dirty, stale, widened=True)
    unrepaired: dict[str, set[Key]] = {name: set() for name in world.datasets}
    left: dict[str, set[Key]] = {job.name: set() for job in world.jobs}

    def leave(job: Job, key: Key) -> None:
        left[job.name].add(key)
        for dataset in job.writes:
            unrepaired[dataset] |= made[job.name, dataset, key]

    for job in world.jobs:
        if job.name in world.excluded:
            for key in stale[job.name]:
                leave(job, key)
        elif world.exact and job.lookback:
            # Without the widening a key is stale by its own reads and by its own earlier keys.
            narrow: set[Key] = set()
            own_dirty: set[Key] = set()
            while True:
                more = {
                    key
                    for key in stale[job.name] - narrow
                    if any(
                        touched[job.name, read.dataset, key]
                        & (
                            own_dirty | set(world.changed.get(read.dataset, ()))
                            if read.dataset in job.writes
                            else dirty[read.dataset]
                        )
                        for read in job.reads
                    )
                }
                if not more:
                    break
                narrow |= more
                for key in more:
                    for dataset in job.writes:
                        own_dirty |= made[job.name, dataset, key]
            for key in stale[job.name] - narrow:
                leave(job, key)
    spread(unrepaired, left, widened=True)
    return Answer(
        planned={name: keys - left[name] for name, keys in stale.items()},
        left={name: left[name] & keys for name, keys in stale.items()},
    )


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
            for read in job.reads:
                own = read.dataset in job.writes
                keys = [key]
                if not own and job.run.grain:
                    keys = [
                        k
                        for step in range(job.lookback + 1)
                        if (k := (place(key) + step, key[1])) in existing
                    ]
                wanted = {
                    part
                    for part in data[read.dataset]
                    if any(reads_key(world, job, read, k, part) for k in keys)
                }
                for name, other, parts in makers.get(read.dataset, ()):
                    if parts & wanted and (name, other) != (job.name, key):
                        needs.add((name, other))
    return found
