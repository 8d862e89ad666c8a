"""The request of a user: what changed, and how far to go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef, did_you_mean
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.typed import JSON, Bounds, Form, Misfit, Text, member, plain, read

#: The guard rails that a request may override.
RAILS: Final = (
    *("protected", "not-idempotent", "expired", "max-runs", "unmatched", "two-writers"),
    "append-again",
)
#: Also recorded as allowed in a plan: how its lineage was read.
TORN_EVENTS: Final = "torn-events"


#: Versions of a table: from the one before all to the largest.
_Version = Annotated[int, Bounds(-1, 2**63 - 1)]
_SHAPE: Final = 'A request is {"changed": [{"dataset": …, "partitions": […]}], "jobs": […]}.'


def _keys(value: Any) -> KeySet:
    if isinstance(value, list | tuple) and all(isinstance(o, str) or _is_box(o) for o in value):
        return tuple(value)
    raise Misfit(
        "is not a list of keys, ranges and boxes",
        hint='Write ["2024-06-01..2024-06-03"] or [{"day": ["2024-06-01"], "region": ["eu"]}].',
    )


def _is_box(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(keys, str)
        or (isinstance(keys, list | tuple) and all(isinstance(key, str) for key in keys))
        for keys in value.values()
    )


def _rails(value: Any) -> frozenset[str]:
    if not isinstance(value, list | tuple):
        raise Misfit("must be a list of strings, not {value}", value)
    for name in value:
        if name not in (*RAILS, TORN_EVENTS):
            hint = did_you_mean(str(name), RAILS, "`{}`".format)
            raise Misfit("names an unknown guard rail {value}", name, hint=hint)
    return frozenset(value)


_KEYS: Final = {"type": "array", "items": {"type": ["string", "object"]}}
_RAILS: Final = {"type": "array", "items": {"enum": [*RAILS, TORN_EVENTS]}}
_KeySet = Annotated[KeySet, Form(_keys, _KEYS, plain)]
_Allowed = Annotated[frozenset[str], Form(_rails, _RAILS, sorted)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The range of a table's log that names the changed keys: versions in (after, until].

    `ignored` are changed partitions of the table that are not existing keys. With `by_files` the
    keys are those of all rows in changed files, perhaps more than have changed.
    """

    after: _Version
    until: _Version
    ignored: tuple[str, ...] = ()
    by_files: bool = False

    def __post_init__(self) -> None:
        if self.until < self.after:
            raise UsageError(
                f"`until` is {self.until}, but must be at least {self.after}, as `after` is"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDataset:
    """A corrected dataset, whose readers are stale.

    `keys` holds keys, `A..B` ranges, `A..` (to the newest key) and boxes; None only for
    unpartitioned datasets. `log` is the origin of keys that are not named.
    """

    dataset: DatasetRef
    keys: _KeySet | None = member(None, key="partitions", shown=True)
    log: LogRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedJob:
    """A job whose run keys are re-run as if their inputs were stale.

    They are widened by the job's lookback, unless `exact` is set.
    """

    job: JobRef
    keys: _KeySet | None = member(None, key="partitions", shown=True)
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request for a plan.

    `columns` limits the change to columns of the changed datasets. `select` and `exclude` hold
    selectors (`x+`, `x+2`, `+x`, `tag:…`, `ns:…`, `owner:…`, globs). `depth` cuts after that many
    jobs. `exact` turns off the widening by lookback. `reverse` runs the newest keys first.
    `allow` holds names of `RAILS`, the guard rails that are overridden, and `TORN_EVENTS`. `author`
    and `reason` are for information. `as_of` says that the plan was made for a named instant: keys
    that became complete later are not part of it. `ignored_runs` are
    left out of the lineage. `target` names the target of the project file that holds. Jobs that are
    `withheld` from the author do not run.
    """

    changed: tuple[ChangedDataset, ...] = member((), shown=True)
    jobs: tuple[ChangedJob, ...] = ()
    columns: tuple[Text, ...] = ()
    select: tuple[Text, ...] = ()
    exclude: tuple[Text, ...] = ()
    depth: Annotated[int, Bounds(1)] | None = None
    exact: bool = False
    reverse: bool = False
    include_former: bool = False
    allow: _Allowed = frozenset()
    author: str = ""
    reason: str = ""
    as_of: bool = False
    ignored_runs: tuple[Text, ...] = ()
    target: str = ""
    withheld: tuple[JobRef, ...] = ()


def request_from_dict(document: Any, place: str) -> Request:
    """Return the request of a document; raises UsageError naming `place` and the member."""
    if not isinstance(document, Mapping):
        raise UsageError(f"{place} is not a request", hint=_SHAPE)
    try:
        return read(Request, document, place, style=JSON, fault=UsageError)
    except UsageError as error:
        error.hint = error.hint or _SHAPE
        raise


def request_to_dict(request: Request) -> dict[str, Any]:
    """Return a request as a document, which `request_from_dict` reads."""
    found: dict[str, Any] = plain(request)
    return found


def key_set_from_list(value: Any, place: str) -> KeySet:
    """Return a set of keys of a document; raises UsageError naming `place`."""
    try:
        return _keys(value)
    except Misfit as error:
        raise UsageError(f"{place} {error.fault}", hint=error.hint) from None
