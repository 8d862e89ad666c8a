"""Which DAG run a run key means, and whether a run of Airflow is that one; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from lineage_backfill.errors import UnfitRunError
from lineage_backfill.lineage.snapshot import ObservedRun
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.grid import Grid
from lineage_backfill.project.run_rules import read_length

#: Prefix of the run ids that this engine creates.
PREFIX = "lb__"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.~:+-]")
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What a run key means to a DAG.

    A dated one has `start` and `end`, the data interval of its run, equal for a plain cron. One
    with neither dates nor `key` is a run with the key in its `conf`, or the next one of an `asset`.
    """

    kind: str
    label: str
    start: datetime | None = None
    end: datetime | None = None
    key: str | None = None

    def fits(self, run: Mapping[str, Any]) -> bool:
        """Whether a run of Airflow is for this slice: it covers most of it, and little else."""
        if self.key is not None:
            return run.get("partition_key") == self.key
        start, end = instant(run["data_interval_start"]), instant(run["data_interval_end"])
        if self.start is None or self.end is None or start is None or end is None:
            return False
        if start == end or self.start == self.end:
            return instant(run["logical_date"]) == self.start
        shared = 2 * (min(end, self.end) - max(start, self.start))
        return shared > self.end - self.start and shared > end - start

    def query(self) -> dict[str, str]:
        """Return the members of a query for its runs, and for others around it."""
        if self.key is not None:
            return {"partition_key_prefix_pattern": self.key}
        if self.start is None or self.end is None:
            return {}
        last = self.end + (self.end - self.start)
        return {"logical_date_gte": self.start.isoformat(), "logical_date_lte": last.isoformat()}

    def body(self) -> dict[str, Any]:
        """Return the members of a request for a new run: always both ends, or the key."""
        made: dict[str, Any] = {"logical_date": self.start and self.start.isoformat()}
        if self.start is not None and self.end is not None:
            made["data_interval_start"] = self.start.isoformat()
            made["data_interval_end"] = self.end.isoformat()
        if self.key is not None:
            made["partition_key"] = self.key
        return made

    def run_id(self, spec: Mapping[str, Any]) -> str:
        """Return the id of the run that a backfill creates for this slice.

        All its jobs and attempts share it; with `conf`, each attempt has its own.
        """
        if self.kind == "conf":
            return f"{PREFIX}{spec['token']}"
        of = f"{str(spec.get('store', ''))[:12]}.{spec.get('backfill_id', '')}"
        return _UNSAFE.sub("_", f"{PREFIX}{of}__{self.label}")[:250]


def slice_for(kind: str, spec: Mapping[str, Any], zone: str, grid: Grid | None) -> Slice:
    """Return the slice of a run spec; raises UnfitRunError if it has none.

    `grid` has the data intervals of the DAG's timetable, None if unknown; `zone` is that of keys.
    """
    keys: Sequence[Mapping[str, Any]] = spec.get("keys") or []
    job = spec["job"]["name"]
    if len(keys) != 1:
        raise UnfitRunError(
            f"a run of job {job} has {len(keys)} keys, and a run of Airflow is for one",
            hint='Give the job `batch = "key"`.',
        )
    (key,) = keys
    label, start, end = key["key"], instant(key.get("start")), instant(key.get("end"))
    if kind in ("conf", "asset"):
        return Slice(kind=kind, label=str(label))
    if kind.startswith("partition_key"):
        if not isinstance(label, str):
            raise UnfitRunError(
                f"job {job} has keys of several dimensions, and a partition key of Airflow is one",
                hint='Give the job `slice = "conf"`.',
            )
        text = written(label, kind.removeprefix("partition_key").strip())
        return Slice(kind=kind, label=text, key=text)
    if start is None or end is None:
        raise UnfitRunError(
            f"the keys of job {job} are not intervals of time",
            hint='Give the job `slice = "conf"`.',
        )
    if kind == "interval":
        first, last = (start, end) if grid is None else _interval(job, start, end, grid)
    else:
        zone = zone if grid is None else grid.zone.name
        first = last = shifted(start, end, length_of(kind), zone)
        if grid is not None and first != _firing(grid, grid.at(int(first.timestamp()))):
            raise UnfitRunError(
                f"the timetable of the DAG has no run at {first:%FT%TZ} for a key of job {job}",
                hint="Correct `slice` of the job, or declare its `schedule` and `schedule_zone`.",
            )
    return Slice(kind=kind, label=f"{first:%Y-%m-%dT%H:%M:%S}Z", start=first, end=last)


