"""The tool and a scheduled run read one project file alike: same refusals, same words."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineage_backfill.errors import BackfillError
from lineage_backfill.partitions.schedule import newest_key
from lineage_backfill.partitions.text import KeySet, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedDataset, ChangedJob, Request
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.runspec.values import RunSpec
from lineage_backfill.workspace.configuration import load_project
from spark_runtime import configuration
from spark_runtime.errors import NothingToRunError
from spark_runtime.job.datasets import Read, Write
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from tests.unit.planning.world import NOW, dataset, find, job, lineage

RAW = {"grain": '"day"', "start": '"2024-03-01"', "column": '"day"', "location": '"raw"'}
OUT = {**RAW, "location": '"out"'}
JOB = {"name": '"j"', "entrypoint": '"jobs:j"'}
Table = Mapping[str, str]


def project(
    raw: Table, out: Table, of_job: Table, reads: Table, writes: Table, more: str = ""
) -> str:
    """Return a project file of two datasets, the job between them and its edges."""
    tables = [
        ("[project]", {"namespace": '"w"'}),
        ("[[dataset]]", {"name": '"raw"', **raw}),
        ("[[dataset]]", {"name": '"out"', **out}),
        ("[[job]]", {**JOB, **of_job}),
        ("[[job.reads]]", reads),
        ("[[job.writes]]", writes),
    ]
    text = [
        "\n".join([head, *(f"{key} = {value}" for key, value in table.items())])
        for head, table in tables
        if table
    ]
    return "\n\n".join([*text, more])


def planned(folder: Path) -> str | list[RunSpec]:
    """Return what the planned runs of the newest keys are told, or why the tool refuses."""
    edges = lineage("raw > j > out")
    try:
        declared = load_project(folder, environ={}, user_file=folder / "none").declarations
        resolver = Resolver(edges, declared, now=NOW)
        run_keys = _newest(resolver.job(job("j")).calendar)
        changed = ChangedDataset(
            dataset=dataset("raw"), keys=_newest(resolver.calendar(dataset("raw")))
        )
        request = Request(changed=(changed,), jobs=(ChangedJob(job=job("j"), keys=run_keys),))
        plan = build_plan(request, edges, declared, now=NOW)
        if find(plan, "j").status == "blocked":
            return str(find(plan, "j").reason.get("text", "left stale"))
        specs = RunSpecs(resolver, backfill_id="b", root=folder)
        return [parse_spec(specs(run, 1, "t", folder / "result.json")) for run in plan.runs or ()]
    except BackfillError as error:
        return error.message


def _newest(calendar: Any) -> KeySet | None:
    if calendar is None or calendar.is_whole:
        return None
    return render(calendar, newest_key(calendar) if calendar.time else calendar.existing)


def scheduled(folder: Path, keys: Sequence[str] = ()) -> str | list[RunSpec]:
    """Return the run specs of scheduled runs of keys, or of the newest, or the refusal."""
    try:
        return started(folder, StartRequest(keys=keys, exact=bool(keys)), batch="key")
    except NothingToRunError:
        return []
    except BackfillError as error:
        return error.message.removeprefix("job w:j: ")


def started(folder: Path, request: StartRequest, **how: Any) -> list[RunSpec]:
    """Return the run specs of a request without a plan."""
    found = configuration.load_project(folder)
    edges: dict[str, Any] = {"reads": [Read("raw")], "writes": [Write("out")]}
    job = declare(found, "j", entrypoint="jobs:j", **edges)
    return run_specs(job, found, request, NOW, **how)


def outcome(text: str) -> str | None:
    """Return the one refusal of both sides; runs of one key are told the same."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "lineage-backfill.toml").write_text(text, encoding="utf-8")
        ours, theirs = planned(folder), scheduled(folder)
    if isinstance(ours, str) or isinstance(theirs, str):
        assert ours == theirs, text
        return str(ours)
    runs = {run.partitions: run for run in ours}
    for run in theirs:
        if same := runs.get(run.partitions):
            assert (run.keys, run.outputs) == (same.keys, same.outputs), text
            assert set(map(repr, run.inputs)) == set(map(repr, same.inputs)), text
    return None


