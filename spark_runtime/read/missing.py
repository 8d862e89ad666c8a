"""Finds required input partitions that were never written, from their tables' logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from lineage_backfill.model import listed
from lineage_backfill.partitions.calendar import EVERY
from lineage_backfill.partitions.ordinals import OrdinalSet
from lineage_backfill.runspec.values import InputSpec, Key, Partition, ProductKey, RunKey
from spark_runtime.errors import InputMissingError, RuntimeFailure
from spark_runtime.tables.by_value import reaches
from spark_runtime.tables.scope import Scope, patterns_of
from spark_runtime.tables.state import TableLog, TableState
from spark_runtime.tables.values import Pattern, Values

#: Returns which of the patterns of a table by value have rows.
Holds = Callable[[Sequence[Pattern]], Collection[Pattern]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The missing partitions of one input, by their positions in `needed`.

    `never` were never written. `unknown` are empty, and may have been written and emptied before
    the log begins, at `since` (None: it holds no commit). A table that is read whole, and whose
    keys cannot be listed, is one key, `*`.
    """

    spec: InputSpec
    needed: tuple[Key, ...] = ()
    never: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    since: datetime | None = None

    def keys(self, places: Collection[int]) -> tuple[Key, ...]:
        """Return the keys at these positions, as ranges if all existing keys are needed."""
        found = [self.needed[place] for place in sorted(places)]
        along = None if self.spec.required is None else self.spec.along
        return tuple(found if along is None else _ranges(self.needed, found, along))

    def problem(self, run_keys: Sequence[RunKey]) -> InputMissingError | None:
        """Return why the run must not continue, None if it may."""
        spec = self.spec
        lost = self.never | self.unknown
        if spec.on_missing == "read" or not lost:
            return None
        where = f"{spec.dataset} at {spec.location or spec.table}"
        hint = (
            'Write them first; where none is as good as no rows, declare on_missing = "read" in '
            f"[[job.reads]] of {spec.dataset.name!r}"
        )
        if spec.on_missing == "fail" and not self.never:
            return InputMissingError(
                f"partitions of {where} are empty, and {self._unknown}: {self._text(lost)}; "
                "the run wrote nothing",
                hint=hint,
            )
        if spec.on_missing == "fail":
            return InputMissingError(
                f"partitions of {where} were never written: {self._text(self.never)}; "
                "the run wrote nothing",
                hint=hint,
            )
        bare = list(self._bare(run_keys, lost))
        if not bare:
            return None
        keys = listed(bare, name=lambda one: one[0])
        lacking = self._text({place for _, places in bare for place in places})
        named = "" if lacking == keys else f": {lacking}"
        known = "was ever written"
        if any(not self.never.issuperset(places) for _, places in bare):
            known = f"is known to have been written: it is empty, and {self._unknown}"
        return InputMissingError(
            f"nothing that the run needs for {keys} of {where} {known}{named}; "
            "the run wrote nothing",
            hint=hint,
        )

    @property
    def _unknown(self) -> str:
        since = "" if self.since is None else f", which begins at {self.since:%Y-%m-%dT%H:%M:%SZ},"
        return f"the log{since} does not tell whether they were ever written"

    def warnings(self) -> Iterator[str]:
        """Yield the warnings of a run that continues."""
        if self.never and self.spec.on_missing != "read":
            yield (
                f"partitions of {self.spec.dataset} were never written, and are read as empty: "
                f"{self._text(self.never)}"
            )
        if self.unknown and self.spec.on_missing != "read":
            yield (
                f"partitions of {self.spec.dataset} are empty, and {self._unknown}: "
                f"{self._text(self.unknown)}"
            )

    def _text(self, places: Collection[int]) -> str:
        return listed(self.keys(places))

    def _bare(
        self, run_keys: Sequence[RunKey], lost: frozenset[int]
    ) -> Iterator[tuple[str, Collection[int]]]:
        """Yield the run keys of whose inputs none is known to have been written, with those."""
        if self.spec.needs is None:
            if len(lost) == len(self.needed):
                yield listed(run_keys, name=lambda one: str(one.key)) or EVERY, lost
            return
        for number, ranges in enumerate(self.spec.needs):
            places = [place for first, last in ranges for place in range(first, last + 1)]
            if places and lost.issuperset(places):
                yield str(run_keys[number].key), places


def _ranges(needed: Sequence[Key], found: Iterable[Key], along: str) -> Iterator[Key]:
    """Yield some of the needed keys as ranges in their time dimension."""
    labels = list(dict.fromkeys(_time(key, along) for key in needed))
    position = {label: place for place, label in enumerate(labels)}
    rows: dict[Key, list[int]] = {}
    for key in found:
        row = _row(key, along)
        rows.setdefault(row, []).append(position[_time(key, along)])
    for row, places in rows.items():
        for first, last in OrdinalSet.of(places).runs():
            text = labels[first] if first == last else f"{labels[first]}..{labels[last]}"
            yield ProductKey({**row, along: text}) if isinstance(row, ProductKey) else text


def _time(key: Key, along: str) -> str:
    """Return the label of a key in its time dimension."""
    return key[along] if isinstance(key, ProductKey) else key


