"""Declared edges to datasets that nothing knows: a slip is refused, another dataset is believed."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import UnknownNameError
from lineage_backfill.planning.resolver import Resolver
from lineage_backfill.planning.review import review
from lineage_backfill.planning.staleness import find_stale
from tests.unit.planning.world import NOW, declarations, lineage, plan, request, summary

EDGES = "flights > daily > flights_daily\nflights_daily > week > rolling_week"
DAYS = '[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2024-01-01"\n'
WEEK = "2024-03-10..2024-03-16"


def reads(dataset: str, more: str = "") -> str:
    return (
        f'{DAYS}[[job]]\nname = "week"\n[[job.reads]]\ndataset = "{dataset}"\n'
        f'mapping = "window"\nbefore = 6\n{more}'
    )


def test_the_right_name_reads_a_week() -> None:
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, reads("flights_daily"))
    assert summary(made) == {"week": WEEK}


@pytest.mark.parametrize(
    "name",
    [
        "flights_dialy",
        "flights_daly",
        "flights_dailyy",
        "flights-daily",
        "Flights_Daily",
        "flight_dayli",  # not one letter, but what the job reads and says nothing about
        "flihgts",
        "nyc.flights_daily",  # with what it stands in
        "nyc:Flights_Daily",
    ],
)
@pytest.mark.parametrize("word", ["reads", "writes"])
def test_a_slip_is_refused_with_what_was_meant(name: str, word: str) -> None:
    toml = (
        reads(name)
        if word == "reads"
        else reads("flights_daily").replace("*", "f*")
        + (f'[[job]]\nname = "daily"\n[[job.writes]]\ndataset = "{name}"\nlookback = 2\n')
    )
    meant = "flights" if name == "flihgts" else "flights_daily"
    asked = request({"flights_daily": "2024-03-10"})
    with pytest.raises(UnknownNameError, match=f"{word} w:{name}") as caught:
        plan(asked, EDGES, toml)
    assert f"Did you mean {meant}?" in caught.value.hint
    resolver = Resolver(lineage(EDGES), declarations(toml), now=NOW)
    with pytest.raises(UnknownNameError):
        find_stale(resolver, tables={}, runs={}, jobs=())
    (error,) = [
        one for one in review(lineage(EDGES), declarations(toml), now=NOW) if one.level == "error"
    ]
    assert error.kind == "unknown-dataset"
    assert error.hint == caught.value.hint


@pytest.mark.parametrize("word", ["reads", "writes"])
def test_a_glob_that_matches_no_edge_of_the_job_is_told(word: str) -> None:
    """Without it the job reads a day where its table says a week."""
    toml = f'{DAYS}[[job]]\nname = "week"\n[[job.{word}]]\ndataset = "flight_*"\n'
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml)
    known = {"reads": "w:flights_daily", "writes": "w:rolling_week"}[word]
    (told,) = [text for text in made.warnings if "flight_*" in text]
    assert told == f"job w:week {word} no 'flight_*' as declared, but {known}"
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml.replace("flight_", "*_"))
    assert not [text for text in made.warnings if "as declared" in text]


def test_a_glob_in_a_table_for_many_jobs_need_not_match_each() -> None:
    toml = f'{DAYS}[[job]]\nname = "*"\n[[job.reads]]\ndataset = "flight_*"\n'
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml)
    assert not [text for text in made.warnings if "flight_*" in text]


def test_a_name_of_another_namespace_is_refused() -> None:
    edges = "s3:flights_daily > week > rolling_week"
    with pytest.raises(UnknownNameError) as caught:
        plan(request({"s3:flights_daily": "2024-03-10"}), edges, reads("flights_daily"))
    assert "Did you mean s3:flights_daily?" in caught.value.hint


@pytest.mark.parametrize(
    ("says", "toml"),
    [
        ("another dataset altogether", reads("weather")),
        (
            "a dataset with a table of its own",
            reads("flights_dailyy", '[[dataset]]\nname = "flights_dailyy"\ngrain = "day"\n'),
        ),
        ("another year", reads("flights_daily_2024")),
        (
            "a name that two jobs declare",
            reads(
                "flights_dailyy",
                '[[job]]\nname = "other"\n[[job.writes]]\ndataset = "flights_dailyy"\n',
            ),
        ),
        ("a glob", reads("flights_dail?")),
    ],
)
def test_another_dataset_is_a_declared_edge(says: str, toml: str) -> None:
    edges = EDGES.replace("flights_daily", "flights_daily_2023") if "year" in says else EDGES
    root = "flights_daily_2023" if "year" in says else "flights_daily"
    made = plan(request({root: "2024-03-10"}), edges, toml)
    assert summary(made)["week"] == (WEEK if says == "a glob" else "2024-03-10")


def test_short_names_that_differ_by_a_letter_are_other_names() -> None:
    declared = 'name = "j"\nreads = [{ dataset = "a" }]\nwrites = [{ dataset = "c" }]\n'
    made = plan(request({"a": "2024-03-10"}), "a > i > b", f"{DAYS}[[job]]\n{declared}")
    assert summary(made) == {"i": "2024-03-10", "j": "2024-03-10"}


def test_a_pipeline_that_only_the_project_file_knows_is_believed() -> None:
    toml = DAYS + "".join(
        f'[[job]]\nname = "{job}"\n[[job.reads]]\ndataset = "{up}"\n'
        f'[[job.writes]]\ndataset = "{down}"\n'
        for job, up, down in (("a", "orders_raw", "orders_eu"), ("b", "orders_eu", "orders_us"))
    )
    made = plan(request({"orders_raw": "2024-03-10"}), "", toml)
    assert summary(made) == {"a": "2024-03-10", "b": "2024-03-10"}


MEANT = "the lineage has no job {!r}, which [[job]] declares; did you mean w:week?"


@pytest.mark.parametrize(
    ("name", "more", "warned"),
    [
        ("weeek", "", True),
        ("wek", "", True),
        ("Week", "", True),
        ("week", 'namespace = "x"', True),
        ("week", "", False),
        ("week", 'namespace = "w"', False),
        ("we*", "", False),
        ("month", "", False),
        ("wek", 'namespace = "x"', False),
        # Both are declared, so they are two jobs.
        ("wek", '[[job]]\nname = "week"', False),
    ],
)
def test_a_declared_job_that_is_most_likely_misspelt_is_warned_about(
    name: str, more: str, warned: bool
) -> None:
    """Else the job that was meant is planned by defaults, and nothing says so."""
    toml = f'{DAYS}[[job]]\nname = "{name}"\nprotected = true\n{more}'
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml)
    assert (MEANT.format(name) in made.warnings) is warned


@pytest.mark.parametrize(("name", "other"), [("load1", "load2"), ("ja", "jb"), ("ja", "jab")])
def test_names_that_differ_in_numbers_or_are_short_are_no_slips(name: str, other: str) -> None:
    toml = f'{DAYS}[[job]]\nname = "{other}"'
    made = plan(request({"a": "2024-03-10"}), f"a > {name} > b", toml)
    assert not [text for text in made.warnings if "did you mean" in text]