PRODUCT = {
    "grain": "",
    "start": "",
    "column": "",
    "dimensions": '[{ name = "day", grain = "day", start = "2024-03-01" }, '
    '{ name = "region", keys = ["eu", "us"] }]',
}
DS_TWICE = (
    '[{ name = "day", grain = "day", start = "2024-03-01", column = "ds" }, '
    '{ name = "region", keys = ["eu", "us"], column = "DS" }]'
)
MERGE = {"mode": '"merge"'}
WRONG = {
    "befor": ({}, {}, {}, {"mapping": '"window"', "befor": "6"}, {}),
    "before = -2": ({}, {}, {}, {"mapping": '"window"', "before": "-2"}, {}),
    "before = 10**6": ({}, {}, {}, {"mapping": '"window"', "before": "1000000"}, {}),
    "gaurd": ({}, {}, {}, {"on_missing": '"gaurd"'}, {}),
    "apend": ({}, {}, {}, {}, {"mode": '"apend"'}),
    "kep": ({}, {}, {}, {}, {"on_empty": '"kep"'}),
    "lookback = -1": ({}, {}, {}, {}, {"lookback": "-1"}),
    "data_lag = -2": ({"data_lag": "-2"}, {}, {}, {}, {}),
    "grain dya": ({"grain": '"dya"'}, {}, {}, {}, {}),
    "zone": ({}, {"zone": '"Mars"'}, {}, {}, {}),
    "coarser": ({}, {"grain": '"month"', "start": '"2024-01-01"'}, {"grain": '"day"'}, {}, {}),
    "full": ({}, {}, {}, {}, {"mode": '"full"'}),
    "no columns": ({}, {"column": "", "columns": "{}"}, {}, {}, {}),
    "no columns in a zone whose clocks change": (
        {},
        {"column": "", "zone": '"America/New_York"'},
        {},
        {},
        {},
    ),
    "not told apart": ({}, {"column": "", "columns": '{ p = "%Y-%m" }'}, {}, {}, {}),
    "no calendar": ({"grain": ""}, {}, {}, {}, {}),
    "no location": ({}, {"location": ""}, {}, {}, {}),
    "identity": (
        {"grain": '"hour"', "start": '"2024-03-01T00"'},
        {},
        {},
        {"mapping": '"identity"'},
        {},
    ),
    "format csv": ({"format": '"csv"'}, {}, {}, {}, {}),
    "format Delta": ({}, {"format": '"Delta"'}, {}, {}, {}),
    "columns that differ in case": (
        {},
        {"column": "", "columns": '{ p = "%Y-%m-%d", P = "%d" }'},
        {},
        {},
        {},
    ),
    "a column of two dimensions": ({}, {**PRODUCT, "dimensions": DS_TWICE}, {}, {}, MERGE),
    "a column of two dimensions of an input": (
        {**PRODUCT, "dimensions": DS_TWICE},
        {},
        {},
        {},
        {},
    ),
    "a dimension's column in the format of a date": (
        {},
        {**PRODUCT, "columns": '{ day = "%F", region = "%Y" }'},
        {},
        {},
        {},
    ),
    "an input column without text": ({"column": "", "columns": '{ p = "" }'}, {}, {}, {}, {}),
    "empty window": ({}, {}, {}, {"mapping": '"window"', "by": "1"}, {}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_refused_by_both_in_the_same_words(case: str) -> None:
    raw, out, of_job, reads, writes = WRONG[case]
    reads = {"dataset": '"raw"', **reads} if reads else {}
    writes = {"dataset": '"out"', **writes} if writes else {}
    tables = ({**RAW, **raw}, {**OUT, **out}, of_job, reads, writes)
    raw, out, of_job, reads, writes = [
        {key: value for key, value in table.items() if value} for table in tables
    ]
    assert outcome(project(raw, out, of_job, reads, writes))


HOURS = """
[[job.writes]]
dataset = "hours"

[[dataset]]
name = "hours"
grain = "hour"
start = "2024-03-01T00"
column = "h"
location = "h"
"""
OWN = '[[job.reads]]\ndataset = "out"\n'


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", False),
        ('[[dataset]]\nname = "out"\ngrain = "day"', True),  # declared twice
        ('[[job.reads]]\ndataset = "raw"\n[[job.reads]]\ndataset = "raw"', True),
        (OWN, True),  # how it reads its own output is not declared
        (OWN + 'mapping = "offset"\nby = -1', False),
        (OWN + 'mapping = "offset"\nby = 1', True),
        (HOURS, True),  # outputs with different calendars
        ("surprise = 1", True),
    ],
)
def test_what_contradicts_itself_is_refused_by_both(more: str, refused: bool) -> None:
    found = outcome(project(RAW, OUT, {}, {}, {}, more))
    assert bool(found) is refused, found


