"""Reads from Delta log files, without Spark, what a backfill rewrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The values of a partition's columns, in order; () for a table without partitions.
Values = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Partitions that a table's commits after a version rewrote, and those planned.

    Partitions that are empty before and after leave no trace in the log: `planned` omits them.
    """

    commits: int
    planned: frozenset[Values]
    rewritten: frozenset[Values]

    @property
    def holds(self) -> bool:
        """Whether exactly the planned partitions were rewritten."""
        return self.rewritten == self.planned and bool(self.commits) == bool(self.planned)


def latest_version(table: Path) -> int:
    """Return the version of the table's newest commit; -1 if there is no table."""
    return max((version for version, _ in _commits(table)), default=-1)


def verdict(table: Path, version: int, planned: Collection[Values]) -> Verdict:
    """Compare the commits after `version` with the plan; the log must be complete."""
    files: Counter[Values] = Counter()
    before: frozenset[Values] = frozenset()
    rewritten: set[Values] = set()
    commits = 0
    for number, log in _commits(table):
        for kind, action in _file_actions(log):
            values = tuple(action["partitionValues"].values())
            files[values] += 1 if kind == "add" else -1
            if number > version and action["dataChange"]:
                rewritten.add(values)
        if number <= version:
            before = _filled(files)
        else:
            commits += 1
    return Verdict(
        commits=commits,
        planned=frozenset(planned) & (before | _filled(files)),
        rewritten=frozenset(rewritten),
    )


def _filled(files: Counter[Values]) -> frozenset[Values]:
    return frozenset(values for values, count in files.items() if count)


def _file_actions(log: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for line in log.read_text(encoding="utf-8").splitlines():
        for kind, action in json.loads(line).items():
            if kind in ("add", "remove"):
                yield kind, action


def _commits(table: Path) -> Iterator[tuple[int, Path]]:
    for log in sorted((table / "_delta_log").glob("*.json")):
        if log.stem.isdecimal():
            yield int(log.stem), log
