"""How long a backfill still takes, as long as that can be said honestly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lineage_backfill.model import JobRef, RunState
from lineage_backfill.presentation.words import lasting

if TYPE_CHECKING:
    from lineage_backfill.runs.simulate import Estimate

#: From this share of the work on, the pace so far counts, not that of past runs.
_TELLING = 0.1
_RAN = (RunState.SUCCEEDED, RunState.FAILED)


class Remaining:
    """What is left of the work that was estimated; work that is not done takes no time."""

    def __init__(self, estimate: Estimate | None) -> None:
        known = [] if estimate is None else [one for one in estimate.jobs if one.busy]
        self._makespan = None if estimate is None else estimate.makespan
        self._at_least = estimate is not None and bool(estimate.unknown)
        #: Seconds of work that each run of a job is.
        self._work = {one.job: one.busy.p50 / one.runs for one in known if one.busy}
        self._total = self._left = sum(one.busy.p50 for one in known if one.busy)
        self._done = 0.0

    def ended(self, job: JobRef, state: RunState) -> None:
        """Count a run that has ended, or is not going to be run."""
        work = self._work.get(job, 0.0)
        self._left = max(0.0, self._left - work)
        if state in _RAN:
            self._done += work

    def in_words(self, elapsed: float) -> str:
        """Return how long it still takes after so many seconds; empty where that is not known.

        Past runs tell, and once enough of the work is done, how fast that went.
        """
        if self._makespan is None or not self._left:
            return ""
        share, left = self._done / self._total, self._left / self._total
        if share >= _TELLING:
            shown = lasting(elapsed / share * left)
        else:
            bounds = lasting(self._makespan.p50 * left), lasting(self._makespan.p90 * left)
            shown = " to ".join(dict.fromkeys(bounds))
        return f"{'at least' if self._at_least else 'about'} {shown} left"