@pytest.mark.parametrize("word", ["guard", "fail", "read"])
def test_what_is_missing_counts_alike_on_both_sides(tmp_path: Path, word: str) -> None:
    text = project(RAW, OUT, {}, {"dataset": '"raw"', "on_missing": f'"{word}"'}, {})
    assert outcome(text) is None
    (tmp_path / "lineage-backfill.toml").write_text(text)
    for runs in (planned(tmp_path), scheduled(tmp_path)):
        assert not isinstance(runs, str)
        assert {source.on_missing for run in runs for source in run.inputs} == {word}


def test_a_named_day_that_has_only_begun_reads_its_own_input(tmp_path: Path) -> None:
    text = project(RAW, OUT, {}, {}, {"dataset": '"out"', "lookback": "1"})
    (tmp_path / "lineage-backfill.toml").write_text(text)
    (run,) = started(tmp_path, StartRequest(keys=["2024-04-01"]))
    days = ["2024-03-31", "2024-04-01"]
    assert [part.key for part in run.inputs[0].partitions or ()] == days
    assert [part.key for part in run.outputs[0].scope] == days


def test_an_input_that_nothing_declares_is_refused_by_both(tmp_path: Path) -> None:
    text = project(RAW, OUT, {}, {}, {}, '[[job.reads]]\ndataset = "unheard_of"')
    (tmp_path / "lineage-backfill.toml").write_text(text)
    # The tool would read it whole while it is not stale, and then does not know where it is.
    for refused in (planned(tmp_path), scheduled(tmp_path)):
        assert isinstance(refused, str)
        assert "unheard_of" in refused


def test_what_an_input_no_longer_holds_is_refused_by_both(tmp_path: Path) -> None:
    month = {**OUT, "grain": '"month"', "start": '"2024-01-01"'}
    text = project({**RAW, "retention": "30"}, month, {}, {}, {})
    (tmp_path / "lineage-backfill.toml").write_text(text)
    assert planned(tmp_path) == "left stale"  # a plan names the keys, and --allow-expired
    assert "past its retention" in str(scheduled(tmp_path))


CALENDARS: list[Table] = [
    {"grain": '"day"', "start": '"2024-03-01"'},
    {"grain": '"hour"', "start": '"2024-03-01T00"'},
    {"grain": '"month"', "start": '"2024-01-01"'},
    {"grain": '"day"', "start": '"2024-03-01"', "zone": '"Asia/Tokyo"', "data_lag": "1"},
    {"cron": '"0 6 * * *"', "start": '"2024-03-01T06:00"'},
    {"grain": '"none"'},
    {"grain": '"day"', "start": "2024-03-01", "data_lag": "-1"},
    {},
]
STORES: list[Table] = [
    {"column": '"p"', "location": '"{name}"'},
    {"column": '"p"', "table": '"db.{name}"', "retention": "9999"},
    {"columns": '{ p = "%Y-%m-%dT%H" }', "location": '"{name}"'},
    {"columns": '{ p = "%Y-%m" }', "location": '"{name}"'},
    {"location": '"{name}"'},
    {"column": '"p"'},
]
READS: list[Table] = [
    {},
    {"mapping": '"window"', "before": "6"},
    {"mapping": '"window"', "before": "1", "after": "1"},
    {"mapping": '"offset"', "by": "-1"},
    {"mapping": '"none"'},
    {"mapping": '"identity"'},
    {"mapping": '"overlap"'},
    {"on_missing": '"fail"'},
    {"mapping": '"window"', "before": "1", "on_missing": '"read"'},
]
WRITES: list[Table] = [
    {},
    {"mode": '"merge"', "lookback": "1"},
    {"mode": '"append"', "on_drift": '"add"'},
    {"mode": '"full"'},
    {"on_empty": '"keep"'},
]
#: At most one of these is put into a drawn file: the table's place, and what is added to it.
MISTAKES: list[tuple[int, Table]] = [
    (0, {"grain": '"dya"'}),
    (1, {"data_lag": "-2"}),
    (1, {"retention": "0"}),
    (1, {"location": "3"}),
    (2, {"grain": '"day"', "cron": '"0 6 * * *"'}),
    (2, {"zone": '"Mars"'}),
    (2, {"engine": '"nowhere"'}),
    (1, {"name": '"raw"'}),
    (3, {"dataset": '"raw"', "befor": "1"}),
    (3, {"dataset": '"raw"', "mapping": '"window"', "before": "-1"}),
    (3, {"dataset": '"raw"', "on_missing": '"gaurd"'}),
    (3, {"dataset": '"raw"', "mapping": '"offset"', "by": "1000000000"}),
    (4, {"dataset": '"out"', "mode": '"apend"'}),
    (4, {"dataset": '"out"', "lookback": "-1"}),
]


