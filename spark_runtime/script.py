"""Plain functions for scripts that keep their own shape.

from spark_runtime import read, run_context, write_partitions

run_context("orders_daily") orders = read("orders") write_partitions(orders.groupBy("day").count())

In a backfill such a script gets its partitions; in a scheduled run it computes them.
"""

from __future__ import annotations

import argparse
import atexit
import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage_backfill.errors import BackfillError
from lineage_backfill.runspec.values import OutputResult, RunSpec
from spark_runtime.arguments import add_arguments, read_request
from spark_runtime.attempt import Attempt
from spark_runtime.configuration import load_project
from spark_runtime.context import RunContext
from spark_runtime.datasets import Calendar, Dataset, Dimension, Read, Write
from spark_runtime.errors import EntrypointError, Stopped
from spark_runtime.scheduled import Batch, declare, run_specs
from spark_runtime.session import get_session
from spark_runtime.spec import load_spec
from spark_runtime.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The nested runs of this process: that of a script within that of its caller.
_running: list[RunContext] = []


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The arguments of `run_context`; None and () mean not given."""

    job: str | None
    inputs: tuple[Dataset | Read | str, ...]
    outputs: tuple[Dataset | Write | str, ...]
    calendar: Calendar | Sequence[Dimension] | None
    arguments: tuple[str, ...] | None
    config: Path | None


#: The request of a script's run, and the last uncaught exception before it.
_begun: dict[RunContext, tuple[_Request, BaseException | None]] = {}


def run_context(
    job: str | None = None,
    *,
    inputs: str | Iterable[Dataset | Read | str] = (),
    outputs: str | Iterable[Dataset | Write | str] = (),
    calendar: Calendar | Sequence[Dimension] | None = None,
    arguments: Sequence[str] | None = None,
    config: Path | None = None,
    spark: SparkSession | None = None,
) -> RunContext:
    """Return the run of this script, and begin it.

    In a backfill the partitions come from the run spec of the process, of the argument `--spec`, or
    in Airflow's `--airflow-run`. Otherwise they come from `--backfill-key`, `--data-interval-start`
    and `--data-interval-end`, or `--schedule`, else from the clock, with a warning. `arguments`
    replaces the arguments of the process. The inputs and outputs of `job` are declared in the
    project file (`config`, or searched upward from the working directory), or by `inputs` and
    `outputs`. The run ends with the `with` block if there is one, else when all outputs are
    written. Raises NothingToRunError if no key became complete, EntrypointError, and the tool's
    errors for keys and declarations.

    A second call returns the same run while that is active. With other arguments, or after an
    uncaught exception (in a notebook cell), it ends that run and begins another.
    """
    asked = _Request(
        job=job,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        outputs=(outputs,) if isinstance(outputs, str) else tuple(outputs),
        calendar=calendar,
        arguments=None if arguments is None else tuple(arguments),
        config=config,
    )
    if _running and _running[-1].result is None and _is_of(asked):
        return _running[-1]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--spec")
    add_arguments(parser)
    options, _others = parser.parse_known_args(arguments)
    project = load_project(Path.cwd(), config)
    if options.spec:
        spec = load_spec(options.spec)
    elif job is None:
        raise EntrypointError(
            "the script was started without a run spec, and does not name its job",
            hint='Name it: run_context("orders_daily").',
        )
    else:
        reads = [one if isinstance(one, Read) else Read(one) for one in asked.inputs]
        writes = [one if isinstance(one, Write) else Write(one) for one in asked.outputs]
        declared = declare(project, job, reads=reads, writes=writes, calendar=calendar)
        specs = run_specs(declared, project, read_request(options), datetime.now(UTC))
        if len(specs) > 1:
            raise EntrypointError(
                f"{job} reads its own output for the previous key, and several keys are given",
                hint="Start the script once for each key: --backfill-key KEY",
            )
        (spec,) = specs
    if spec.undo is not None:
        raise EntrypointError(
            "a script cannot undo what it wrote",
            hint="Run it with `python -m spark_runtime run`, which can undo.",
        )
    session = spark or get_session(project.spark)
    context = _begin(session, spec)
    _begun[context] = asked, _last_error()
    return context


def read(
    dataset: str, *, all_partitions: bool = False, auto_filter: bool = True
) -> DataFrame | None:
    """Return the partitions that the run of this process needs; see RunContext.read."""
    return _current().read(dataset, all_partitions=all_partitions, auto_filter=auto_filter)


def write_partitions(frame: DataFrame, output: str | None = None, **options: Any) -> OutputResult:
    """Replace the partitions of the run of this process; see RunContext.write."""
    return _current().write(frame, output, **options)


@dataclass(frozen=True, slots=True)
class Script:
    """A job that is an unchanged Python file."""

    path: Path
    reads: Sequence[Read] = ()
    writes: Sequence[Write] = ()
    calendar: None = None
    batch: Batch = "range"

    def run(self, context: RunContext) -> None:
        """Run the file; `run_context()` in it returns the run. Raises what the file raises."""
        arguments = sys.argv
        sys.argv = [str(self.path)]
        try:
            with _entered(context):
                runpy.run_path(str(self.path), run_name="__main__")
        except Stopped:
            raise
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                raise EntrypointError(f"{self.path} ended with exit code {exit_.code}") from exit_
        finally:
            sys.argv = arguments


@contextmanager
def _entered(context: RunContext) -> Iterator[None]:
    _running.append(context)
    try:
        yield
    finally:
        _running.remove(context)


def _begin(spark: SparkSession, spec: RunSpec) -> RunContext:
    """Begin a run of this process; an earlier unfinished one ends."""
    for context, (_asked, before) in _begun.items():
        error = _last_error()
        context.abandon(None if error is before else error)
    _begun.clear()
    attempt = Attempt(spark, spec, Tables(spark))
    try:
        attempt.begin()
    except BackfillError as error:
        attempt.end(error)
        raise
    context = RunContext(attempt, ends_itself=True)
    _running[:] = [context]
    atexit.register(_left, attempt)
    return context


def _is_of(asked: _Request) -> bool:
    """Whether the run of this process has this request, and nothing has failed since.

    A script run by a caller with a run of its own always matches.
    """
    if _running[-1] not in _begun:
        return True
    begun, error = _begun[_running[-1]]
    said = {name: given for name, given in vars(asked).items() if given not in (None, ())}
    if asked.arguments is not None:
        said["arguments"] = asked.arguments  # none at all are other ones
    return _last_error() is error and all(getattr(begun, name) == said[name] for name in said)


def _last_error() -> BaseException | None:
    """Return the last uncaught exception, in an interactive Python."""
    return getattr(sys, "last_value", None)


def _left(attempt: Attempt) -> None:
    """End the run of a process that ends with unwritten outputs."""
    if attempt.result is None:
        try:
            attempt.check_written()
        except EntrypointError as error:
            attempt.end(_last_error() or error)


def _current() -> RunContext:
    if not _running:
        raise EntrypointError(
            "this process has no run", hint='Begin one: run_context("orders_daily").'
        )
    return _running[-1]
