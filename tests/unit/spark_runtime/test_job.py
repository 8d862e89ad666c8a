"""Jobs are plain functions; what does not fit is said before Spark does anything."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.errors import EntrypointError
from spark_runtime.job.context import RunContext
from spark_runtime.job.datasets import all_partitions
from spark_runtime.job.decorator import JobDefinition, check_outputs, job, load_job


@job(inputs={"a": "x", "b": "n:y"}, output="days", batch="range")
def days(a: Any, b: Any, context: RunContext, scale: int = 2) -> Any:
    return a, b, context, scale


def test_a_decorated_function_stays_a_function() -> None:
    context: Any = "the run"
    assert days(1, 2, context) == (1, 2, context, 2)


def test_a_job_is_found_by_its_entrypoint(document: dict[str, Any]) -> None:
    sys.modules["jobs_under_test"] = sys.modules[__name__]
    definition = load_job("jobs_under_test:days")
    assert isinstance(definition, JobDefinition)
    assert [str(read.dataset) for read in definition.reads] == ["x", "n:y"]
    assert definition.context_parameter == "context"
    check_outputs(definition, parse_spec(document))
    document["outputs"][0]["dataset"]["name"] = "weeks"
    with pytest.raises(EntrypointError, match="writes 'days', the run is to write 'n:weeks'"):
        check_outputs(definition, parse_spec(document))


@pytest.mark.parametrize(
    ("entrypoint", "complaint"),
    [
        ("no_colon", "not of the form module:function"),
        ("no_such_module:f", "no module 'no_such_module'"),
        ("json:no_such_function", "has no function 'no_such_function'"),
        ("json:loads", "is not a job"),
    ],
)
def test_entrypoints_that_name_no_job(entrypoint: str, complaint: str) -> None:
    with pytest.raises(EntrypointError, match=complaint):
        load_job(entrypoint)


def test_several_keys_are_refused_by_the_job_that_needs_one(document: dict[str, Any]) -> None:
    # The project file may let any job compute several keys at once.
    document["keys"] = [{"key": "2024-01-01"}, {"key": "2024-01-02"}]
    context = RunContext(cast(Any, SimpleNamespace(spec=parse_spec(document))))

    def totals(backfill_key: str) -> Any:
        return backfill_key

    keyed = job(output="totals")(totals).__lineage_backfill_job__  # type: ignore[attr-defined]
    with pytest.raises(EntrypointError, match="2 keys, and the job needs exactly one"):
        keyed.call(context)


def test_a_parameter_named_backfill_key_is_given_the_key() -> None:
    def totals(orders: Any, backfill_key: str) -> Any:
        return orders, backfill_key

    decorated = job(inputs={"orders": "orders"}, output="totals")(totals)
    definition = decorated.__lineage_backfill_job__  # type: ignore[attr-defined]
    assert (definition.takes_key, definition.context_parameter) == (True, None)
    # Unless it is an input of that name.
    own = job(inputs={"orders": "orders", "backfill_key": "keys"}, output="totals")(totals)
    assert not own.__lineage_backfill_job__.takes_key  # type: ignore[attr-defined]


def test_a_job_that_forgets_that_an_input_may_have_no_table_fails_with_the_reason() -> None:
    class Context:
        def read(self, dataset: str, **_: Any) -> Any:
            return None if dataset == "balance" else object()

    def balance(orders: Any, before: Any) -> Any:
        return before.select("x") if orders else orders.select("x")

    decorated = job(inputs={"orders": "orders", "before": "balance"}, output="balance")(balance)
    definition = decorated.__lineage_backfill_job__  # type: ignore[attr-defined]
    with pytest.raises(EntrypointError, match="`before` is None, as the table does not exist yet"):
        definition.call(Context())
    alone = job(inputs={"orders": "orders"}, output="totals")(lambda orders: orders.select("x"))
    with pytest.raises(AttributeError):
        alone.__lineage_backfill_job__.call(Context())  # type: ignore[attr-defined]


def test_the_run_decides_which_partitions_an_input_has_whatever_the_code_states() -> None:
    asked: list[dict[str, Any]] = []

    class Context:
        def read(self, dataset: str, **how: Any) -> Any:
            asked.append(how)

    def totals(orders: Any) -> dict[str, Any]:
        return {}

    decorated = job(inputs={"orders": all_partitions("orders")}, output="totals")(totals)
    with pytest.raises(EntrypointError, match="returned nothing"):
        decorated.__lineage_backfill_job__.call(Context())  # type: ignore[attr-defined]
    assert asked == [{"auto_filter": True}]


def test_outputs_may_be_one_bare_name() -> None:
    def totals() -> None:
        pass

    definition = job(outputs="totals")(totals).__lineage_backfill_job__  # type: ignore[attr-defined]
    assert definition.outputs == ("totals",)


def test_declarations_that_do_not_fit_the_function() -> None:
    def one(a: Any) -> Any:
        return a

    with pytest.raises(EntrypointError, match=r"parameter 'a' of .* is not an input"):
        job(output="x")(one)
    with pytest.raises(EntrypointError, match="has no parameter 'b'"):
        job(inputs={"a": "x", "b": "y"}, output="x")(one)
    with pytest.raises(EntrypointError, match="declares no output"):
        job(inputs={"a": "x"})(one)


def test_the_runtime_imports_nothing_of_others() -> None:
    # Importing it is what each worker does first, and what is heavy is imported where it is used.
    program = """
import sys
import spark_runtime, spark_runtime.__main__
foreign = {"pyspark", "delta", "openlineage", "requests", "typer", "networkx", "sqlalchemy",
           "pydantic", "msgspec", "platformdirs"} & set(sys.modules)
print(sorted(foreign))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
