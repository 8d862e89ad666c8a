"""Jobs that are a file of SQL: one query, whose result is the job's output.

    --@ inputs = { orders = "orders" }
    --@ output = "orders_daily"
    --@ batch = "range"
    SELECT day, count(*) AS orders FROM orders GROUP BY day

What stands behind `--@` is TOML and says what `@job` says; it may be left out where the project
file declares the edges of the job. An input is a view of the name that it is given here, else of
its own. The query may ask for `:backfill_key`, for the instants `:start` and `:end`, and for the
run's parameters by their names.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_runtime.context import RunContext
from spark_runtime.datasets import Read, Write
from spark_runtime.errors import DeclarationError, EntrypointError
from spark_runtime.project import WRITE, checked, members, read_edge
from spark_runtime.scheduled import Batch
from spark_runtime.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK = "--@"
_OPTIONS = ("ignore", "merge_on", "newest_by")
_KNOWN = ("inputs", "output", "batch", "auto_filter", *WRITE, *_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A job that is one query; `inputs` maps views to what they hold, None to all of the run's."""

    path: Path
    text: str
    inputs: Mapping[str, Read] | None = None
    writes: tuple[Write, ...] = ()
    batch: Batch = "key"
    auto_filter: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    calendar: None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """The inputs that it declares."""
        return tuple((self.inputs or {}).values())

    def run(self, context: RunContext) -> None:
        """Run the query and write its result; raises EntrypointError where it is no query."""
        with _views(context.spark, self._frames(context)):
            frame = self._result(context)
        context.write(frame, **self.options)

    def _frames(self, context: RunContext) -> dict[str, DataFrame | None]:
        inputs = self.inputs
        if inputs is None:
            inputs = {spec.dataset.name: Read(str(spec.dataset)) for spec in context.spec.inputs}
        return {
            view: context.read(
                str(read.dataset),
                all_partitions=read.how.mapping == "all",
                auto_filter=self.auto_filter,
            )
            for view, read in inputs.items()
        }

    def _result(self, context: RunContext) -> DataFrame:
        from pyspark.errors import ParseException

        try:
            # As a subquery it can be nothing that changes anything.
            query = f"SELECT * FROM (\n{self.text}\n)"  # noqa: S608 (the project's own text)
            return context.spark.sql(query, args=_arguments(context) or None)
        except ParseException as error:
            raise EntrypointError(
                f"{self.path.name} is not one query: {str(error).strip()}",
                hint="a file of SQL holds one SELECT, without a semicolon at its end",
            ) from error


def load_query(path: Path) -> Query:
    """Return the job that a file of SQL is; raises DeclarationError where its head is wrong."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = "\n".join(line.strip().removeprefix(_MARK) for line in lines if _is_head(line))
    try:
        said = checked(tomllib.loads(head), path.name)
    except tomllib.TOMLDecodeError as error:
        raise DeclarationError(f"the lines {_MARK} of {path.name} are no TOML: {error}") from error
    unknown = sorted(set(said) - set(_KNOWN))
    if unknown or said.get("batch", "key") not in ("key", "range"):
        raise DeclarationError(
            f"{path.name} says {unknown[0]!r}, which means nothing"
            if unknown
            else f"{path.name}: `batch` cannot be {said['batch']!r}",
            hint=f"it may say {', '.join(_KNOWN)}; batch is key or range",
        )
    inputs, output = said.get("inputs"), said.get("output")
    return Query(
        path=path,
        text="\n".join("" if _is_head(line) else line for line in lines),
        inputs=inputs and {view: _read(one, path.name) for view, one in inputs.items()},
        writes=() if output is None else (Write(output, **members(said, *WRITE)),),
        batch=said.get("batch", "key"),
        auto_filter=said.get("auto_filter", True),
        options=members(said, *_OPTIONS),
    )


def _is_head(line: str) -> bool:
    return line.strip().startswith(_MARK)


def _read(said: Any, place: str) -> Read:
    return Read(said) if isinstance(said, str) else read_edge(said, place)


def _arguments(context: RunContext) -> dict[str, Any]:
    named = dict(context.parameters)
    if any(key.start for key in context.keys):
        named["start"], named["end"] = context.interval
    return named


@contextmanager
def _views(spark: SparkSession, frames: Mapping[str, DataFrame | None]) -> Iterator[None]:
    """Let SQL see frames by name; what does not exist is not there."""
    try:
        for view, frame in frames.items():
            if frame is not None:
                frame.createOrReplaceTempView(quoted(view))
        yield
    finally:
        for view in frames:
            spark.catalog.dropTempView(view)
