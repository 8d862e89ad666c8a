"""An engine without processes whose tables are kept in memory, key by key.

What a run writes for one key depends on nothing but what that key reads, so tables can be compared
with a recomputation, and runs with the plain rule of which keys had to run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import expand, parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Outcome
from lineage_backfill.project.resolve.resolver import Input, JobFacts
from tests.fakes import FakeEngine

#: One partition, by its dataset and label.
Cell = tuple[DatasetRef, str]
#: Makes the content of a key's output from what the key reads; absent partitions are left out.
Function = Callable[[Mapping[Cell, Any]], Any]


class Tables:
    """Tables and the jobs that make them; `merged` jobs put the parts of their keys together."""

    def __init__(
        self, resolver: Resolver, functions: Mapping[str, Function], merged: Iterable[str] = ()
    ) -> None:
        self.resolver = resolver
        self.functions = functions
        self.merged = frozenset(merged)
        self.content: dict[Cell, Any] = {}

    def cells(self, dataset: DatasetRef, keys: PartitionSet) -> list[Cell]:
        """The partitions of a set."""
        calendar = self.resolver.calendar(dataset)
        assert calendar is not None
        return [(dataset, str(key.label)) for key in expand(calendar, keys)]

    def read(self, facts: JobFacts, key: PartitionSet) -> list[Cell]:
        """All that one run key reads."""
        return [
            cell for edge in facts.live for cell in self.cells(*self._required(facts, edge, key))
        ]

    @staticmethod
    def _required(
        facts: JobFacts, edge: Input, key: PartitionSet
    ) -> tuple[DatasetRef, PartitionSet]:
        assert edge.mapping is not None
        assert facts.calendar is not None
        reading = edge.corrected_by(key)
        return edge.dataset, edge.mapping.required(reading)

    def made(self, facts: JobFacts, key: PartitionSet) -> dict[Cell, Any]:
        """What one run key makes of what the tables hold now."""
        held = {cell: self.content[cell] for cell in self.read(facts, key) if cell in self.content}
        value = self.functions[facts.ref.name](held)
        found = {}
        for output in facts.outputs:
            assert output.mapping is not None
            for cell in self.cells(output.dataset, output.mapping.required(key)):
                found[cell] = value
                if facts.ref.name in self.merged:
                    (label,) = self.labels(facts.calendar, key)
                    found[cell] = {**self.content.get(cell, {}), label: value}
        return found

    @staticmethod
    def labels(calendar: Calendar | None, keys: PartitionSet) -> list[str]:
        """The labels of a set of run keys."""
        assert calendar is not None
        return [str(key.label) for key in expand(calendar, keys)]

    def run(self, job: JobRef, partitions: Iterable[Any]) -> None:
        """Make all that these run keys make, one after the other."""
        facts = self.resolver.job(job)
        assert facts.calendar is not None
        for key in parse(facts.calendar, tuple(partitions)).singles():
            self.content |= self.made(facts, key)

    def fingerprint(self, cell: Cell) -> str:
        """What stands for the content of a partition."""
        return json.dumps(self.content.get(cell, "empty"), sort_keys=True)


class TableEngine(FakeEngine):
    """Runs jobs on tables; `ran` counts how often each (job, key) ran to its end."""

    def __init__(self, tables: Tables, **options: Any) -> None:
        super().__init__(**options)
        self.tables = tables
        self.done: dict[str, Outcome] = {}
        self.version: int | None = None  # of each table after a run
        self.ran: dict[tuple[str, str], int] = defaultdict(int)
        self.before_run: Callable[[JobRef, list[str]], None] = lambda _job, _keys: None

    def spec(self, run: PlannedRun, attempt: int, token: str, path: Path) -> dict[str, Any]:
        """The run spec of this engine."""
        parts = {"reads": run.reads, "writes": run.writes}
        return {
            "run_id": run.id,
            "attempt": attempt,
            "token": token,
            "job": [run.job.namespace, run.job.name],
            "partitions": run.partitions,
            **{name: [[*p.dataset[:2], p.keys] for p in listed] for name, listed in parts.items()},
        }

    def submit(self, spec_path: Path, token: str) -> str:
        spec = json.loads(spec_path.read_text())
        run = (spec["run_id"], spec["attempt"])
        if run not in self.outcomes:
            self.done[token] = self._run(spec)
        return super().submit(spec_path, token)

    def end(self, token: str, outcome: Outcome | None = None) -> None:
        super().end(token, outcome or self.done.get(token))

    def _run(self, spec: Mapping[str, Any]) -> Outcome:
        job = JobRef(*spec["job"])
        facts = self.tables.resolver.job(job)
        assert facts.calendar is not None
        labels = self.tables.labels(
            facts.calendar, parse(facts.calendar, tuple(spec["partitions"]))
        )
        self.before_run(job, labels)
        for label in labels:
            self.ran[job.name, label] += 1
        inputs = self._parts(spec["reads"])
        self.tables.run(job, spec["partitions"])
        outputs = self._parts(spec["writes"])
        result = {"token": spec["token"], "inputs": inputs, "outputs": outputs}
        return Outcome(state=AttemptState.SUCCEEDED, result=result)

    def _parts(self, parts: Iterable[Any]) -> list[dict[str, Any]]:
        found = []
        for namespace, name, keys in parts:
            dataset = DatasetRef(namespace, name)
            calendar = self.tables.resolver.calendar(dataset)
            assert calendar is not None
            read = calendar.existing if keys is None else parse(calendar, tuple(keys))
            cells = self.tables.cells(dataset, read)
            partitions = [
                {"key": cell[1], "fingerprint": self.tables.fingerprint(cell)} for cell in cells
            ]
            named = {"namespace": namespace, "name": name}
            found.append({"dataset": named, "version": self.version, "partitions": partitions})
        return found
