"""Plain functions for scripts that keep their own shape.

from spark_runtime import read, run_context, write_partitions

run_context("orders_daily") orders = read("orders") write_partitions(orders.groupBy("day").count())

In a backfill such a script gets its partitions; in a scheduled run it computes them.
"""

from __future__ import annotations

import argparse
import atexit
import os
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
from spark_runtime.configuration import load_project
from spark_runtime.errors import EntrypointError, Stopped
from spark_runtime.job.arguments import add_arguments, read_request
from spark_runtime.job.attempt import Attempt
from spark_runtime.job.context import RunContext
from spark_runtime.job.datasets import Calendar, Dataset, Dimension, Read, Write
from spark_runtime.job.scheduled import Batch, declare, run_specs
from spark_runtime.session import get_session
from spark_runtime.spec import load_spec
from spark_runtime.tables.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The arguments of `run_context`; None and () mean not given."""

    job: str | None
    inputs: tuple[Dataset | Read | str, ...]
    outputs: tuple[Dataset | Write | str, ...]
    calendar: Calendar | Sequence[Dimension] | None
    arguments: tuple[str, ...] | None
    config: Path | None


@dataclass(frozen=True, eq=False, slots=True)
class _Run:
    """A run of this process; `asked` is None if a caller of the script has begun it.

    `before` is the last uncaught exception before it.
    """

    context: RunContext
    asked: _Request | None = None
    before: BaseException | None = None


#: The runs of this process, one within another: that of a script within that of its caller.
_running: list[_Run] = []


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
    uncaught exception (in a notebook cell), it ends that run and begins another. A script that is
    run as a job has one run only: after its end this raises EntrypointError.

    A process has one run at a time, which all of its threads find.
    """
    asked = _Request(
        job=job,
        inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
        outputs=(outputs,) if isinstance(outputs, str) else tuple(outputs),
        calendar=calendar,
        arguments=None if arguments is None else tuple(arguments),
        config=config,
    )
    last = _running[-1] if _running else None
    if last is not None and last.context.result is None and _is_of(last, asked):
        return last.context
    if last is not None and last.asked is None:
        raise EntrypointError(
            "the run of this script has ended, and the script asks for another",
            hint="Write all outputs before the end of its `with` block; another job is another "
            "script.",
        )
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
    return _begin(session, spec, asked)


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
    depends_on_past: bool | None = None

    def run(self, context: RunContext) -> None:
        """Run the file; `run_context()` in it returns the run. Raises what the file raises."""
        try:
            with entered(context):
                _run_file(self.path)
        except Stopped:
            raise
        except SystemExit as exit_:
            if exit_.code not in (None, 0):
                raise EntrypointError(f"{self.path} ended with exit code {exit_.code}") from exit_


@contextmanager
def entered(context: RunContext) -> Iterator[None]:
    """Make this the run of this process in this block."""
    depth = len(_running)
    _running.append(_Run(context))
    try:
        yield
    finally:
        del _running[depth:]


def _begin(spark: SparkSession, spec: RunSpec, asked: _Request) -> RunContext:
    """Begin a run; an earlier unfinished one ends."""
    if _running and _running[-1].asked is not None:
        last, error = _running.pop(), _last_error()
        last.context.abandon(None if error is last.before else error)
    attempt = Attempt(spark, spec, Tables(spark))
    try:
        attempt.begin()
    except BackfillError as error:
        attempt.end(error)
        raise
    context = RunContext(attempt, ends_itself=True)
    _running.append(_Run(context, asked, _last_error()))
    atexit.register(_left, attempt)
    return context


def _is_of(run: _Run, asked: _Request) -> bool:
    """Whether a run has this request, and nothing has failed since.

    A script run by a caller with a run of its own always matches.
    """
    if run.asked is None:
        return True
    given_now = {name: given for name, given in vars(asked).items() if given not in (None, ())}
    if asked.arguments is not None:
        given_now["arguments"] = asked.arguments  # none at all are other ones
    is_same = all(getattr(run.asked, name) == given_now[name] for name in given_now)
    return is_same and _last_error() is run.before


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
    return _running[-1].context


def _run_file(path: Path) -> None:
    """Run a file as `python FILE` does, without arguments; raises what the file raises.

    Arguments, environment and working directory are restored afterwards.
    """
    arguments, environment, folder = sys.argv, dict(os.environ), Path.cwd()
    sys.argv = [str(path)]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