def observed(job: JobRef, run: Mapping[str, Any], kind: str, zone: str) -> ObservedRun:
    """Return a run of Airflow as lineage has it, by what a run key means to its DAG."""
    start = instant(run.get("partition_date") or run["data_interval_start"])
    end = instant(run["data_interval_end"])
    if start is not None and kind.startswith("logical_date"):
        start, end = shifted(start, start + _DAY, -length_of(kind), zone), None
    return ObservedRun(
        job=job,
        run_id=run["dag_run_id"],
        state="RUNNING",
        nominal_start=start,
        nominal_end=None if end == start else end,
        partition_key=None if start else run.get("partition_key"),  # in a format of its own
    )


def _interval(job: str, start: datetime, end: datetime, grid: Grid) -> tuple[datetime, datetime]:
    """Return the one data interval that covers most of a key, and little else."""
    number = grid.at(int((start + (end - start) / 2).timestamp()))
    first, last = _firing(grid, number), _firing(grid, number + 1)
    shared = 2 * (min(end, last) - max(start, first))
    if shared <= end - start or shared <= last - first:
        raise UnfitRunError(
            f"no data interval of the DAG is for the key {start:%FT%TZ} .. {end:%FT%TZ} of job"
            f" {job}: the nearest is {first:%FT%TZ} .. {last:%FT%TZ}",
            hint="Give the job the run calendar of its DAG, or a `slice`.",
        )
    return first, last


def _firing(grid: Grid, number: int) -> datetime:
    """Return when Airflow's timetable fires: at a repeated local time once, the second time."""
    at = datetime.fromtimestamp(grid.start(number), UTC)
    later = _second(at.astimezone(ZoneInfo(grid.zone.name)))
    is_hourly = grid.start(grid.at(int(later.timestamp()))) == later.timestamp()
    return at if is_hourly else later


def _second(local: datetime) -> datetime:
    """Return the second of two local times, or the next one if the clock skips it."""
    return max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))


def shifted(start: datetime, end: datetime, length: timedelta, zone: str) -> datetime:
    """Return the instant a length of local time after the start of a key.

    For keys shorter than a day it is elapsed time, as an hourly timetable fires each hour.
    """
    if end - start < 0.8 * _DAY:
        return start + length
    return _second(start.astimezone(ZoneInfo(zone)) + length) if length else start


def length_of(kind: str) -> timedelta:
    """Return the time from the start of a key to its logical date."""
    return read_length(kind.partition("+")[2].strip()) or timedelta()


def written(label: str, form: str) -> str:
    """Return a key in the format of a DAG: local time by strftime, with `{quarter}`.

    Raises UnfitRunError for a key without a time.

    >>> written("2024-06-15T14", "%Y-%m-%dT%H:%M:%S"), written("2024-W24", "%Y-%m-%d (W%V)")
    ('2024-06-15T14:00:00', '2024-06-10 (W24)')
    >>> written("2024-04-01", "%Y-Q{quarter}"), written("eu", "")
    ('2024-Q2', 'eu')
    """
    if not form:
        return label
    try:
        at = datetime.fromisoformat(label)
    except ValueError as error:
        raise UnfitRunError(
            f"the key {label} has no time that {form!r} could write",
            hint='Leave the format out of `slice`: "partition_key".',
        ) from error
    if at.tzinfo is not None and "%z" not in form:
        raise UnfitRunError(
            f"the key {label} is a repeated hour, which {form!r} cannot tell from the other",
            hint="Leave this key out, or use partition keys with %z.",
        )
    return at.strftime(form.replace("{quarter}", str((at.month + 2) // 3)))


def instant(text: Any) -> datetime | None:
    """Return an instant from an answer in UTC, None if absent."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