def one_of(tables: list[Table]) -> st.SearchStrategy[Table]:
    """Draw a table; the first one most often."""
    return st.one_of(st.just(tables[0]), st.sampled_from(tables))


def test_of_two_mistakes_both_sides_tell_the_same() -> None:
    """A month before the output's first day writes nothing, and the input has no columns."""
    day = {"grain": '"day"', "start": '"2024-03-01"', "location": '"{name}"'}
    month = {"grain": '"month"', "start": '"2024-01-01"'}
    write = {"dataset": '"out"', "mode": '"merge"', "lookback": "1"}
    refused = outcome(project(day, {**day, "column": '"p"'}, month, {}, write))
    assert refused == "dataset w:raw is partitioned, and its physical columns are not declared"


def test_two_tables_at_one_place_are_refused_by_both_sides() -> None:
    day = {"grain": '"day"', "start": '"2024-03-01"', "column": '"p"', "location": '"data"'}
    refused = outcome(project(day, day, {}, {}, {}))
    assert refused is not None
    assert refused.startswith("datasets w:out and w:raw have one place, ")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    raw=one_of(CALENDARS),
    raw_store=one_of(STORES),
    out=one_of(CALENDARS),
    out_store=one_of(STORES),
    of_job=one_of([{}, *CALENDARS]),
    read=st.tuples(st.sampled_from(['"raw"', '"ra*"', '"out"']), one_of(READS)),
    write=st.tuples(st.sampled_from(['"out"', '"o*"']), one_of(WRITES)),
    mistake=st.one_of(st.none(), st.none(), st.sampled_from(MISTAKES)),
)
def test_a_drawn_project_file_is_refused_by_both_or_by_neither(
    raw: Table,
    raw_store: Table,
    out: Table,
    out_store: Table,
    of_job: Table,
    read: tuple[str, Table],
    write: tuple[str, Table],
    mistake: tuple[int, Table] | None,
) -> None:
    edges = [{"dataset": name, **edge} if edge else {} for name, edge in (read, write)]
    tables = [{**raw, **raw_store}, {**out, **out_store}, dict(of_job), *edges]
    if mistake is not None:
        place, added = mistake
        tables[place] = {**tables[place], **added}
    refused = outcome(project(tables[0], tables[1], tables[2], tables[3], tables[4]))
    assert refused or mistake is None


HOUR: Table = {"grain": '"hour"', "start": '"2024-03-01T00"'}
BERLIN: Table = {"zone": '"Europe/Berlin"', "column": '"day"'}


@pytest.mark.parametrize(
    ("raw", "out", "key", "mixed"),
    [
        # A day needs all hours of its partition, an hour one of them.
        ({**HOUR, "columns": '{ d = "%F" }'}, {}, "2024-03-10", None),
        (
            {**HOUR, "columns": '{ d = "%F" }'},
            {**HOUR, "column": '"h"'},
            "2024-03-10T05",
            "2024-03-10T05 and 2024-03-10T04",
        ),
        # Days in two zones are not the same hours.
        (
            {**HOUR, "columns": '{ d = "%F" }'},
            BERLIN,
            "2024-03-10",
            "2024-03-09T23 and 2024-03-09T11",
        ),
        # A month of days that its calendar does not hold yet.
        (
            {**RAW, "column": "", "columns": '{ p = "%Y-%m" }'},
            {"grain": '"month"', "start": '"2024-03-01"', "column": '"m"'},
            "2024-03-01",
            None,
        ),
        # Days of other months that have the same number.
        (
            {"start": '"2023-01-01"', "columns": '{ p = "%d" }'},
            {},
            "2024-03-31",
            "2024-03-31 and 2023-03-31",
        ),
        ({**HOUR, "column": '"h"', "zone": '"Europe/Berlin"'}, {}, "2024-03-10", None),
        # The hour that the clock shows twice has one name in the table.
        (
            {
                **HOUR,
                "start": '"2023-01-01T00"',
                "zone": '"Europe/Berlin"',
                "columns": '{ h = "%FT%H" }',
            },
            {**HOUR, "start": '"2023-01-01T00"', "column": '"h"'},
            "2023-10-29T01",
            "2023-10-29T02+0100 and 2023-10-29T02+0200",
        ),
    ],
)
def test_a_run_that_needs_part_of_a_partition_of_the_table_knows_it(
    raw: Table, out: Table, key: str, mixed: str | None, tmp_path: Path
) -> None:
    tables = [
        {name: value for name, value in {**RAW, "column": "", **more}.items() if value}
        for more in (raw, {"column": '"day"', "location": '"out"', **out})
    ]
    if "2023" in tables[0]["start"]:
        tables[1]["start"] = tables[0]["start"]
    (tmp_path / "lineage-backfill.toml").write_text(project(tables[0], tables[1], {}, {}, {}))
    (run,) = started(tmp_path, StartRequest(keys=[key]))
    assert run.inputs[0].mixed == mixed
    assert parse_spec({**run.to_dict(), "result_path": "/r.json"}).inputs == run.inputs


