"""One dataset for all names of its partitions, and a count of those not declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.events.build import LineageBuilder
from lineage_backfill.lineage.identity.folding import Folding
from lineage_backfill.lineage.snapshot import ColumnEdge, DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DatasetDeclaration,
    Declarations,
    DimensionDeclaration,
)
from lineage_backfill.project.patterns import completed
from lineage_backfill.sources.snapshot import save_snapshot
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage

FIRST = date(2021, 6, 1)
ORDERS, WEEK, RAW = (DatasetRef("db", name) for name in ("public.orders", "/lake/week", "raw"))
NOW = "2021-06-12T00:00:00Z"


def day(number: int) -> date:
    return FIRST + timedelta(number)


def orders(number: int) -> str:
    return f"public.orders_{day(number):%Y_%m_%d}"


def event(job: str, number: int, reads: list[str], writes: list[str]) -> dict[str, Any]:
    return {
        "eventType": "COMPLETE",
        "eventTime": f"{day(number + 1)}T05:00:00Z",
        "run": {"runId": f"{job}-{number}"},
        "job": {"namespace": "db", "name": job},
        "inputs": [{"namespace": "db", "name": name} for name in reads],
        "outputs": [{"namespace": "db", "name": name} for name in writes],
    }


#: Ten days of a job that writes one table a day, and of one that reads the last seven of them.
EVENTS = [
    one
    for number in range(10)
    for one in (
        event("etl_orders", number, ["raw"], [orders(number)]),
        event(
            "etl_week",
            number,
            [orders(number - back) for back in range(7)],
            [f"/lake/week/ds={day(number)}"],
        ),
    )
]
RAW_BY_DAY = '[[dataset]]\nname = "raw"\ngrain = "day"\nstart = "2021-05-01"\n'
PATTERNS = """
[[dataset]]
pattern = "public.orders_{day:%Y_%m_%d}"
start = "2021-05-01"
[[dataset]]
pattern = "/lake/week/ds={ds:%Y-%m-%d}"
"""
Project = Callable[..., list[str]]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    def make(declared: str = "", events: list[Any] = EVENTS) -> list[str]:
        """Write the project and return the options that name it."""
        (tmp_path / "events.ndjson").write_text("\n".join(map(json.dumps, events)))
        file = tmp_path / "lineage-backfill.toml"
        head = '[project]\nnamespace = "db"\n[lineage]\nevents = "events.ndjson"\n'
        file.write_text(head + RAW_BY_DAY + declared)
        return ["--config", str(file)]

    return make


def planned(capsys: pytest.CaptureFixture[str]) -> dict[str, list[Any]]:
    document = json.loads(capsys.readouterr().out)
    return {job["job"]["name"]: job["partitions"] for job in document["jobs"]}


def test_a_fix_upstream_reaches_what_reads_any_partition(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["impact", "raw", "--partitions", "2021-06-02", "--now", NOW, "--json"]
    assert main([*asked, *project(PATTERNS)]) == 0
    # The week reads six days before its own, which its names tell, and nothing else does.
    assert planned(capsys) == {
        "etl_orders": ["2021-06-02"],
        "etl_week": ["2021-06-02..2021-06-08"],
    }


@pytest.mark.parametrize(
    "named",
    [
        ["public.orders_2021_06_02"],
        ["db:public.orders_2021_06_02"],
        ["public.orders", "--partitions", "2021-06-02"],
        ["public.orders_2021_06_02", "--namespace", "db"],
    ],
)
def test_a_partition_is_known_by_its_own_name(
    project: Project, capsys: pytest.CaptureFixture[str], named: list[str]
) -> None:
    assert main(["impact", *named, "--now", NOW, "--json", *project(PATTERNS)]) == 0
    assert planned(capsys) == {"etl_week": ["2021-06-02..2021-06-08"]}


def test_a_request_file_may_name_partitions(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ref = {"namespace": "db", "name": orders(1)}
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"changed": [{"dataset": ref}]}))
    options = ["--request", str(file), "--now", NOW, "--json", *project(PATTERNS)]
    assert main(["impact", *options]) == 0
    assert planned(capsys) == {"etl_week": ["2021-06-02..2021-06-08"]}


def test_a_partition_has_no_other_keys(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["public.orders_2021_06_02", "--from", "2021-06-01"]
    assert main(["impact", *named, *project(PATTERNS)]) == 64
    assert "is already one partition" in capsys.readouterr().err


def test_undeclared_partitions_are_counted_on_one_line(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["impact", "raw", "--from", "2021-06-02", "--now", NOW, "--json"]
    assert main([*asked, *project()]) == 0
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert decision == {
        "kind": "dated-names",
        "text": "26 dataset names look like partitions (/lake/week/ds=2021-06-01, …): declare a"
        " pattern; `init` proposes one",
        "refused": False,
    }
    assert main([*asked, *project(PATTERNS)]) == 0
    assert "decisions" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "declared",
    [
        "".join(f'[[dataset]]\nname = "{orders(n)}"\ngrain = "none"\n' for n in range(-6, 10)),
        '[[dataset]]\nname = "public.orders_*"\ngrain = "none"\n',
    ],
)
def test_a_declaration_that_they_are_separate_datasets_wins(
    project: Project, capsys: pytest.CaptureFixture[str], declared: str
) -> None:
    week = '[[dataset]]\npattern = "/lake/week/ds={day:%Y-%m-%d}"\nstart = "2021-05-01"\n'
    asked = ["impact", orders(9), "--now", NOW, "--json"]
    assert main([*asked, *project(declared + week)]) == 0
    assert planned(capsys) == {"etl_week": ["2021-05-01..2021-06-11"]}


DAY = CalendarDeclaration(grain="day")


@pytest.mark.parametrize(
    ("facet", "tables", "families"),
    [
        (None, [], ["store"]),
        (None, [DatasetDeclaration(name="store_*", calendar=DAY)], []),
        (None, [DatasetDeclaration(name="store_*")], ["store"]),  # it states no calendar
        (None, [DatasetDeclaration(name="store_*", namespace="e*", calendar=DAY)], ["store"]),
        ({"grain": "day", "start": "2024-01-01"}, [], []),
    ],
)
def test_names_whose_calendar_is_stated_are_datasets_by_themselves(
    facet: Any, tables: list[DatasetDeclaration], families: list[str]
) -> None:
    years = range(2001, 2004)
    stores = [job(f"j{year}", "raw", f"store_{year}") for year in years]
    nodes = [
        DatasetNode(ref=DatasetRef("db", f"store_{year}"), partitioning=facet) for year in years
    ]
    declared = Declarations(namespace="db", datasets=tuple(tables))
    now = datetime(2024, 4, 1, tzinfo=UTC)
    found = Resolver(LineageSnapshot.of(stores, nodes), declared, now=now).families
    assert [one.dataset.name for one in found] == families


def test_a_snapshot_is_folded_like_the_events_it_was_taken_from(
    project: Project, tmp_path: Path
) -> None:
    options = project(PATTERNS)
    opened = open_project(Path(options[1]))
    save_snapshot(Folding(Declarations()).fold(raw_lineage(opened)), tmp_path / "taken.json.gz")
    again = open_project(Path(options[1]), lineage={"snapshot": str(tmp_path / "taken.json.gz")})
    one, other = ProjectLineage(opened).read(), ProjectLineage(again).read()
    assert set(one.datasets) == {ORDERS, WEEK, RAW}
    assert (one.jobs, one.datasets, one.content_hash) == (
        other.jobs,
        other.datasets,
        other.content_hash,
    )


def raw_lineage(project: Any) -> LineageSnapshot:
    return ProjectLineage(project).read_source()


def job(name: str, reads: str = "", writes: str = "", **more: Any) -> JobNode:
    return JobNode(ref=JobRef("db", name), reads=refs(reads), writes=refs(writes), **more)


def refs(names: str) -> tuple[DatasetRef, ...]:
    return tuple(DatasetRef("db", name) for name in names.split())


def fold(snapshot: LineageSnapshot, *patterns: str, **more: Any) -> LineageSnapshot:
    datasets = tuple(DatasetDeclaration(name="", pattern=pattern, **more) for pattern in patterns)
    return Folding(Declarations(namespace="db", datasets=datasets)).fold(snapshot)


def test_all_that_names_a_partition_is_renamed() -> None:
    column = ColumnEdge(
        job=JobRef("db", "a"),
        input=DatasetRef("db", "o_20240102"),
        input_column="x",
        output=DatasetRef("db", "t"),
        output_column="y",
    )
    nodes = [
        DatasetNode(ref=DatasetRef("db", "o_20240101"), fields=("old",), tags=("a",)),
        DatasetNode(
            ref=DatasetRef("db", "o_20240102"),
            fields=("x",),
            tags=("b",),
            owners=("me",),
            aliases=refs("hive.o o_20240103"),
        ),
        DatasetNode(ref=DatasetRef("other", "o_20240101")),
    ]
    snapshot = LineageSnapshot.of(
        [
            job("a", "o_20240102 x", "t", former_reads=refs("o_20240101 y")),
            job("b", "x", "o_20240102", former_writes=refs("o_20240101")),
        ],
        nodes,
        column_edges=(column,),
    )
    folded = fold(snapshot, "o_{day:%Y%m%d}")
    a, b = folded.jobs.values()
    assert (a.reads, a.former_reads) == (refs("o x"), refs("y"))
    assert (b.writes, b.former_writes) == (refs("o"), ())
    (whole,) = refs("o")
    node = folded.datasets[whole]
    assert (node.fields, node.tags, node.owners) == (("x",), ("a", "b"), ("me",))
    assert node.aliases == refs("hive.o")
    assert folded.column_edges[0].input == whole
    assert DatasetRef("other", "o_20240101") in folded.datasets


@pytest.mark.parametrize(
    ("reads", "writes", "expected"),
    [
        ("o_20240110", "t_20240110", None),
        ("o_20240109", "t_20240110", {"mapping": "offset", "by": -1}),
        (
            "o_20240108 o_20240109 o_20240110",
            "t_20240110",
            {"mapping": "window", "before": 2, "after": 0},
        ),
        ("o_20240110 o_20240111", "t_20240110", {"mapping": "window", "before": 0, "after": 1}),
        # Two keys in one run, each with the day before.
        (
            "o_20240108 o_20240109 o_20240110",
            "t_20240109 t_20240110",
            {"mapping": "window", "before": 1, "after": 0},
        ),
        ("o_20240109 o_20240110", "t_20240109 t_20240110", None),
        ("o_20240108 o_20240109", "t_20240109 t_20240110", {"mapping": "offset", "by": -1}),
        # Its own partition of yesterday.
        ("t_20240109", "t_20240110", {"mapping": "offset", "by": -1}),
        ("t_20240110", "t_20240110", None),
        ("t_20240111", "t_20240110", None),
        # The output tells no key.
        ("o_20240109 o_20240110", "plain", None),
    ],
)
def test_what_a_run_reads_around_its_own_key_is_told_by_the_names(
    reads: str, writes: str, expected: dict[str, Any] | None
) -> None:
    folded = fold(LineageSnapshot.of([job("j", reads, writes)]), "o_{day:%Y%m%d}", "t_{day:%Y%m%d}")
    facet = folded.jobs[JobRef("db", "j")].partitioning
    name = {"namespace": "db", "name": reads[0]}
    assert facet == (None if expected is None else {"reads": [{"dataset": name, **expected}]})
    assert len(folded.warnings) == (expected is not None)


def test_finer_inputs_are_counted_in_the_run_s_own_keys() -> None:
    hours = [f"h_{day(9):%Y%m%d}{hour:02}" for hour in range(24)]
    hours += [f"h_{day(8):%Y%m%d}23"]
    snapshot = LineageSnapshot.of([job("j", " ".join(hours), f"t_{day(9):%Y%m%d}")])
    folded = fold(snapshot, "h_{hour:%Y%m%d%H}", "t_{day:%Y%m%d}")
    (said,) = folded.warnings
    assert said.startswith("db:j: its last run read its own key and 1 day bef")


def test_a_coarser_input_is_left_to_overlap_and_a_facet_is_believed_first() -> None:
    month = LineageSnapshot.of([job("j", "m_202401", "t_20240110")])
    assert fold(month, "m_{month:%Y%m}", "t_{day:%Y%m%d}").warnings == ()
    facet = {"reads": [{"dataset": "o", "mapping": "all"}]}
    told = LineageSnapshot.of([job("j", "o_20240109", "t_20240110", partitioning=facet)])
    folded = fold(told, "o_{day:%Y%m%d}", "t_{day:%Y%m%d}")
    assert folded.jobs[JobRef("db", "j")].partitioning == facet


def test_the_time_dimension_of_a_product_is_told_too() -> None:
    reads = " ".join(f"o/ds=2024-01-{d:02}/region=eu" for d in (8, 9, 10))
    folded = fold(
        LineageSnapshot.of([job("j", reads, "t/ds=2024-01-10/region=eu")]),
        "o/ds={day:%Y-%m-%d}/region={region}",
        "t/ds={day:%Y-%m-%d}/region={region}",
    )
    facet = folded.jobs[JobRef("db", "j")].partitioning
    assert facet is not None
    assert facet["reads"][0]["dimensions"] == {
        "day": {"mapping": "window", "before": 2, "after": 0}
    }


def declared(pattern: str, **more: Any) -> DatasetDeclaration:
    return completed(DatasetDeclaration(name="", pattern=pattern, **more))


def test_name_and_calendar_come_from_the_pattern_where_nobody_declares_them() -> None:
    assert declared("o_{ds:%Y%m%d%H}").calendar == CalendarDeclaration(grain="hour")
    assert declared("o_{week:%Y%m%d}").calendar == CalendarDeclaration(grain="week")
    assert declared("o_{region}").calendar == CalendarDeclaration(keys="runtime")
    start = CalendarDeclaration(start="2024-01-01", zone="Europe/Berlin")
    assert declared("o_{day:%Y%m%d}", calendar=start).calendar == CalendarDeclaration(
        grain="day", start="2024-01-01", zone="Europe/Berlin"
    )
    product = declared("o/ds={ds:%Y-%m-%d}/r={r}", calendar=start)
    assert (product.name, product.calendar) == ("o", None)
    assert [one.name for one in product.dimensions] == ["ds", "r"]
    assert product.dimensions[0].calendar.zone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("pattern", "more", "message"),
    [
        ("{day:%Y%m%d}", {}, "nothing is left"),
        ("o_{t:%Y%m%d%H%M}", {}, "finer than an hour"),
        ("o_{day:%Y%m}", {}, "not contain the day"),
        ("o_{d:%Y%m%d}", {"calendar": CalendarDeclaration(grain="hour")}, "not contain the hour"),
        ("o_{d:%Y%m%d}", {"calendar": CalendarDeclaration(grain="none")}, "not contain the none"),
        ("o_{d}_{e}", {"calendar": CalendarDeclaration(grain="day")}, "2 placeholders"),
        ("o_{d:%Y%m%d}", {"calendar": CalendarDeclaration(keys=("a",))}, "whose keys are texts"),
        (
            "o_{d:%Y%m%d}",
            {
                "dimensions": (
                    DimensionDeclaration(name="ds", calendar=CalendarDeclaration(grain="day")),
                )
            },
            "is none of the `dimensions`",
        ),
        (
            "o_{r}",
            {
                "dimensions": (
                    DimensionDeclaration(name="ds", calendar=CalendarDeclaration(grain="day")),
                    DimensionDeclaration(name="r", calendar=CalendarDeclaration(keys="runtime")),
                )
            },
            "does not contain the day",
        ),
    ],
)
def test_a_pattern_that_does_not_fit_its_calendar_is_refused(
    pattern: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared(pattern, **more)


def test_the_first_pattern_wins_and_a_declared_name_is_never_folded() -> None:
    datasets = (
        DatasetDeclaration(name="o_20240102"),
        DatasetDeclaration(name="first", pattern="o_{day:%Y%m%d}"),
        DatasetDeclaration(name="second", pattern="o_{x}"),
    )
    folding = Folding(Declarations(datasets=datasets))
    found = {n: folding.find(DatasetRef("any", n)) for n in ("o_20240101", "o_20240102", "o_eu")}
    names = {name: part and part.dataset for name, part in found.items()}
    assert names == {
        "o_20240101": DatasetRef("any", "first"),
        "o_20240102": None,
        "o_eu": DatasetRef("any", "second"),
    }


def test_what_a_run_of_a_range_has_read_is_no_window() -> None:
    """A run over days of a zone tells the hours that they all need, not which day needs which."""

    def parts(side: str, column: str, *labels: str) -> dict[str, Any]:
        found = [{"dimensions": {column: label}} for label in labels]
        condition = {"type": "partition", "partitions": found}
        return {f"{side}Facets": {"subset": {f"{side}Condition": condition}}}

    hours = [f"{day(number // 24)}T{number % 24:02}" for number in range(4, 76)]
    builder = LineageBuilder()
    for run, (kind, keys) in enumerate(
        [("START", hours), ("COMPLETE", hours), ("FAIL", hours[:9])]
    ):
        one = event("daily", run, ["hourly"], ["days"]) | {"eventType": kind}
        one["inputs"][0] |= parts("input", "hour_utc", *keys)
        one["outputs"][0] |= parts("output", "day", *(str(day(number)) for number in range(3)))
        builder.add(one)
    snapshot = builder.snapshot()
    assert Folding(Declarations()).fold(snapshot) == snapshot
    assert {run.written for run in snapshot.history} == {"2021-06-01,2021-06-02,2021-06-03"}
