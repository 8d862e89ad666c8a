"""One attempt of one run: reads, writes, lineage and the result file.

A job, a query and a script only differ in how they call it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING

from lineage_backfill.errors import BackfillError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.locations import is_remote
from lineage_backfill.runspec.values import (
    ErrorResult,
    InputResult,
    InputSpec,
    OutputResult,
    OutputSpec,
    RunResult,
    RunSpec,
    Target,
)
from spark_runtime.emit.columns import ColumnLineage, ColumnTrace
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.errors import (
    EntrypointError,
    InputChangedError,
    InputMissingError,
    RuntimeFailure,
    Stopped,
)
from spark_runtime.read.increments import last_read
from spark_runtime.read.reader import Inputs
from spark_runtime.session import guarded, is_alive
from spark_runtime.spec import write_result
from spark_runtime.tables.places import local_path
from spark_runtime.tables.state import Since
from spark_runtime.undo import undo_attempts
from spark_runtime.write.checks import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_runtime.tables.state import TableState
    from spark_runtime.tables.tables import Tables

_log = logging.getLogger(__name__)
_MESSAGE_LENGTH = 2000
#: Spark's error for a missing data file, with its path.
_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\].*?reading file (.+?)\. File does not exist")
_STACK = re.compile(r"\n\s*(JVM stacktrace:|at [\w.$]+\().*", re.DOTALL)


@dataclass(slots=True)
class Attempt:
    """One attempt: it begins once and ends once."""

    spark: SparkSession
    spec: RunSpec
    tables: Tables
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    result: RunResult | None = None
    _inputs: Inputs | None = None
    _read: tuple[InputResult, ...] = ()
    _since: dict[DatasetRef, Since] = field(default_factory=dict)
    _written: dict[DatasetRef, OutputResult] = field(default_factory=dict)
    _columns: dict[DatasetRef, ColumnLineage | None] = field(default_factory=dict)
    _emitter: Emitter = field(init=False)
    _trace: ColumnTrace = field(init=False)

    def __post_init__(self) -> None:
        self._emitter = Emitter(self.spec, self.started_at)

    def begin(self) -> None:
        """Emit the start, and pin the inputs and outputs to their current versions."""
        self._emitter.start(*self._seen())
        with guarded(self.spark):
            self._pin()

    def batch(self, policy: str) -> None:
        """Set how the job batches its keys, for the lineage; the run spec takes precedence."""
        self._emitter.batch = policy

    def _pin(self) -> None:
        for output in self.spec.outputs:
            self._since[output.dataset] = Since.of(self.tables.state(output))
        self._inputs = Inputs(self.spark, self.spec.inputs, self.tables)
        self._read = self._inputs.results()
        self._inputs.refuse_missing(self.spec.keys)
        self._trace = ColumnTrace(self.spark)

    def read(
        self, dataset: str, *, all_partitions: bool = False, auto_filter: bool = True
    ) -> DataFrame | None:
        """Return the partitions that the run needs of an input; see RunContext.read."""
        assert self._inputs is not None, "an attempt begins before it reads"
        with guarded(self.spark), self._trace.aside():
            frame = self._inputs.read(
                dataset, all_partitions=all_partitions, auto_filter=auto_filter
            )
        if frame is not None:
            self._trace.take(self._inputs.find(dataset).dataset, frame)
        return frame

    def read_new(self, dataset: str) -> DataFrame | None:
        """Return the changed partitions of an input; see RunContext.read_new."""
        assert self._inputs is not None, "an attempt begins before it reads"
        with guarded(self.spark), self._trace.aside():
            read = self._inputs.find(dataset)
            frame = self._inputs.read(dataset, after=last_read(self.spec, read, self.tables))
        if frame is not None:
            self._trace.take(read.dataset, frame)
        return frame

    def write(self, frame: DataFrame, named: str | None, options: WriteOptions) -> OutputResult:
        """Replace the run's partitions of an output; see RunContext.write."""
        assert self._inputs is not None, "an attempt begins before it writes"
        output = self._output(named)
        if output.dataset in self._written:
            raise EntrypointError(
                f"{output.dataset} is written twice in one run",
                hint="Union the rows, and write them once.",
            )
        self._read, since = self._inputs.results(), self._since[output.dataset]
        options = replace(
            options,
            inputs=self._read,
            reads=self._inputs.rows(),
            since=since,
            started_at=self.started_at,
        )
        self._columns[output.dataset] = self._trace.of(frame)
        with self._trace.aside():
            # Imported on use: it needs Spark, and this module is also imported without it.
            writer = import_module("spark_runtime.write.writer")
            result: OutputResult = writer.write_partitions(
                frame, output, self.spec, self.tables, options
            )
        self._written[output.dataset] = result
        return result

    def undo(self, tokens: Sequence[str]) -> None:
        """Restore what the attempts with these tokens wrote to the outputs, newest first."""
        for output in self.spec.outputs:
            self._written[output.dataset] = undo_attempts(
                self.spark, output, tokens, self.tables, self.spec.recorded
            )

    @property
    def unwritten(self) -> list[str]:
        """The outputs that are not written yet."""
        return [str(o.dataset) for o in self.spec.outputs if o.dataset not in self._written]

    def check_written(self) -> None:
        """Raise EntrypointError if an output of the run was not written."""
        if self.unwritten:
            raise EntrypointError(
                f"{self.spec.job.entrypoint or self.spec.job.name} ended without writing "
                f"{', '.join(self.unwritten)}",
                hint="Write every output; if there is nothing to write, write an empty DataFrame.",
            )

    def end(self, error: BaseException | None = None) -> RunResult:
        """Report the outcome in a last event, and in the result file if the run spec has one.

        Only the first call counts.
        """
        if self.result is None:
            described = None if error is None else describe_error(error, self.spec.inputs)
            if described is not None and not is_alive(self.spark):
                # A new JVM may succeed, whatever the cause.
                described = replace(described, transient=True)
            self._tell(described, stopped=not isinstance(error, Exception | None))
            self.result = RunResult(
                run_id=self.spec.run_id,
                attempt=self.spec.attempt,
                token=self.spec.token,
                state="succeeded" if described is None else "failed",
                outputs=tuple(self._written.values()),
                inputs=self._read,
                error=described,
                started_at=self.started_at,
                ended_at=datetime.now(UTC),
            )
            self._leave_result(self.result)
        return self.result

    def _leave_result(self, result: RunResult) -> None:
        """Write the result file; where there is no place for it, the tables' logs tell the same."""
        if self.spec.result_path is not None:
            try:
                write_result(self.spec.result_path, result)
            except OSError as error:
                _log.warning("%s was not written: %s", self.spec.result_path, error.strerror)

    def _output(self, named: str | None) -> OutputSpec:
        found = [o for o in self.spec.outputs if named is None or o.dataset.matches(named)]
        if len(found) != 1:
            names = ", ".join(str(output.dataset) for output in self.spec.outputs)
            raise EntrypointError(
                f"{len(found)} outputs of this run are named {named!r}; it has: {names}"
                if named
                else f"the run has several outputs: {names}",
                hint="Name one of them.",
            )
        return found[0]

    def _tell(self, error: ErrorResult | None, *, stopped: bool) -> None:
        if self.spec.undo is not None:
            return  # not a run of the job: an event without inputs would say that it reads none
        if error is None:
            self._emitter.complete(*self._seen())
        elif stopped:
            self._emitter.abort(*self._seen(), error.message)
        else:
            self._emitter.fail(*self._seen(), error.message)

    def _seen(self) -> tuple[list[InputSeen], list[OutputSeen]]:
        pinned: tuple[InputSpec, ...] = self._inputs.specs() if self._inputs else self.spec.inputs
        inputs = [InputSeen(spec=spec, state=self._state(spec, spec.version)) for spec in pinned]
        outputs = []
        for spec in self.spec.outputs:
            result = self._written.get(spec.dataset)
            state = self._state(spec, result.version if result else None)
            columns = self._columns.get(spec.dataset)
            outputs.append(OutputSeen(spec=spec, state=state, result=result, columns=columns))
        return inputs, outputs

    def _state(self, target: Target, version: int | None) -> TableState | None:
        # An unreadable table fails the run when it is read, not when it is reported.
        with contextlib.suppress(Exception):
            return self.tables.state(target, version)
        return None


