"""The versions of a table that runs, undoings and somebody else wrote, held against a model.

Each version is compared, by its rows, with what its commit should have made of the version before
it, and the outcome that each attempt reported with the commits that it left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spark_runtime.errors import (
    RuntimeFailure,
    StaleAttemptError,
    UndoRefusedError,
    WriteConflictError,
)
from tests.races import Row

Rows = Counter[Row]


@dataclass
class Run:
    """A run with the rows of its attempts, and how far it has come."""

    id: str
    mode: str
    scope: tuple[str, ...]
    rows: dict[int, list[Row]] = field(default_factory=dict)
    is_done: bool = False
    is_undone: bool = False

    def token(self, attempt: int) -> str:
        return f"{self.id}-{attempt}"

    @property
    def tokens(self) -> list[str]:
        """Those of its attempts, the newest first."""
        return [self.token(attempt) for attempt in sorted(self.rows, reverse=True)]

    def applied(self, attempt: int, held: Rows) -> Rows:
        """What an attempt makes of the rows of a table."""
        new = self.rows[attempt]
        if self.mode == "append":
            return held + Counter(new)
        if self.mode == "overwrite":
            return Counter({row: n for row, n in held.items() if row[0] not in self.scope}) + (
                Counter(new)
            )
        by_id = {row[1]: row for row in new}
        made: Rows = Counter()
        for row, count in held.items():
            matched = by_id.get(row[1]) if row[0] in self.scope else None
            made[matched or row] += count
        return made + Counter([row for row in new if row not in made])


@dataclass
class End:
    """An attempt of a run, or its undoing (`attempt` 0), and how it ended."""

    name: str
    run: Run
    attempt: int
    #: The newest version when it began, when its rows were staged (None: it did not come so far),
    #: and when it ended (None: it was killed).
    since: int = -1
    staged: int | None = None
    version: int | None = None
    error: BaseException | None = None
    is_stopped: bool = False


@dataclass(frozen=True)
class Commit:
    """One version, as its file in the log has it."""

    version: int
    touched: frozenset[str]
    ours: dict[str, Any]
    transactions: dict[str, int]
    #: The day of each data file that it adds (None: its rows have it), and those that it removes.
    added: dict[str, str | None]
    removed: frozenset[str]

    @staticmethod
    def read(file: Path) -> Commit:
        touched: set[str] = set()
        added: dict[str, str | None] = {}
        removed: set[str] = set()
        ours: dict[str, Any] = {}
        transactions: dict[str, int] = {}
        for action in map(json.loads, file.read_text().splitlines()):
            for kind in ("add", "remove"):
                if kind in action and action[kind]["dataChange"]:
                    touched.update((action[kind].get("partitionValues") or {}).values())
            if "add" in action:
                assert "deletionVector" not in action["add"], "some rows of the file do not count"
                added[action["add"]["path"]] = action["add"]["partitionValues"].get("day")
            if "remove" in action:
                removed.add(action["remove"]["path"])
            if "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
            text = action.get("commitInfo", {}).get("userMetadata")
            ours = json.loads(text)["lineage_backfill"] if text else ours
        return Commit(
            int(file.stem), frozenset(touched), ours, transactions, added, frozenset(removed)
        )

    def over(self, before: Rows, after: Rows) -> Commit:
        """Return it with the days that it touched, if its files do not tell them."""
        recorded = {values[0] for values, _, _ in self.ours.get("partitions", ())}
        changed = {day for day, _, _ in (before - after) + (after - before)}
        return replace(self, touched=frozenset(recorded | changed))

    @property
    def undone(self) -> list[str]:
        """The tokens that it undoes."""
        undone = self.ours.get("undo_of", ())
        return [undone] if isinstance(undone, str) else list(undone)


class Checks:
    """The versions of a table after a schedule, held against what made them."""

    def __init__(
        self,
        commits: Sequence[Commit],
        rows: Sequence[Rows],
        runs: Sequence[Run],
        ends: Sequence[End],
        oldest: int,
    ) -> None:
        self.commits, self.rows, self.ends, self.oldest = commits, rows, ends, oldest
        self.attempts = {run.token(attempt): (run, attempt) for run in runs for attempt in run.rows}
        #: The runs of which somebody was told that rows of others have to be put back by hand.
        self.told: set[str] = set()
        self.made = {
            token: c.version
            for c in self.commits
            if (token := c.ours.get("token")) in self.attempts
        }

    def all(self) -> None:
        """Check each version and each end."""
        highest: dict[str, int] = {}
        for commit in self.commits[self.oldest + 1 :]:
            for name, number in commit.transactions.items():
                assert number > highest.get(name, -1), f"{commit} comes after a later attempt"
                highest[name] = number
            self._check_version(commit)
        for end in self.ends:
            self._check_fence(end)
            if end.version is not None and not end.is_stopped:
                (self._check_attempt if end.attempt else self._check_undo)(end, end.version)

    def _check_version(self, commit: Commit) -> None:
        version, ours = commit.version, commit.ours
        before, after = self.rows[version - 1], self.rows[version]
        if not ours:  # somebody else's
            assert not before - after, f"{commit} has lost rows"
            return
        if "taken_back" in ours:
            if self._gone(commit, len(self.commits)) is None:
                self._check_put_back(commit, [ours["taken_back"]])
        elif commit.undone:
            if self._gone(commit, len(self.commits)) is None:
                self._check_put_back(commit, [self.made[token] for token in commit.undone])
        elif "token" in ours:
            run, attempt = self.attempts[ours["token"]]
            assert after == run.applied(attempt, before), f"{commit}: {after} from {before}"
            for token in run.tokens if run.mode != "overwrite" else ():
                earlier = self.made.get(token, version)
                if earlier < version:
                    gone = self._gone(self.commits[earlier], version)
                    assert gone is not None, f"{commit} adds to version {earlier}"
        else:
            assert after == before, f"{commit} changes rows"

    def _check_put_back(self, commit: Commit, undone: list[int]) -> None:
        """Each day that the undone commits touched has the rows from before the first of them."""
        expected = dict(self.rows[commit.version - 1])
        open_ = [v for v in undone if self._gone(self.commits[v], commit.version) is None]
        if commit.ours["removes"]:  # files that they had added
            for version in open_:
                expected = Counter(expected) - (self.rows[version] - self.rows[version - 1])
            assert self.rows[commit.version] == expected, f"{commit} removes other rows"
            return
        for day in {day for version in open_ for day in self.commits[version].touched}:
            first = min(version for version in open_ if day in self.commits[version].touched)
            expected = {row: n for row, n in expected.items() if row[0] != day}
            expected |= {row: n for row, n in self.rows[first - 1].items() if row[0] == day}
            between = self.commits[first + 1 : commit.version]
            others = [
                one
                for one in between
                if day in one.touched and one.version not in open_ and not self._is_settled(one)
            ]
            if others:
                problem = f"{commit} puts {day} back over {others}"
                # It may come over what it could not see: between its look and Delta's own.
                assert all(one.version > commit.ours["seen"] for one in others), problem
                self._check_told(commit, problem)
        assert self.rows[commit.version] == Counter(expected), f"{commit} puts back other rows"

    def _check_told(self, commit: Commit, problem: str) -> None:
        """Whoever made it was stopped before its look; since then others have built on it.

        So it cannot be taken back, which is done for all its days or for none: whoever looks next
        says which version has the rows.
        """
        tokens = [t for t in commit.undone if t in self.attempts]
        run = self.attempts[tokens[0]][0].id if tokens else commit.ours["run_id"]
        later = self.commits[commit.version + 1 :]
        others = [one for one in later if one.ours.get("run_id") != run]
        assert any(not one.touched.isdisjoint(commit.touched) for one in others), problem
        ends = [e for e in self.ends if e.run.id == run and not (tokens and e.attempt)]
        looked = [e for e in ends if e.version is not None and e.version >= commit.version]
        looked = [e for e in looked if not e.is_stopped]
        assert looked, problem
        assert all(end.error is not None for end in looked), problem
        assert self._says_what_stands(looked[-1]), problem
        self.told.add(run)

    def _is_settled(self, commit: Commit) -> bool:
        """Whether a commit takes another back, or was taken back: together they change nothing."""
        is_putting_back = "taken_back" in commit.ours or bool(commit.undone)
        return is_putting_back or self._gone(commit, len(self.commits)) is not None

    def _gone(self, commit: Commit, before: int) -> int | None:
        """Return which version undoes or takes back a commit, None if none does before that.

        One that was taken back itself does not count.
        """
        token = commit.ours.get("token")
        for later in self.commits[commit.version + 1 : before]:
            names_it = token is not None and token in later.undone
            names_it = names_it or later.ours.get("taken_back") == commit.version
            if names_it and self._gone(later, before) is None:
                return later.version
        return None

    def _foreign(self, run: Run, days: Sequence[str], after: int, until: int) -> list[Commit]:
        """Return the commits of others that changed these days in (after, until]."""
        return [
            one
            for one in self.commits[after + 1 : until + 1]
            if one.ours.get("run_id") != run.id and not one.touched.isdisjoint(days)
        ]

    def _check_fence(self, end: End) -> None:
        """Once an attempt has staged its rows, no earlier one of its run commits any more."""
        if end.staged is not None:
            earlier = {end.run.token(attempt) for attempt in range(1, end.attempt)}
            late = {t for t in earlier & self.made.keys() if self.made[t] > end.staged}
            assert not late, f"{end.name} had staged at {end.staged}, then came {late}"

    def _check_attempt(self, end: End, until: int) -> None:
        run, version = end.run, self.made.get(end.run.token(end.attempt))
        made = None if version is None or version > until else self.commits[version]
        stands = made is not None and self._gone(made, until + 1) is None
        if end.error is None:
            assert made is not None, f"{end.name} left nothing"
            assert stands, f"{end.name} was taken back"
            foreign = self._foreign(run, run.scope, end.since, made.version - 1)
            if run.mode == "append":  # rows that others add are no matter
                foreign = [c for c in foreign if self.rows[c.version - 1] - self.rows[c.version]]
            assert not foreign, f"{end.name} has overlooked {foreign}"
        elif made is not None and stands and self._says_what_stands(end):
            # It came over what it could not see: between its look, once its rows were staged, and
            # Delta's own. By the time it saw that, others had built on it, or a later attempt had
            # begun.
            assert end.staged is not None
            unseen = self._foreign(run, run.scope, end.staged, made.version - 1)
            later = self._foreign(run, run.scope, made.version, until)
            assert unseen, f"{end.name} left {made}: {end.error!r}"
            assert later or self._is_given_up(end, until), f"{end.name} left {made}: {end.error!r}"
        elif (
            made is not None and stands
        ):  # given up; the later attempt replaces it or takes it back
            is_stale = isinstance(end.error, StaleAttemptError) and self._is_given_up(end, until)
            assert is_stale, f"{end.name} left {made}: {end.error!r}"
        if end.error is not None and end is self._last(run) and not self._is_told(end):
            assert run.mode != "overwrite", repr(end.error)
            assert isinstance(end.error, WriteConflictError), repr(end.error)
            assert self._is_built_on(run), f"{end.name} is refused: {end.error!r}"

    def _check_undo(self, end: End, until: int) -> None:
        run = end.run
        if end.error is None:
            made = [self.commits[self.made[token]] for token in run.tokens if token in self.made]
            left = [one for one in made if one.version <= until]
            left = [one for one in left if self._gone(one, until + 1) is None]
            assert not left, f"{end.name} left {left}"
        elif end is self._last(run) and not self._is_told(end):
            assert isinstance(end.error, UndoRefusedError), repr(end.error)
            assert self._is_built_on(run), f"{end.name} is refused: {end.error!r}"

    def _is_told(self, end: End) -> bool:
        is_known = end.run.id in self.told or self._is_overtaken(end.run)
        return is_known and self._says_what_stands(end)

    def _is_overtaken(self, run: Run) -> bool:
        """Whether an undoing came over commits that it had not seen, and others have built on it.

        It is named even where those commits change nothing together with others: whoever made it
        has not looked, and what it would be taken back to is not what was built on.
        """
        newest = len(self.commits)
        for one in self.commits:
            first = min((self.made[t] for t in one.undone if t in run.tokens), default=None)
            if first is not None and self._gone(one, newest) is None:
                unseen = self._foreign(run, list(one.touched), first, one.version - 1)
                if unseen and self._foreign(run, list(one.touched), one.version, newest):
                    return True
        return False

    def _says_what_stands(self, end: End) -> bool:
        return isinstance(end.error, RuntimeFailure) and end.error.stands

    def _is_given_up(self, end: End, until: int) -> bool:
        """Whether a later attempt of its run had begun to write by a version."""
        return any(
            one.ours.get("run_id") == end.run.id and one.ours.get("fence", 0) > end.attempt
            for one in self.commits[: until + 1]
        )

    def _last(self, run: Run) -> End:
        """Return what was done undisturbed."""
        return next(end for end in reversed(self.ends) if end.run is run)

    def _is_built_on(self, run: Run) -> bool:
        """Whether somebody else changed what one of its attempts wrote."""
        made = [self.commits[self.made[token]] for token in run.tokens if token in self.made]
        newest = len(self.commits)
        return any(self._foreign(run, list(c.touched), c.version, newest) for c in made)
