"""Runs one run spec in a session: inputs, job, outputs, lineage, result file."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spark_runtime.context import RunContext
from spark_runtime.errors import RuntimeFailure
from spark_runtime.job import check_outputs, load_job
from spark_runtime.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.reader import Inputs
from spark_runtime.spec import (
    DatasetName,
    ErrorResult,
    InputResult,
    InputSpec,
    OutputResult,
    RunResult,
    RunSpec,
    Target,
)
from spark_runtime.spec import write_result as write_result_file
from spark_runtime.state import TableState
from spark_runtime.tables import Tables
from spark_runtime.writer import WriteOptions, write_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MESSAGE_LENGTH = 2000
_STACK = re.compile(r"\n\s*(JVM stacktrace:|at [\w.$]+\().*", re.DOTALL)


def run(spark: SparkSession, spec: RunSpec, tables: Tables) -> RunResult:
    """Run the job of a run spec and write its result file, whatever becomes of it.

    Never raises for what the job does: a failure is a result with state "failed".
    """
    attempt = _Attempt(spark, spec, tables)
    error: ErrorResult | None = None
    try:
        attempt.make()
    except Exception as raised:  # noqa: BLE001 (whatever a job raises is a result)
        traceback.print_exc(file=sys.stderr)
        error = describe_error(raised)
    attempt.tell(error)
    result = RunResult(
        run_id=spec.run_id,
        attempt=spec.attempt,
        token=spec.token,
        state="succeeded" if error is None else "failed",
        outputs=tuple(attempt.written.values()),
        inputs=attempt.read,
        error=error,
        started_at=attempt.started_at,
        ended_at=datetime.now(UTC),
    )
    if spec.result_path is not None:
        write_result_file(spec.result_path, result)
    return result


def describe_error(error: BaseException) -> ErrorResult:
    """Return an error as the result file holds it, without the JVM's stack."""
    text = _STACK.sub("", str(error)).strip() or type(error).__name__
    lost = isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError"
    transient = error.transient if isinstance(error, RuntimeFailure) else lost
    return ErrorResult(
        class_name=type(error).__name__, message=text[:_MESSAGE_LENGTH], transient=transient
    )


@dataclass(slots=True)
class _Attempt:
    """One attempt on its way."""

    spark: SparkSession
    spec: RunSpec
    tables: Tables
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    inputs: tuple[InputSpec, ...] = ()
    read: tuple[InputResult, ...] = ()
    written: dict[DatasetName, OutputResult] = field(default_factory=dict)
    emitter: Emitter = field(init=False)

    def __post_init__(self) -> None:
        self.emitter = Emitter(self.spec, self.started_at)

    def make(self) -> None:
        """Do what the run spec says; `read` and `written` tell how far it came."""
        self.inputs = self.spec.inputs
        self.emitter.start(*self._seen())
        definition = load_job(self.spec.job.entrypoint)
        check_outputs(definition, self.spec)
        since = [self.tables.latest_version(output) for output in self.spec.outputs]
        inputs = Inputs(self.spark, self.spec.inputs, self.tables)
        self.inputs, self.read = inputs.specs(), inputs.results()
        context = RunContext(spark=self.spark, spec=self.spec, inputs=inputs)
        frames = definition.call(context)
        for output, version in zip(self.spec.outputs, since, strict=True):
            (name,) = (name for name in frames if output.dataset.matches(name))
            options = WriteOptions(
                checks=definition.checks,
                ignore=definition.ignore,
                merge_on=definition.merge_on,
                newest_by=definition.newest_by,
                inputs=self.read,
                since=-1 if version is None else version,
            )
            self.written[output.dataset] = write_partitions(
                frames[name], output, self.spec, self.tables, options
            )

    def tell(self, error: ErrorResult | None) -> None:
        """Emit the last event of the run."""
        if error is None:
            self.emitter.complete(*self._seen())
        else:
            self.emitter.fail(*self._seen(), error.message)

    def _seen(self) -> tuple[list[InputSeen], list[OutputSeen]]:
        inputs = [
            InputSeen(spec=spec, state=self._state(spec, spec.version)) for spec in self.inputs
        ]
        outputs = []
        for spec in self.spec.outputs:
            result = self.written.get(spec.dataset)
            state = self._state(spec, result.version if result else None)
            outputs.append(OutputSeen(spec=spec, state=state, result=result))
        return inputs, outputs

    def _state(self, target: Target, version: int | None) -> TableState | None:
        # What cannot be read fails the run where it is needed, not where it is told of.
        with contextlib.suppress(Exception):
            return self.tables.state(target, version)
        return None