def describe_error(error: BaseException, inputs: Sequence[InputSpec] = ()) -> ErrorResult:
    """Return an error for the result file, without the JVM's stack trace."""
    if gone := _GONE.search(str(error)):
        error = _missing(gone[1], inputs)
    full = error.full_text if isinstance(error, BackfillError) else str(error)
    text = _STACK.sub("", full).strip() or type(error).__name__
    is_lost = isinstance(error, ConnectionError)
    transient = error.transient if isinstance(error, BackfillError | Stopped) else is_lost
    return ErrorResult(
        class_name=type(error).__name__, message=text[:_MESSAGE_LENGTH], transient=transient
    )


def _missing(file: str, inputs: Sequence[InputSpec]) -> RuntimeFailure:
    """Return the error for a data file that is missing."""
    for one in inputs:
        if one.format == "parquet" and one.location is not None:
            remote = is_remote(file)
            root = one.location if remote else str(local_path(one.location).absolute())
            if (file if remote else str(local_path(file))).startswith(f"{root.rstrip('/')}/"):
                return InputChangedError(
                    f"{file} of {one.dataset} was replaced or deleted after this run had started; "
                    "a Parquet table keeps no old versions",
                    hint="Retry the run.",
                )
    return InputMissingError(
        f"{file} is missing, and the version to read needs it",
        hint="It was vacuumed or deleted: plan again to read the newest version, or restore it.",
    )
