"""The time that is left of a backfill, from its estimate and from what has happened so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.ports import Start
from lineage_backfill.runs.simulate import Estimate, Spread
from lineage_backfill.show.words import lasting

#: From this share of the work on, the time left is computed from the pace so far.
_TELLING = 0.1
_RAN = (RunState.SUCCEEDED, RunState.FAILED)
_NONE = Spread(p50=0.0, p90=0.0)
#: Begin and end of each; no two of them meet.
_Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Reported:
    """A start that is under way, as last reported."""

    start: Start
    at: float

    @property
    def begin(self) -> float:
        return self.at - self.start.seconds

    def until(self, now: float) -> Start:
        """Return the start as it is now."""
        return replace(self.start, seconds=self.start.seconds + max(0.0, now - self.at))


class Remaining:
    """The estimated work that is left; runs that are not needed take no time.

    Moments are in seconds since the backfill began.
    """

    def __init__(self, estimate: Estimate | None) -> None:
        jobs = () if estimate is None else estimate.jobs
        known = [(one, one.busy.p50) for one in jobs if one.busy]
        self._is_known = estimate is not None and estimate.makespan is not None
        self._at_least = estimate is not None and bool(estimate.unknown)
        self._runs = sum(one.runs for one in jobs)
        #: Seconds of work of each run, for each job.
        self._work = {one.job: busy / one.runs for one, busy in known if busy}
        self._total = self._left = sum(busy for _, busy in known)
        self._done = 0.0
        self._is_mixed = False  # runs without an estimate have taken a part of the time
        self._start = None if estimate is None else estimate.start
        whole, start = (estimate and estimate.makespan) or _NONE, self._start or _NONE
        self._whole = Spread(p50=whole.p50 - start.p50, p90=whole.p90 - start.p90)
        self._is_cold = self._start is not None  # nothing is ready to work, as far as is known
        self._starts: dict[int, _Reported] = {}  # those under way
        self._held_up: _Spans = []  # when nothing could work

    def starting(self, start: Start, now: float) -> None:
        """Count a report of a start.

        The time between two reports is not that of work if nothing could work at either.
        """
        before = self._starts.pop(start.id, None)
        begin = now - start.seconds if before is None else before.begin
        if start.is_alone and (before is None or before.start.is_alone):
            since = begin if before is None else before.at
            until = min(now, begin + start.seconds) if start.is_over else now
            self._held_up = _union(self._held_up, since, until)
        if not start.is_over:
            self._starts[start.id] = _Reported(start, now)
        elif not start.has_failed and self._start is None:
            self._start = Spread(p50=start.seconds, p90=start.seconds)
        self._is_cold = start.is_alone and (start.has_failed or not start.is_over)

    def longest_start(self, now: float) -> Start | None:
        """Return the start that has been under way for the longest time."""
        starts = [one.until(now) for one in self._starts.values()]
        return max(starts, key=lambda one: one.seconds, default=None)

    def ended(self, job: JobRef, state: RunState) -> None:
        """Count a run that has ended or will not run."""
        work = self._work.get(job, 0.0)
        self._runs -= 1
        self._left = max(0.0, self._left - work)
        if state in _RAN:
            self._done += work
            self._is_mixed |= job not in self._work
        if state is RunState.SUCCEEDED and not self._starts:
            self._is_cold = False  # perhaps in one that an earlier executor has left

    def left(self, now: float) -> Spread | None:
        """Return the seconds that are left; None if they are unknown.

        They are those of the work and, while nothing can work, of the start before it. They are
        never less than what is left of the starts under way, as there are runs that wait for them.
        """
        is_cold, starts = self._waits(), [one.until(now) for one in self._starts.values()]
        waits = self._start is not None and (is_cold or starts)
        if not self._is_known or self._runs <= 0 or not (self._left or waits):
            return None

        def with_starts(work: float, whole: float) -> float:
            rests = [max(0.0, whole - one.seconds) for one in starts]
            first = max(1.0, min(rests)) if rests else whole
            return max(work + (first if is_cold else 0.0), *rests, 0.0)

        work, start = self._work_left(now), self._start or _NONE
        return Spread(p50=with_starts(work.p50, start.p50), p90=with_starts(work.p90, start.p90))

    def _waits(self) -> bool:
        """Whether nothing can work before a start, under way or to come, is over."""
        under_way = self._starts.values()
        return all(one.start.is_alone for one in under_way) if under_way else self._is_cold

    def _work_left(self, now: float) -> Spread:
        """Return the seconds of work left, from past runs or from the pace so far.

        The pace counts once enough of the work is done, unless runs without an estimate took a part
        of that time.
        """
        if not self._total:
            return _NONE
        share, left = self._done / self._total, self._left / self._total
        held_up = self._held_up
        for one in self._starts.values():
            if one.start.is_alone:
                held_up = _union(held_up, one.at, now)
        worked = max(0.0, now - sum(end - begin for begin, end in held_up))
        if share >= _TELLING and worked and not self._is_mixed:
            return Spread(p50=worked / share * left, p90=worked / share * left)
        return Spread(p50=self._whole.p50 * left, p90=self._whole.p90 * left)

    def in_words(self, now: float) -> str:
        """Return the time left; empty if unknown."""
        left = self.left(now)
        if left is None:
            return ""
        is_more = self._at_least or (self._start is None and self._waits())
        time_left = " to ".join(dict.fromkeys(map(lasting, (left.p50, left.p90))))
        return f"{'at least' if is_more else 'about'} {time_left} left"


def _union(spans: _Spans, begin: float, end: float) -> _Spans:
    """Return the spans with one more, from zero on; those that meet become one."""
    begin = max(0.0, begin)
    if begin >= end:
        return spans
    apart = [one for one in spans if one[1] < begin or one[0] > end]
    begins, ends = zip((begin, end), *(one for one in spans if one not in apart), strict=True)
    return [*apart, (min(begins), max(ends))]
