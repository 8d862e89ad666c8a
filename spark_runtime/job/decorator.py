"""The decorator that turns a function over DataFrames into a job."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lineage_backfill.model import listed
from lineage_backfill.project.declarations import OnDrift, OnEmpty, WriteMode
from lineage_backfill.runspec.values import KEY_COLUMN, RunSpec
from spark_runtime.errors import EntrypointError
from spark_runtime.job.context import RunContext
from spark_runtime.job.datasets import Calendar, Dataset, Dimension, Read, Write
from spark_runtime.job.datasets import all_partitions as read_all
from spark_runtime.job.query import load_query
from spark_runtime.job.scheduled import Batch
from spark_runtime.job.script import Script
from spark_runtime.write.checks import Check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__lineage_backfill_job__"


class Job(Protocol):
    """The target of an entrypoint: a decorated function, a query or a script."""

    @property
    def reads(self) -> Sequence[Read]:
        """The inputs that it declares."""

    @property
    def writes(self) -> Sequence[Write]:
        """The outputs that it declares."""

    @property
    def calendar(self) -> Calendar | Sequence[Dimension] | None:
        """The calendar of its runs, if it differs from that of its outputs."""

    @property
    def batch(self) -> Batch:
        """Whether it computes several keys at once ("range") or one by one ("key")."""

    @property
    def depends_on_past(self) -> bool | None:
        """Whether each key needs the one before."""

    def run(self, context: RunContext) -> None:
        """Read, compute and write according to the run spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """A job declared by its function.

    `inputs` maps parameter names to what they read, `batch` says whether several keys may be
    computed at once ("range") or only one by one ("key"), `checks` guard its outputs before they
    are published, and columns in `ignore` do not count when contents are compared. A merge keeps,
    of two rows with the same key, the one with the greater `newest_by` (compared in the order of
    these columns).
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Read]
    writes: tuple[Write, ...]
    calendar: Calendar | Sequence[Dimension] | None = None
    batch: Batch = "key"
    depends_on_past: bool | None = None
    auto_filter: bool = True
    checks: tuple[Check, ...] = ()
    ignore: str | Sequence[str] = ()
    newest_by: str | Sequence[str] | None = None
    context_parameter: str | None = None
    takes_key: bool = False

    @property
    def reads(self) -> tuple[Read, ...]:
        """The inputs that it declares."""
        return tuple(self.inputs.values())

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(str(write.dataset) for write in self.writes)

    def run(self, context: RunContext) -> None:
        """Call the function and write what it returns."""
        check_outputs(self, context.spec)
        options = {str(write.dataset): write.options for write in self.writes}
        for name, frame in self.call(context).items():
            context.write(
                frame,
                name,
                checks=self.checks,
                ignore=self.ignore,
                newest_by=self.newest_by,
                **options[name],
            )

    def call(self, context: RunContext) -> dict[str, DataFrame]:
        """Call the function with its inputs; return one DataFrame per declared output."""
        arguments: dict[str, Any] = {
            parameter: context.read_new(str(read.dataset))
            if read.only_new
            else context.read(str(read.dataset), auto_filter=self.auto_filter)
            for parameter, read in self.inputs.items()
        }
        if self.context_parameter is not None:
            arguments[self.context_parameter] = context
        if self.takes_key:
            arguments[KEY_COLUMN] = str(context.key)
        try:
            returned = self.function(**arguments)
        except (AttributeError, TypeError) as error:
            absent = [f"`{name}`" for name, value in arguments.items() if value is None]
            if not absent:
                raise
            raise EntrypointError(
                f"{self.function.__qualname__} failed: {error}; {listed(absent)} is None, as the"
                " table does not exist yet",
                hint="Handle None in the function: the first run has nothing to read there.",
            ) from error
        frames = returned if isinstance(returned, dict) else {self.outputs[0]: returned}
        if set(frames) != set(self.outputs):
            raise EntrypointError(
                f"{self.function.__qualname__} returned {_names(frames)}, "
                f"its outputs are {_names(self.outputs)}",
                hint="Return one DataFrame, or a dict with one for each of `outputs`.",
            )
        from pyspark.sql import DataFrame

        for name, frame in frames.items():
            if not isinstance(frame, DataFrame):
                raise EntrypointError(
                    f"{self.function.__qualname__} returned {type(frame).__name__} for {name!r}, "
                    "not a DataFrame"
                )
        return frames


def job(
    *,
    inputs: Mapping[str, Dataset | Read | str] | None = None,
    output: Dataset | str | None = None,
    outputs: str | Sequence[Dataset | str] = (),
    calendar: Calendar | Sequence[Dimension] | None = None,
    batch: Batch = "key",
    depends_on_past: bool | None = None,
    mode: WriteMode | None = None,
    on_empty: OnEmpty | None = None,
    on_drift: OnDrift | None = None,
    lookback: int | None = None,
    all_partitions: bool = False,
    auto_filter: bool = True,
    checks: Sequence[Check] = (),
    ignore: str | Sequence[str] = (),
    merge_on: str | Sequence[str] = (),
    newest_by: str | Sequence[str] | None = None,
    delete_when: str | None = None,
    delete_missing: bool | None = None,
    unsafe_overwrite: bool | None = None,
) -> Callable[[F], F]:
    """Declare a function as a job; the function itself is unchanged.

    `inputs` maps its parameters to datasets: by name (bare, or `namespace:name`) where the project
    file declares them, else as a `Dataset`, with `window`, `offset`, `as_of`, `last`, `overlap` or
    `all_partitions` around it where the default does not hold. A further parameter annotated
    `RunContext` is given the run, one named `backfill_key` the key of a run that has one. It
    returns one DataFrame for `output`, or a dict with one for each of `outputs`. `calendar`,
    `depends_on_past` and the settings of `[[job.writes]]` mean what they mean in the project file,
    which takes precedence, as does the run spec of a planned run. `all_partitions` makes every
    input be read whole, without `auto_filter` the function filters for itself. Raises
    EntrypointError where parameters and inputs do not match.

    >>> @job(inputs={"flights": "flights_clean"}, output="flights_daily")
    ... def flights_daily(flights):
    ...     return flights
    >>> flights_daily("as it is")
    'as it is'
    """
    listed = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    written = (output,) if output is not None else listed
    bare = read_all if all_partitions else Read
    reads = {
        parameter: one if isinstance(one, Read) else bare(one)
        for parameter, one in (inputs or {}).items()
    }

    rules: dict[str, Any] = {
        "mode": mode,
        "on_empty": on_empty,
        "on_drift": on_drift,
        "lookback": lookback,
        "merge_on": (merge_on,) if isinstance(merge_on, str) else tuple(merge_on),
        "delete_when": delete_when,
        "delete_missing": delete_missing,
        "unsafe_overwrite": unsafe_overwrite,
    }

    def decorate(function: F) -> F:
        if not written:
            raise EntrypointError(f"job {function.__qualname__} declares no output")
        definition = JobDefinition(
            function=function,
            inputs=reads,
            writes=tuple(Write(dataset, **rules) for dataset in written),
            calendar=calendar,
            batch=batch,
            depends_on_past=depends_on_past,
            auto_filter=auto_filter,
            checks=tuple(checks),
            ignore=ignore,
            newest_by=newest_by,
            context_parameter=_context_parameter(function, reads),
            takes_key=KEY_COLUMN in set(inspect.signature(function).parameters) - set(reads),
        )
        setattr(function, _ATTRIBUTE, definition)
        return function

    return decorate


def definition_of(value: object) -> JobDefinition | None:
    """Return the job that a decorated function declares, None for anything else."""
    found = getattr(value, _ATTRIBUTE, None)
    return found if isinstance(found, JobDefinition) else None


def load_function(entrypoint: str) -> Callable[..., Any]:
    """Import what `module:function` names; raises EntrypointError."""
    module_name, separator, name = entrypoint.partition(":")
    if not separator or not name:
        raise EntrypointError(f"entrypoint {entrypoint!r} is not of the form module:function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EntrypointError(
            f"entrypoint {entrypoint!r}: no module {error.name!r}",
            hint="Start from the project's folder, or install the pipeline as a package.",
        ) from error
    function: object = getattr(module, name, None)
    if not callable(function):
        raise EntrypointError(f"entrypoint {entrypoint!r}: {module_name} has no function {name!r}")
    return function


def load_job(entrypoint: str) -> Job:
    """Return the job that an entrypoint names: `module:function`, `path/job.py` or `path/job.sql`.

    Files are searched for like modules. Raises EntrypointError, DeclarationError.
    """
    if entrypoint.endswith(".py"):
        return Script(_find(entrypoint))
    if entrypoint.endswith(".sql"):
        return load_query(_find(entrypoint))
    definition = definition_of(load_function(entrypoint))
    if definition is None:
        raise EntrypointError(
            f"{entrypoint!r} is not a job",
            hint="Decorate the function with @spark_runtime.job(...).",
        )
    return definition


def _find(entrypoint: str) -> Path:
    for folder in sys.path:
        if (path := Path(folder) / entrypoint).is_file():
            return path
    raise EntrypointError(
        f"entrypoint {entrypoint!r}: no such file",
        hint="Name it relative to the project's folder.",
    )


def check_outputs(definition: JobDefinition, spec: RunSpec) -> None:
    """Raise EntrypointError unless the job writes exactly the datasets of the run spec."""
    unmatched = [
        str(output.dataset)
        for output in spec.outputs
        if sum(output.dataset.matches(name) for name in definition.outputs) != 1
    ]
    if unmatched or len(spec.outputs) != len(definition.outputs):
        raise EntrypointError(
            f"{spec.job.entrypoint} writes {_names(definition.outputs)}, the run is to write "
            f"{_names(str(output.dataset) for output in spec.outputs)}",
            hint="Make the job's `output` and the lineage or [[job.writes]] agree.",
        )


def _context_parameter(function: Callable[..., Any], inputs: Mapping[str, Read]) -> str | None:
    context: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if name in inputs or name == KEY_COLUMN:
            continue
        if text.rpartition(".")[2] == RunContext.__name__:
            context = name
        elif parameter.default is inspect.Parameter.empty:
            raise EntrypointError(
                f"parameter {name!r} of {function.__qualname__} is not an input",
                hint="Add it to `inputs`, annotate it RunContext, or give it a default.",
            )
    missing = sorted(set(inputs) - set(inspect.signature(function).parameters))
    if missing:
        raise EntrypointError(f"{function.__qualname__} has no parameter {missing[0]!r}")
    return context


def _names(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
