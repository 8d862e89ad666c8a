"""The decorator that turns a function over DataFrames into a job."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from spark_runtime.checks import Check
from spark_runtime.context import RunContext
from spark_runtime.errors import EntrypointError
from spark_runtime.spec import RunSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__lineage_backfill_job__"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """A job as its function declares it.

    `inputs` maps parameter names to dataset names, `batch` says whether several keys may be
    computed at once ("range") or only one by one ("key"), `checks` guard its outputs before they
    are published, and columns in `ignore` do not count when contents are compared. Outputs
    of mode "merge" are merged by the columns `merge_on`, the greatest `newest_by` wins.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, str]
    outputs: tuple[str, ...]
    batch: Literal["key", "range"] = "key"
    checks: tuple[Check, ...] = ()
    ignore: tuple[str, ...] = ()
    merge_on: tuple[str, ...] = ()
    newest_by: str | None = None
    context_parameter: str | None = None

    def call(self, context: RunContext) -> dict[str, DataFrame]:
        """Call the function with its inputs; return one DataFrame per declared output."""
        arguments: dict[str, Any] = {
            parameter: context.read(dataset) for parameter, dataset in self.inputs.items()
        }
        if self.context_parameter is not None:
            arguments[self.context_parameter] = context
        returned = self.function(**arguments)
        frames = returned if isinstance(returned, dict) else {self.outputs[0]: returned}
        if set(frames) != set(self.outputs):
            raise EntrypointError(
                f"{self.function.__qualname__} returned {_names(frames)}, "
                f"its outputs are {_names(self.outputs)}",
                hint="return one DataFrame, or a dict with one for each of `outputs`",
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
    inputs: Mapping[str, str] | None = None,
    output: str | None = None,
    outputs: Sequence[str] = (),
    batch: Literal["key", "range"] = "key",
    checks: Sequence[Check] = (),
    ignore: Sequence[str] = (),
    merge_on: Sequence[str] = (),
    newest_by: str | None = None,
) -> Callable[[F], F]:
    """Declare a function as a job; the function itself stays as it is.

    `inputs` maps its parameters to dataset names (bare, or `namespace:name`); a further parameter
    annotated `RunContext` is given the run. It returns one DataFrame for `output`, or a dict with
    one for each of `outputs`. Raises EntrypointError where parameters and inputs do not match.

    >>> @job(inputs={"flights": "flights_clean"}, output="flights_daily")
    ... def flights_daily(flights):
    ...     return flights
    >>> flights_daily("as it is")
    'as it is'
    """
    names = (output,) if output is not None else tuple(outputs)

    def decorate(function: F) -> F:
        if not names:
            raise EntrypointError(f"job {function.__qualname__} declares no output")
        definition = JobDefinition(
            function=function,
            inputs=dict(inputs or {}),
            outputs=names,
            batch=batch,
            checks=tuple(checks),
            ignore=tuple(ignore),
            merge_on=tuple(merge_on),
            newest_by=newest_by,
            context_parameter=_context_parameter(function, inputs or {}),
        )
        setattr(function, _ATTRIBUTE, definition)
        return function

    return decorate


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
            hint="start from the project's folder, or install the pipeline as a package",
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise EntrypointError(f"entrypoint {entrypoint!r}: {module_name} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def load_job(entrypoint: str) -> JobDefinition:
    """Return the job that `module:function` names; raises EntrypointError."""
    definition = getattr(load_function(entrypoint), _ATTRIBUTE, None)
    if not isinstance(definition, JobDefinition):
        raise EntrypointError(
            f"{entrypoint!r} is no job", hint="decorate the function with @spark_runtime.job(...)"
        )
    return definition


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
            hint="make the job's `output` and the lineage or [[job.writes]] agree",
        )


def _context_parameter(function: Callable[..., Any], inputs: Mapping[str, str]) -> str | None:
    context: str | None = None
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        if name in inputs:
            continue
        if text.rpartition(".")[2] == RunContext.__name__:
            context = name
        elif parameter.default is inspect.Parameter.empty:
            raise EntrypointError(
                f"parameter {name!r} of {function.__qualname__} is no input",
                hint="add it to `inputs`, annotate it RunContext, or give it a default",
            )
    missing = sorted(set(inputs) - set(inspect.signature(function).parameters))
    if missing:
        raise EntrypointError(f"{function.__qualname__} has no parameter {missing[0]!r}")
    return context


def _names(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
