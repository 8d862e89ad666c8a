"""Options: dataclasses become options, and the words on the line become a request."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from lineage_backfill.cli.options import (
    LineageOptions,
    RequestOptions,
    SourceOptions,
    takes_options,
)
from lineage_backfill.cli.requests import job_and_keys, load_request, read_request
from lineage_backfill.cli.values import read_duration, read_now, read_parameters
from lineage_backfill.errors import AmbiguousNameError, UnknownNameError, UsageError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.text import KeySet
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import ChangedDataset, ChangedJob
from lineage_backfill.project.declarations import (
    Declarations,
    JobDeclaration,
    WriteDeclaration,
)
from lineage_backfill.workspace.named import NameLookup

RAW, CLEAN = DatasetRef("shop", "raw"), DatasetRef("shop", "clean")
SNAPSHOT = LineageSnapshot.of(
    [
        JobNode(ref=JobRef("shop", "cleaning"), reads=(RAW,), writes=(CLEAN,)),
        JobNode(ref=JobRef("other", "cleaning"), reads=(DatasetRef("other", "x:y/z"),)),
    ]
)
DECLARATIONS = Declarations(namespace="shop")


def resolver(
    declarations: Declarations = DECLARATIONS, snapshot: LineageSnapshot = SNAPSHOT
) -> Resolver:
    return Resolver(snapshot, declarations, now=datetime(2024, 7, 1, tzinfo=UTC))


def test_a_command_takes_dataclasses_whole() -> None:
    app = typer.Typer()
    seen: list[object] = []

    @app.command()
    @takes_options
    def verb(
        request: RequestOptions,
        source: SourceOptions,
        names: Annotated[list[str] | None, typer.Argument()] = None,
        loud: bool = False,
    ) -> None:
        """Say it."""
        seen.extend((request, source, names, loud))

    arguments = ["a", "b", "--from", "1", "--loud", "--select", "x+", "--select", "y", "--exact"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert seen == [
        RequestOptions(from_="1", select=["x+", "y"], exact=True),
        SourceOptions(),
        ["a", "b"],
        True,
    ]


def test_lineage_is_read_as_the_options_say() -> None:
    given = LineageOptions(marquez="http://localhost:5000")
    lineage = given.project(None, search=False).lineage
    assert lineage.marquez == "http://localhost:5000"
    assert lineage.cache
    assert not LineageOptions(no_cache=True).project(None, search=False).lineage.cache


def test_nothing_given_is_nothing_given() -> None:
    assert not RequestOptions().is_given
    assert RequestOptions(depth=1).is_given


CASES = [
    ("a range", {"from_": "1", "to": "3"}, ("1..3",)),
    ("no end: to the newest key", {"from_": "1"}, ("1..",)),
    ("a set", {"partitions": "1, 3..4"}, ("1", "3..4")),
    ("no keys: an unpartitioned dataset", {}, None),
]


@pytest.mark.parametrize(("what", "options", "keys"), CASES, ids=[case[0] for case in CASES])
def test_keys(what: str, options: dict[str, Any], keys: KeySet | None) -> None:
    request = read_request(["raw"], RequestOptions(**options), resolver())
    assert request.changed == (ChangedDataset(dataset=RAW, keys=keys),)


def test_keys_from_a_file(tmp_path: Path) -> None:
    boxes = [{"day": ["2024-06-01..2024-06-03"], "region": ["eu"]}]
    (tmp_path / "keys.json").write_text(json.dumps(boxes))
    options = RequestOptions(partitions=f"@{tmp_path / 'keys.json'}")
    request = read_request(["raw"], options, resolver())
    assert request.changed[0].keys == tuple(boxes)


def test_the_whole_request_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    raw, cleaning = {"namespace": "shop", "name": "raw"}, {"namespace": "other", "name": "cleaning"}
    file.write_text(
        json.dumps(
            {
                "changed": [{"dataset": raw, "partitions": ["1"]}, {"dataset": raw}],
                "jobs": [{"job": cleaning, "partitions": ["2..3"]}],
            }
        )
    )
    request = load_request([], RequestOptions(request=file))
    assert request is not None
    request = read_request([], RequestOptions(request=file), resolver(), request)
    assert request.changed == (
        ChangedDataset(dataset=RAW, keys=("1",)),
        ChangedDataset(dataset=RAW, keys=None),
    )
    assert request.jobs == (ChangedJob(job=JobRef("other", "cleaning"), keys=("2..3",)),)


def test_all_else_is_passed_on() -> None:
    options = RequestOptions(
        job=["cleaning"],
        columns=["price, tax", "id"],
        exclude=["tag:slow"],
        depth=2,
        reverse=True,
        allow_protected=True,
        allow_max_runs=True,
    )
    request = read_request([], options, resolver())
    assert request.jobs == (ChangedJob(job=JobRef("shop", "cleaning"), keys=None),)
    assert request.columns == ("price", "tax", "id")
    assert (request.exclude, request.depth, request.reverse) == (("tag:slow",), 2, True)
    assert request.allow == {"protected", "max-runs"}


REFUSED = [
    ("nothing named", [], {}, "no changed dataset or job is named"),
    ("two ways to say the keys", ["raw"], {"from_": "1", "partitions": "2"}, "both"),
    ("an end without a beginning", ["raw"], {"to": "2"}, "--to needs --from"),
    ("a request file and a dataset", ["raw"], {"request": Path("x.json")}, "cannot be combined"),
    ("a file that is not there", ["raw"], {"partitions": "@nowhere.json"}, "cannot be read"),
]


@pytest.mark.parametrize(
    ("what", "datasets", "options", "message"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_refused(what: str, datasets: list[str], options: dict[str, Any], message: str) -> None:
    given = RequestOptions(**options)
    with pytest.raises(UsageError, match=message):
        read_request(datasets, given, resolver(), load_request(datasets, given))


@pytest.mark.parametrize(
    "document",
    [
        "[]",
        '{"roots": []}',
        '{"changed": ["raw"]}',
        '{"changed": [{"dataset": "raw"}]}',
        '{"changed": [{"dataset": {"namespace": "a", "name": "b"}, "partitions": "1"}]}',
        "{",
    ],
)
def test_request_files_that_are_none(tmp_path: Path, document: str) -> None:
    file = tmp_path / "request.json"
    file.write_text(document)
    with pytest.raises(UsageError, match=r"request\.json"):
        load_request([], RequestOptions(request=file))


def test_names_are_matched_never_split() -> None:
    request = read_request(["x:y/z"], RequestOptions(), resolver())
    assert request.changed[0].dataset == DatasetRef("other", "x:y/z")
    with pytest.raises(UnknownNameError):
        read_request(["rwa"], RequestOptions(), resolver())
    with pytest.raises(AmbiguousNameError):
        read_request([], RequestOptions(job=["cleaning"]), resolver(Declarations()))


JOBS = LineageSnapshot.of([JobNode(ref=JobRef("shop", name)) for name in ("a", "a@b", "c:d")])
WHY = [
    ("a", "a", None),
    ("a@2024-01-01..2024-01-03,2024-02-01", "a", ("2024-01-01..2024-01-03", "2024-02-01")),
    ("a@b", "a@b", None),  # a name that holds an @ is not split
    ("a@b@k", "a@b", ("k",)),
    ("a@day=1/region=x%2Cy", "a", ({"day": ["1"], "region": ["x,y"]},)),
    ("shop:c:d@*", "c:d", ("*",)),
]


@pytest.mark.parametrize(("text", "job", "keys"), WHY, ids=[case[0] for case in WHY])
def test_a_job_and_its_keys(text: str, job: str, keys: KeySet | None) -> None:
    names = NameLookup(resolver(snapshot=JOBS))
    assert job_and_keys(names, text) == (JobRef("shop", job), keys)


def test_a_dataset_given_as_a_job_names_its_writers() -> None:
    node = JobNode(ref=JobRef("shop", "load"), reads=(), writes=(DatasetRef("lake", "orders"),))
    names = NameLookup(resolver(snapshot=LineageSnapshot.of([node])))
    with pytest.raises(UsageError, match="'orders' is a dataset; a job is expected") as raised:
        names.job("orders")
    assert raised.value.hint == "It is written by shop:load."


def test_a_dataset_that_only_the_project_file_knows_names_its_writers_too() -> None:
    load = JobDeclaration(
        name="load", namespace="shop", writes=(WriteDeclaration(dataset="orders"),)
    )
    names = NameLookup(resolver(Declarations(namespace="shop", jobs=(load,))))
    with pytest.raises(UsageError, match="'orders' is a dataset; a job is expected") as raised:
        names.job("orders")
    assert raised.value.hint == "It is written by shop:load."


@pytest.mark.parametrize("text", ["b", "b@a", "a@", "@", ""])
def test_a_job_that_nobody_knows_or_a_key_that_is_none(text: str) -> None:
    with pytest.raises(UsageError):
        job_and_keys(NameLookup(resolver(snapshot=JOBS)), text)


def test_keys_of_a_job_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('["1", "3..4"]')
    found = job_and_keys(NameLookup(resolver(snapshot=JOBS)), f"a@@{tmp_path / 'keys.json'}")
    assert found == (JobRef("shop", "a"), ("1", "3..4"))


def test_instants_have_an_offset() -> None:
    assert read_now("2024-04-01T02:00:00+02:00") == datetime(2024, 4, 1, tzinfo=UTC)
    assert read_now(None).tzinfo is UTC
    for text in ("2024-04-01T00:00:00", "tomorrow"):
        with pytest.raises(UsageError):
            read_now(text)


def test_durations() -> None:
    assert read_duration("90s") == timedelta(seconds=90)
    assert read_duration("1.5h") == timedelta(minutes=90)
    assert read_duration(None) is None
    for text in ("90", "-1s", "soon"):
        with pytest.raises(UsageError):
            read_duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
        ("", ""),
        ("a=b", "a=b"),
        ("NaN", "NaN"),  # only Python's JSON has it: no database takes the run spec
        ("[-Infinity]", "[-Infinity]"),
        ("1e999", "1e999"),
    ],
)
def test_a_parameter_is_json_that_every_program_reads_or_else_a_string(
    text: str, value: Any
) -> None:
    assert read_parameters([f"x={text}"]) == {"x": value}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["x=1", "y=1", "x=2"], "--parameter x is given twice"),
        (["x=1", "x=1"], "--parameter x is given twice"),
        (['x={"a": 1, "a": 2}'], "--parameter x cannot be used: 'a' occurs twice"),
        (['x=[{"b": {"a": 1, "a": 1}}]'], "--parameter x cannot be used: 'a' occurs twice"),
        (["x=" + "[" * 100_000], "--parameter x cannot be used: maximum recursion"),
        (["=1"], "--parameter number 1 has no name"),
        (["y=1", "x"], "--parameter number 2 has no name"),
    ],
)
def test_a_parameter_that_could_mean_two_things_is_refused(given: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_parameters(given)
