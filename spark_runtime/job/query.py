"""Jobs that are a file of SQL: one query, whose result is the job's output.

--@ inputs = { orders = "orders" } --@ output = "orders_daily" --@ batch = "range" SELECT day,
count(*) AS orders FROM orders GROUP BY day

The text after `--@` is TOML with the arguments of `@job`; it may be omitted if the project file
declares the job's edges. An input is a view with the name given here, else with its own name. The
query may use `:backfill_key`, the instants `:start` and `:end`, and the run's parameters by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lineage_backfill.errors import ConfigError
from lineage_backfill.project.declarations import ReadDeclaration, WriteRules
from lineage_backfill.project.forms import Texts
from lineage_backfill.typed import Text, read
from spark_runtime.errors import EntrypointError
from spark_runtime.job.context import RunContext
from spark_runtime.job.datasets import Read, Write
from spark_runtime.job.scheduled import Batch
from spark_runtime.tables.values import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MARK = "--@"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header(WriteRules):
    """What the lines at the head of a file of SQL state."""

    inputs: Mapping[str, Text | ReadDeclaration] | None = None
    output: Text | None = None
    batch: Batch = "key"
    depends_on_past: bool | None = None
    auto_filter: bool = True
    ignore: Texts = ()
    newest_by: Texts = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A job that is one query; `inputs` maps views to inputs; None: all inputs of the run."""

    path: Path
    text: str
    inputs: Mapping[str, Read] | None = None
    writes: tuple[Write, ...] = ()
    batch: Batch = "key"
    depends_on_past: bool | None = None
    auto_filter: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    calendar: None = None

    @property
    def reads(self) -> tuple[Read, ...]:
        """The inputs that it declares."""
        return tuple((self.inputs or {}).values())

    def run(self, context: RunContext) -> None:
        """Run the query and write its result; raises EntrypointError if it is not a query."""
        with _views(context.spark, self._frames(context)):
            frame = self._result(context)
        context.write(frame, **self.options)

    def _frames(self, context: RunContext) -> dict[str, DataFrame | None]:
        inputs = self.inputs
        if inputs is None:
            inputs = {spec.dataset.name: Read(str(spec.dataset)) for spec in context.spec.inputs}
        return {
            view: context.read(str(read.dataset), auto_filter=self.auto_filter)
            for view, read in inputs.items()
        }

    def _result(self, context: RunContext) -> DataFrame:
        from pyspark.errors import ParseException

        try:
            # A subquery cannot change anything.
            text = self.text.rstrip().removesuffix(";")
            query = f"SELECT * FROM (\n{text}\n)"  # noqa: S608 (the project's own text)
            return context.spark.sql(query, args=_arguments(context) or None)
        except ParseException as error:
            raise EntrypointError(
                f"{self.path.name} is not a single query: {str(error).strip()}",
                hint="A file of SQL holds one SELECT.",
            ) from error


def load_query(path: Path) -> Query:
    """Return the job in a SQL file; raises ConfigError for an invalid header."""
    lines = path.read_text(encoding="utf-8").splitlines()
    head = "\n".join(line.strip().removeprefix(_MARK) for line in lines if _is_head(line))
    place = f"the lines {_MARK} of {path.name}"
    try:
        header = read(_Header, tomllib.loads(head), place)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{place} are not TOML: {error}") from error
    inputs = header.inputs
    rules = {one.name: getattr(header, one.name) for one in fields(WriteRules)}
    write = Write(header.output or "", **rules)
    options = {"ignore": header.ignore, "newest_by": header.newest_by, **write.options}
    return Query(
        path=path,
        text="\n".join("" if _is_head(line) else line for line in lines),
        inputs=None if inputs is None else {view: _read(one) for view, one in inputs.items()},
        writes=() if header.output is None else (write,),
        batch=header.batch,
        depends_on_past=header.depends_on_past,
        auto_filter=header.auto_filter,
        options={name: value for name, value in options.items() if value},
    )


def _is_head(line: str) -> bool:
    return line.strip().startswith(_MARK)


def _read(stated: str | ReadDeclaration) -> Read:
    if isinstance(stated, str):
        return Read(stated)
    space, name = stated.namespace, stated.dataset
    return Read(f"{space}:{name}" if space else name, stated)


def _arguments(context: RunContext) -> dict[str, Any]:
    named = dict(context.parameters)
    if any(key.start for key in context.keys):
        named["start"], named["end"] = context.interval
    return named


@contextmanager
def _views(spark: SparkSession, frames: Mapping[str, DataFrame | None]) -> Iterator[None]:
    """Create views of the frames that exist, by name."""
    try:
        for view, frame in frames.items():
            if frame is not None:
                frame.createOrReplaceTempView(quoted(view))
        yield
    finally:
        for view in frames:
            spark.catalog.dropTempView(view)