def find_missing(spec: InputSpec, log: TableLog | None, holds: Holds | None = None) -> Missing:
    """Return what is missing of an input; `log` is None if there is no table.

    By value a file may hold rows of any key between its bounds: `holds` returns those that have
    rows (None: all), and an empty one is unknown.
    """
    found = _found(spec, log, holds)
    if log is not None and (found.never or found.unknown) and log.deepen():
        found = _found(spec, log, holds)
    return found


def _found(spec: InputSpec, log: TableLog | None, holds: Holds | None) -> Missing:
    """Return what is missing, as far as the log is read."""
    needed = spec.partitions if spec.partitions is not None else spec.required
    places = needed or ()
    state = None if spec.version is None or log is None else log.state(spec.version)
    patterns = None if state is None or needed is None else _patterns(state, spec, needed)
    is_whole = needed is None or (patterns is None and state is not None)
    keys: tuple[Key, ...] = (EVERY,) if is_whole else tuple(one.key for one in places)
    everything = frozenset(range(len(keys)))
    recorded = _recorded(spec)
    if state is None or log is None:
        return Missing(spec=spec, needed=keys, never=everything - recorded)
    lacking = _lacking(state, patterns, keys, log.ever_written(state)) - recorded
    doubt = _doubtful(state, patterns, everything - lacking - recorded, holds)
    lacking |= doubt
    if patterns is not None:
        lacking -= _no_gaps(spec, places, lacking, _written_later(spec, state, log))
    if state.complete and state.first_read == 0:
        return Missing(spec=spec, needed=keys, never=lacking - doubt, unknown=doubt & lacking)
    since = log.known_since(state.version) if lacking else None
    never = frozenset[int]()
    if state.complete and since is not None and patterns is not None:
        never = _begun_after(since, lacking - doubt, places)
    return Missing(spec=spec, needed=keys, never=never, unknown=lacking - never, since=since)


def _doubtful(
    state: TableState,
    patterns: Sequence[Pattern] | None,
    places: Iterable[int],
    holds: Holds | None,
) -> frozenset[int]:
    """Return the places of keys that lie between the bounds of files and have no rows."""
    if state.by is None or patterns is None or holds is None:
        return frozenset()
    written = {*state.partitions, *state.emptied}
    between = [
        place for place in places if not any(reaches(span, patterns[place]) for span in written)
    ]
    if not between:
        return frozenset()
    held = holds([patterns[place] for place in between])
    return frozenset(place for place in between if patterns[place] not in held)


def _written_later(spec: InputSpec, state: TableState, log: TableLog) -> list[Partition]:
    """Return the keys after the needed ones that are known to have been written."""
    later = spec.later
    if not later:
        return []
    keys = tuple(one.key for one in later)
    patterns = patterns_of(state, spec, later)
    lacking = _lacking(state, patterns, keys, log.ever_written(state))
    return [one for place, one in enumerate(later) if place not in lacking]


def _no_gaps(
    spec: InputSpec, needed: Sequence[Partition], lacking: Collection[int], later: list[Partition]
) -> frozenset[int]:
    """Return the places of the missing keys of a sparse input before one that was written."""
    if spec.later is None:
        return frozenset()
    written = [one for place, one in enumerate(needed) if place not in lacking] + later
    newest: dict[Key, datetime] = {}
    for one in written:
        row = _row(one.key, spec.along)
        if one.start is not None:
            newest[row] = max(one.start, newest.get(row, one.start))
    found = set()
    for place in lacking:
        end, start = newest.get(_row(needed[place].key, spec.along)), needed[place].start
        if end is not None and start is not None and start < end:
            found.add(place)
    return frozenset(found)


def _row(key: Key, along: str | None) -> Key:
    """Return a key without its time."""
    return ProductKey({**key, along: ""}) if isinstance(key, ProductKey) and along else ""


def _recorded(spec: InputSpec) -> frozenset[int]:
    """Return the places of the keys that are recorded to have been written."""
    places = (range(first, last + 1) for first, last in spec.written or ())
    return frozenset(chain.from_iterable(places))


def _lacking(
    state: TableState,
    patterns: Sequence[Pattern] | None,
    keys: Sequence[Key],
    written: Collection[Values],
) -> frozenset[int]:
    """Return the places of the keys for which nothing is known to have been written."""
    if patterns is None:
        return frozenset() if written else frozenset(range(len(keys)))
    covered = Scope(state.columns, dict(zip(patterns, keys, strict=True))).fitted(written)
    return frozenset(n for n, pattern in enumerate(patterns) if pattern not in covered)


def _begun_after(
    since: datetime, places: Iterable[int], needed: Sequence[Partition]
) -> frozenset[int]:
    """Return the places of the partitions whose period starts at or after an instant."""
    starts = ((place, needed[place].start) for place in places)
    return frozenset(place for place, start in starts if start is not None and start >= since)


def _patterns(
    state: TableState, spec: InputSpec, needed: Sequence[Partition]
) -> Sequence[Pattern] | None:
    """Return the needed partitions; None for a table that is read whole and has other columns."""
    try:
        return patterns_of(state, spec, needed)
    except RuntimeFailure:
        if spec.required is None:
            raise
        return None
