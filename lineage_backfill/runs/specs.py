"""Turns planned runs into run specs, the JSON that a Spark job reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lineage_backfill.errors import DeclarationError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import parse
from lineage_backfill.plans.plan import DatasetPartitions, PlannedRun
from lineage_backfill.project.declarations import DatasetDeclaration
from lineage_backfill.project.resolve.physical_columns import unplaced
from lineage_backfill.project.resolve.resolver import DeclarationResolver, written_keys
from lineage_backfill.runspec.build import RecordedWrites, RunIdentity, SpecBuilder
from lineage_backfill.runspec.values import JobSpec


class RunSpecs:
    """Makes the run specs of one plan; `resolver` is as of the time when it was made.

    `root` is the base of relative locations, `outbox` the folder for lineage events, `lineage_url`
    an endpoint to send them to, `recorded` what earlier runs wrote.
    With `append_again` a run may append to keys that another one has appended to.
    """

    def __init__(
        self,
        resolver: DeclarationResolver,
        *,
        backfill_id: str,
        root: Path,
        outbox: Path | None = None,
        lineage_url: str | None = None,
        recorded: RecordedWrites | None = None,
        append_again: bool = False,
    ) -> None:
        self._resolver = resolver
        self._own = {one.name for one in resolver.declarations.engines if one.takes_any_job}
        self._builder = SpecBuilder(
            resolver, root=root, outbox=outbox, url=lineage_url, recorded=recorded
        )
        self._backfill_id = backfill_id
        self._append_again = append_again

    def __call__(
        self, run: PlannedRun, attempt: int, token: str, result_path: Path
    ) -> dict[str, Any]:
        """Return the run spec of one attempt; raises DeclarationError where a table is unknown."""
        facts = self._resolver.job(run.job)
        self._refuse_incomplete(run)
        assert facts.calendar is not None
        assert facts.declaration is not None
        keys = parse(facts.calendar, run.partitions)
        outputs = {output.dataset: output for output in facts.outputs}
        spec = self._builder.build(
            RunIdentity(
                backfill_id=self._backfill_id,
                run_id=run.id,
                attempt=attempt,
                token=token,
                result_path=str(result_path),
                append_again=self._append_again,
            ),
            JobSpec(name=run.job, entrypoint=facts.declaration.entrypoint or ""),
            keys,
            reads=[self._part(part) for part in run.reads if not self._lacks(part)],
            writes=[
                # A plan of an older release may lack those of an output.
                (dataset, planned or written_keys(outputs[dataset], keys))
                for dataset, planned in map(
                    self._part, (part for part in run.writes if not self._lacks(part))
                )
            ],
        )
        return spec.to_dict()

    def refuse_incomplete(self, runs: Iterable[PlannedRun]) -> None:
        """Raise one DeclarationError if no run spec can be made for some of the jobs."""
        wrong: dict[JobRef, DeclarationError] = {}
        seen: set[JobRef] = set()
        for run in runs:
            if run.job not in seen:
                seen.add(run.job)
                try:
                    self._refuse_incomplete(run)
                except DeclarationError as error:
                    wrong[run.job] = error
        if wrong:
            first = next(iter(wrong.values()))
            others = len(wrong) - 1
            more = f"; the same for {others:,} more job{'s' * (others > 1)}" if others else ""
            raise DeclarationError(
                f"{first.message}{more}; nothing was run",
                hint=f"{first.hint} `lineage-backfill config check` lists all that is missing.",
            )

    def _refuse_incomplete(self, run: PlannedRun) -> None:
        facts = self._resolver.job(run.job)
        declared = facts.declaration
        if declared is None:
            raise DeclarationError(
                f"job {run.job} is no longer declared",
                hint="Declare its [[job]] as it was when the backfill was planned.",
            )
        if facts.calendar is None:
            raise DeclarationError(
                f"the partitioning of job {run.job} is no longer known",
                hint="Declare it as it was when the backfill was planned.",
            )
        if declared.engine in self._own:
            return
        if declared.entrypoint is None:
            raise DeclarationError(
                f"job {run.job} has no entrypoint",
                hint="Declare it in the project file: "
                '[[job]] entrypoint = "package.module:function".',
            )
        outputs = {output.dataset: output for output in facts.outputs}
        for part in run.writes:
            self._resolver.dataset(part.dataset).refuse_unplaced(keyed=part.keys is not None)
            if part.dataset in outputs:
                outputs[part.dataset].refuse_undeclared()
        for part in run.reads:
            self._resolver.dataset(part.dataset).refuse_unplaced(keyed=part.keys is not None)

    def _lacks(self, part: DatasetPartitions) -> bool:
        return bool(unplaced(*self._place(part)))

    def _place(self, part: DatasetPartitions) -> tuple[DatasetDeclaration | None, Calendar | None]:
        """Return what is declared of a dataset, and its calendar unless it is taken whole."""
        data = self._resolver.dataset(part.dataset)
        return data.declaration, None if part.keys is None else data.calendar

    def _part(self, part: DatasetPartitions) -> tuple[DatasetRef, PartitionSet | None]:
        calendar = self._resolver.dataset(part.dataset).calendar
        if part.keys is None or calendar is None:
            return part.dataset, None
        return part.dataset, parse(calendar, part.keys)
