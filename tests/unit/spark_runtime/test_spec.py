"""Run specs are read whole or refused by name; result files appear whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import lineage_backfill
from lineage_backfill.errors import SpecError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import (
    ErrorResult,
    InputResult,
    OutputResult,
    PartitionRead,
    PartitionResult,
    RunResult,
)
from spark_runtime import run_context
from spark_runtime.errors import EntrypointError
from spark_runtime.spec import load_spec, write_result

SCHEMAS = Path(lineage_backfill.__file__).parent / "runspec" / "schemas"


def test_a_spec_is_read_as_it_is_written(document: dict[str, Any]) -> None:
    spec = parse_spec(document)
    assert spec.job.name == JobRef("n", "days")
    assert spec.keys[0].start == datetime(2024, 1, 1, 5, tzinfo=UTC)
    (output,) = spec.outputs
    assert output.scope[0].values == {"day": "2024-01-01"}
    hours, names = spec.inputs
    assert hours.partitions is not None
    assert [partition.key for partition in hours.partitions] == ["2024-01-01T05"]
    assert (names.partitions, names.version, names.table) == (None, 3, "db.names")


def test_a_column_of_a_runtime_key_may_be_left_out(document: dict[str, Any]) -> None:
    document["outputs"][0]["scope"] = [{"key": "*", "values": {}}]
    spec = parse_spec(document)
    assert spec.outputs[0].scope[0].values == {}
    assert parse_spec(spec.to_dict()) == spec


def test_keys_may_lie_at_the_ends_of_all_calendars(document: dict[str, Any]) -> None:
    document["keys"][0].update(start="0001-01-01T00:00+00:00", end="9999-12-31T23:59+00:00")
    (key,) = parse_spec(document).keys
    assert key.start is not None
    assert key.end is not None
    assert (key.start.year, key.end.year) == (1, 9999)


def test_a_spec_is_written_as_it_was_read(document: dict[str, Any]) -> None:
    assert parse_spec(parse_spec(document).to_dict()) == parse_spec(document)


def output(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["outputs"][0].update(changes)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda d: d.update(schema_version=2), "schema_version is 2"),
        (lambda d: d.pop("token"), "run spec: `token` is missing"),
        (lambda d: d.update(attempt="1"), "run spec: `attempt` must be a whole number, not '1'"),
        (lambda d: d.update(attempt=True), "run spec: `attempt` must be a whole number, not true"),
        (lambda d: d.update(surprise=1), "run spec: unknown key `surprise`"),
        (lambda d: d["job"].pop("entrypoint"), "run spec: job: `entrypoint` is missing"),
        (
            lambda d: d["keys"][0].update(start="soon"),
            r"run spec: keys\[0\]: `start` is 'soon', which is not an instant",
        ),
        (lambda d: d["keys"][0].update(start="2024-01-01T00:00"), "has no UTC offset"),
        (output(scope=[]), "outputs: no partition at all"),
        (output(columns=["day", "DAY"]), "a column occurs twice"),
        (output(table="x"), r"outputs\[0\]: exactly one of `location` and `table`"),
        (output(location=None), r"outputs\[0\]: exactly one of `location` and `table`"),
        (
            output(mode="replace"),
            "`mode` is 'replace', but must be one of overwrite",
        ),
        (output(format="csv"), "`format` is 'csv', but must be one of delta, parquet"),
        (output(scope=[{"key": "k", "values": {}}]), r"scope\[0\].values: names \[\]"),
        (output(scope=[{"key": "*", "values": {"hour": "1"}}]), r"names \['hour'\]"),
        (
            output(columns=["day", "hour"], scope=[{"key": {"day": "*"}, "values": {}}]),
            r"names \[\]",
        ),
        (
            output(scope=[{"key": "k", "values": {"day": 1}}]),
            "`values.day` must be a string, not 1",
        ),
        (output(scope=[{"key": "k", "values": {"day": ""}}]), "cannot be told from NULL"),
        (
            output(scope=[{"key": "k", "values": {"day": "__HIVE_DEFAULT_PARTITION__"}}]),
            "cannot be told from NULL",
        ),
        (lambda d: d.update(inputs={}), "run spec: `inputs` must be a list of objects"),
        (lambda d: d["inputs"].append(3), r"`inputs\[2\]` must be an object, not 3"),
    ],
)
def test_what_is_wrong_with_a_spec_is_said_with_its_place(
    document: dict[str, Any], spoil: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    spoil(document)
    with pytest.raises(SpecError, match=complaint):
        parse_spec(document)


def test_the_column_of_an_open_dimension_may_be_left_out(document: dict[str, Any]) -> None:
    keys: list[Any] = [{"day": "2024-01-01", "region": "*"}, {"day": "*", "region": "*"}, "*"]
    values: list[dict[str, str]] = [{"day": "2024-01-01"}, {}, {"day": "*"}]
    scope = [{"key": key, "values": told} for key, told in zip(keys, values, strict=True)]
    output(columns=["day", "region"], scope=scope)(document)
    assert [part.values for part in parse_spec(document).outputs[0].scope] == values


def test_files_that_are_no_specs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_spec(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"schema_version":')
    with pytest.raises(SpecError, match="is not JSON"):
        load_spec(tmp_path / "half.json")


def test_the_published_schema_is_that_of_the_parser(document: dict[str, Any]) -> None:
    schema = json.loads((SCHEMAS / "run_spec.schema.json").read_text())
    jsonschema.validate(document, schema)
    for name in schema["required"]:
        with pytest.raises(SpecError):
            parse_spec({key: value for key, value in document.items() if key != name})


def result(error: ErrorResult | None) -> RunResult:
    part = PartitionResult(
        key="k",
        rows_before=1,
        rows=None,
        fingerprint_before=None,
        fingerprint="f",
        emptied=False,
        values={"day": "k"} if error else None,
        within=("*",) if error else None,
    )
    name = DatasetRef("n", "d")
    return RunResult(
        run_id="r",
        attempt=1,
        token="t",
        state="failed" if error else "succeeded",
        outputs=(OutputResult(dataset=name, version_before=1, version=2, partitions=(part,)),),
        inputs=(
            InputResult(
                dataset=name,
                version=1,
                partitions=(
                    PartitionRead(key="k", fingerprint=None),
                    PartitionRead(key="day=NULL", fingerprint="f", values={"day": None}),
                ),
                types={"day": "date"},
            ),
            InputResult(dataset=name, version=None, partitions=()),
        ),
        error=error,
        started_at=datetime(2024, 1, 1, tzinfo=UTC),
        ended_at=datetime(2024, 1, 1, 0, 1, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "error", [None, ErrorResult(class_name="ValueError", message="é", transient=True)]
)
def test_the_result_file_is_what_its_schema_says(tmp_path: Path, error: ErrorResult | None) -> None:
    path = tmp_path / "new" / "result.json"
    write_result(path, result(error))
    written = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.validate(written, json.loads((SCHEMAS / "result.schema.json").read_text()))
    assert written["started_at"] == "2024-01-01T00:00:00Z"
    assert [one.get("values") for one in written["inputs"][0]["partitions"]] == [
        None,
        {"day": None},
    ]
    assert "values" not in written["inputs"][0]["partitions"][0]
    assert [one.get("types", "untold") for one in written["inputs"]] == [{"day": "date"}, "untold"]
    if error is not None:
        assert written["error"] == {"class": "ValueError", "message": "é", "transient": True}
    assert [entry.name for entry in path.parent.iterdir()] == ["result.json"]


def test_a_result_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    bad = result(None)
    object.__setattr__(bad, "token", object())
    with pytest.raises(TypeError):
        write_result(path, bad)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_a_script_does_not_run_again_what_it_is_to_undo(
    document: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(document | {"undo": ["t-0"]}))
    with pytest.raises(EntrypointError, match="a script cannot undo what it wrote"):
        run_context(arguments=["--spec", str(path)])
