"""The run as a job sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from lineage_backfill.runspec.values import (
    KEY_COLUMN,
    Key,
    OutputResult,
    RunKey,
    RunResult,
    RunSpec,
)
from spark_runtime.errors import EntrypointError
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_runtime.job.attempt import Attempt
    from spark_runtime.write.checks import Check


class Policy(TypedDict, total=False):
    """Further settings of a write, as in `[[job.writes]]`."""

    delete_when: str | None
    delete_missing: bool


class RunContext:
    """The run that a job is called for.

    A function gets it through a parameter annotated `RunContext`, a script from `run_context()`.
    Used in a `with` statement it ends the run with the block.
    """

    def __init__(self, attempt: Attempt, *, ends_itself: bool = False) -> None:
        self._attempt = attempt
        self._ends_itself = ends_itself

    @property
    def spark(self) -> SparkSession:
        """The session that the run works in."""
        return self._attempt.spark

    @property
    def spec(self) -> RunSpec:
        """The whole run spec."""
        return self._attempt.spec

    @property
    def keys(self) -> tuple[RunKey, ...]:
        """The keys of the run, each with its UTC interval where it has one."""
        return self.spec.keys

    @property
    def has_named_keys(self) -> bool:
        """Whether a backfill or a user named the keys, rather than the clock."""
        return not self.spec.keys_derived

    @property
    def key(self) -> Key:
        """The only key of the run; raises EntrypointError if it has several."""
        if len(self.keys) != 1:
            raise EntrypointError(
                f"the run has {len(self.keys)} keys, and the job needs exactly one",
                hint='Iterate over `keys`, or let the job run key by key: batch = "key".',
            )
        return self.keys[0].key

    @property
    def interval(self) -> tuple[datetime, datetime]:
        """The UTC interval [start, end) from the first to the last period of the run.

        Raises EntrypointError if the keys are not periods.
        """
        starts = [key.start for key in self.keys if key.start is not None]
        ends = [key.end for key in self.keys if key.end is not None]
        if not starts or not ends:
            raise EntrypointError("the keys of the run are not periods of time")
        return min(starts), max(ends)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The job's parameters, as the run spec gives them; `backfill_key` is the key of one."""
        if len(self.keys) != 1:
            return self.spec.parameters
        return {KEY_COLUMN: str(self.key), **self.spec.parameters}

    def read(
        self, dataset: str, *, all_partitions: bool = False, auto_filter: bool = True
    ) -> DataFrame | None:
        """Return the partitions of an input that the run needs; the name may be bare or full.

        `all_partitions` reads all of them, and is recorded as such. Without `auto_filter` the job
        must filter itself: a warning names the columns. Returns None for a table that does not
        exist and is not required. Raises EntrypointError for a dataset that is not an input of the
        run.
        """
        return self._attempt.read(dataset, all_partitions=all_partitions, auto_filter=auto_filter)

    def read_new(self, dataset: str) -> DataFrame | None:
        """Return the partitions of an input that changed since the last run of this job.

        That is every partition, also an old one, that commits changed after the version which the
        last run read. If that run is unknown, all partitions; if the input is not read whole, those
        of the run. Returns None for a table that does not exist. Raises EntrypointError as `read`
        does.
        """
        return self._attempt.read_new(dataset)

    def write(
        self,
        frame: DataFrame,
        output: str | None = None,
        *,
        checks: Sequence[Check] = (),
        ignore: str | Sequence[str] = (),
        merge_on: str | Sequence[str] = (),
        newest_by: str | Sequence[str] | None = None,
        **policy: Unpack[Policy],
    ) -> OutputResult:
        """Replace the run's partitions of an output with the rows of `frame`, and nothing else.

        The output may be omitted if there is only one. `checks` see the rows before they are
        published, columns in `ignore` do not count when contents are compared. An output of mode
        "merge" is merged by the columns `merge_on`: of two rows with the same key, the one with the
        greater `newest_by` is kept (compared in the order of these columns). Rows for which
        `delete_when` is true delete the one with their key; `delete_missing` deletes those of the
        run's partitions whose key is in no row. Raises a RuntimeFailure; all old rows are then
        unchanged.
        """
        options = WriteOptions(
            checks=checks,
            ignore=ignore,
            merge_on=merge_on,
            newest_by=newest_by,
            **policy,
        )
        written = self._attempt.write(frame, output, options)
        if self._ends_itself and not self._attempt.unwritten:
            self._attempt.end()
        return written

    @property
    def result(self) -> RunResult | None:
        """The outcome of the run, once it has ended."""
        return self._attempt.result

    def abandon(self, error: BaseException | None = None) -> None:
        """End the run as failed, unless it has ended."""
        self._attempt.end(
            error or EntrypointError("the process began another run before it finished this one")
        )

    def __enter__(self) -> Self:
        self._ends_itself = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._attempt.check_written()
        except EntrypointError as unwritten:
            self._attempt.end(unwritten)
            raise
        self._attempt.end(error)