def test_a_planned_run_knows_of_mixed_partitions_as_well(tmp_path: Path) -> None:
    raw = {**RAW, "columns": '{ p = "%Y-%m" }'}
    del raw["column"]
    (tmp_path / "lineage-backfill.toml").write_text(project(raw, OUT, {}, {}, {}))
    for runs in (planned(tmp_path), scheduled(tmp_path)):
        assert not isinstance(runs, str)
        (run,) = runs
        assert run.inputs[0].mixed == "2024-03-31 and 2024-03-24"


REGIONS: Table = {"keys": '["eu", "us"]', "column": '"region"', "location": '"out"'}
BY_REGION = (
    '[{{ name = "day", grain = "day", start = "2024-03-01", column = "day" }}, '
    '{{ name = "region", keys = {keys}, column = "region" }}]'
)


@pytest.mark.parametrize(
    ("raw", "out", "key", "values"),
    [
        (
            {"keys": '"runtime"', "column": '"region"'},
            REGIONS,
            "eu",
            {"region": "eu"},
        ),
        (
            {"dimensions": BY_REGION.format(keys='"runtime"')},
            {"dimensions": BY_REGION.format(keys='["eu", "us"]')},
            "day=2024-03-31/region=eu",
            {"day": "2024-03-31", "region": "eu"},
        ),
    ],
)
def test_a_static_key_reads_its_own_of_runtime_keys_on_both_sides(
    raw: Table, out: Table, key: str, values: Mapping[str, str], tmp_path: Path
) -> None:
    text = project({**raw, "location": '"raw"'}, {**out, "location": '"out"'}, {}, {}, {})
    (tmp_path / "lineage-backfill.toml").write_text(text)
    (run,) = started(tmp_path, StartRequest(keys=[key]))
    assert [part.values for part in run.inputs[0].partitions or ()] == [values]
    runs = planned(tmp_path)
    assert not isinstance(runs, str)
    (same,) = (one for one in runs if [str(own.key) for own in one.keys] == [key])
    assert same.inputs == run.inputs


def test_a_key_named_of_a_runtime_output_is_known_on_both_sides(tmp_path: Path) -> None:
    out = {"keys": '"runtime"', "column": '"region"', "location": '"out"'}
    text = project(RAW, out, {"keys": '["eu"]'}, {}, {})
    (tmp_path / "lineage-backfill.toml").write_text(text)
    (run,) = started(tmp_path, StartRequest(keys=["eu"]))
    assert [part.values for part in run.outputs[0].scope] == [{"region": "eu"}]


def test_a_list_without_a_first_key_is_refused_by_both(tmp_path: Path) -> None:
    raw = {name: value for name, value in RAW.items() if name != "start"}
    text = project(raw, {**REGIONS, "keys": '"runtime"'}, {}, {}, {})
    (tmp_path / "lineage-backfill.toml").write_text(text)
    declared = load_project(tmp_path, environ={}, user_file=tmp_path / "none").declarations
    request = Request(changed=(), jobs=(ChangedJob(job=job("j"), keys=("*",)),))
    plan = build_plan(request, lineage("raw > j > out"), declared, now=NOW)
    assert find(plan, "j").status == "blocked"  # also where only another input is stale
    assert find(plan, "j").reason["text"] == scheduled(tmp_path)


def test_an_older_month_than_the_output_has_is_never_run(tmp_path: Path) -> None:
    month = {"grain": '"month"', "start": '"2024-01-01"'}
    raw = {"grain": '"none"', "location": '"raw"'}
    text = project(raw, OUT, month, {}, {})
    assert outcome(text) is None
    (tmp_path / "lineage-backfill.toml").write_text(text)
    runs = planned(tmp_path)
    assert [str(run.keys[0].key) for run in runs if not isinstance(run, str)] == ["2024-03-01"]
    refused = scheduled(tmp_path, ["2024-01-01"])
    assert refused == "a run of 2024-01-01 writes no partition: its outputs have none at that time"
