"""The project file held against the lineage: each mistake is found once, with what was meant."""

from __future__ import annotations

import pytest

from lineage_backfill.critic.review import Finding, review
from lineage_backfill.lineage.snapshot import DatasetNode, LineageSnapshot
from tests.unit.planning.world import NOW, dataset, declarations, lineage

EDGES = """
    raw > clean > clean
    clean, rates > daily > daily
    daily > page >
"""
DAYS = """
[[dataset]]
name = "*"
grain = "day"
start = "2024-01-01"
column = "ds"
location = "{name}"
"""
JOBS = """
[[job]]
name = "*"
engine = "local"
entrypoint = "a:b"
"""


def found(toml: str, snapshot: LineageSnapshot | None = None) -> list[Finding]:
    return list(review(snapshot or lineage(EDGES), declarations(toml), now=NOW))


def shown(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(one.level, one.kind, one.place) for one in findings]


def test_a_file_that_fits_the_lineage_has_no_findings() -> None:
    assert found(DAYS + JOBS) == []


def test_tables_of_one_entry_with_one_place_are_found() -> None:
    shared = found(DAYS.replace("{name}", "x") + JOBS)
    assert {(one.level, one.kind) for one in shared} == {("error", "contradiction")}
    assert [one.place for one in shared] == [
        f'[[dataset]] "{name}"' for name in ("daily", "rates", "raw")
    ]
    assert "have one place, " in shared[0].text
    assert 'location = "data/{name}"' in shared[0].hint


def test_an_entry_that_gives_only_some_attributes_is_used() -> None:
    exact = "".join(
        f"[[dataset]]\nname = '{name}'\nlocation = '{name}'\n"
        for name in ("raw", "clean", "rates", "daily")
    )
    days = DAYS.replace('location = "{name}"\n', "")
    assert found(exact + days + JOBS) == []


def test_an_edge_is_checked_where_a_glob_adds_to_its_job() -> None:
    own = "[[job]]\nname = 'daily'\n[[job.reads]]\ndataset = 'clen'\n"
    (one,) = found(DAYS + own + JOBS)
    assert one.place == '[[job]] "daily" [[job.reads]] "clen"'


DAILY = "[[job]]\nname = 'daily'\nengine = 'local'\nentrypoint = 'a:b'\n"
TABLE = "[[dataset]]\nname = {0!r}\ngrain = 'day'\nlocation = {0!r}\ncolumn = 'ds'\n"
CASES = {
    "a misspelt dataset": (
        TABLE.format("cleen"),
        ("error", "unknown-dataset", '[[dataset]] "cleen"'),
        "Nearest: w:clean. Correct the name; if it is right, set `expected = true`.",
    ),
    "a dataset of another namespace": (
        "[[dataset]]\nnamespace = 'v'\n" + TABLE.format("raw").partition("\n")[2],
        ("error", "unknown-dataset", '[[dataset]] "raw"'),
        "Nearest: w:raw",
    ),
    "a glob that matches nothing": (
        TABLE.format("zz*"),
        ("warning", "unknown-dataset", '[[dataset]] "zz*"'),
        "Correct the pattern, or remove the entry.",
    ),
    "a glob of which an earlier one takes all": (
        TABLE.format("r*"),
        ("warning", "unknown-dataset", '[[dataset]] "r*"'),
        "Correct the pattern, or remove the entry.",
    ),
    "a misspelt job": (
        "[[job]]\nname = 'dayly'",
        ("error", "unknown-job", '[[job]] "dayly"'),
        "Nearest: w:daily",
    ),
    "an edge to a misspelt dataset": (
        DAILY + "[[job.reads]]\ndataset = 'clen'",
        ("error", "unknown-dataset", '[[job]] "daily" [[job.reads]] "clen"'),
        "Nearest: w:clean. Correct the name; if it is right, declare it in a [[dataset]].",
    ),
    "an edge of a glob that no job has": (
        DAILY.replace("daily", "d*") + "[[job.reads]]\ndataset = 'raw'",
        ("warning", "unknown-edge", '[[job]] "d*" [[job.reads]] "raw"'),
        "In the lineage, its jobs use clean, rates.",
    ),
    "a start that is no key": (
        TABLE.format("raw") + "start = '2024-W01'",
        ("error", "contradiction", '[[dataset]] "raw"'),
        "Write it like 2024-06-15",
    ),
    "a mapping that does not fit its calendars": (
        DAILY + "[[job.reads]]\ndataset = 'clean'\nmapping = 'map'\nmap = { eu = ['de'] }",
        ("error", "contradiction", "job daily"),
        "",
    ),
    "a whole table that a default would replace": (
        "[[dataset]]\nname = 'daily'\ngrain = 'none'\nlocation = 'x'",
        ("note", "no-mode", "to run"),
        "`impact` does not need it; `run` refuses without it.",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_mistake_is_found_once(name: str) -> None:
    toml, expected, hint = CASES[name]
    (one,) = found(DAYS + toml + JOBS)
    assert (one.level, one.kind, one.place) == expected
    assert hint in one.hint


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('engine = "local"\nentrypoint = "a:b"\n', "no-engine"),
        ('entrypoint = "a:b"\n', "no-entrypoint"),
        ('location = "{name}"\n', "no-location"),
        ('column = "ds"\n', "no-column"),
    ],
)
def test_what_no_table_states_and_a_run_needs_is_noted(line: str, kind: str) -> None:
    (one,) = found((DAYS + JOBS).replace(line, ""))
    assert (one.level, one.kind, one.place) == ("note", kind, "to run")
    assert one.hint == "`impact` does not need it; `run` refuses without it."


def test_a_job_that_would_be_blocked_is_named_with_the_reason() -> None:
    month = "[[dataset]]\nname = 'daily'\ngrain = 'month'\ncolumn = 'm'\nlocation = 'x'\n"
    days = "[[job]]\nname = 'daily'\ngrain = 'day'\nengine = 'local'\nentrypoint = 'a:b'\n"
    (one,) = found(DAYS + month + days + JOBS)
    assert (one.level, one.kind, one.place) == ("error", "blocked", "job daily")
    assert "coarser than its run calendar" in one.text
    assert "merge" in one.hint


def test_two_keys_of_one_physical_partition_are_an_error() -> None:
    month = "[[dataset]]\nname = 'daily'\ngrain = 'day'\ncolumns = { m = '%Y-%m' }\n"
    errors = [one for one in found(DAYS + month + JOBS) if one.level == "error"]
    assert [(one.kind, one.place) for one in errors] == [("blocked", "job daily")]
    assert "are one partition of its table" in errors[0].text


def test_an_hour_that_the_clock_shows_twice_is_found_before_it_comes() -> None:
    hours = "[[dataset]]\nname = 'daily'\ngrain = 'hour'\nzone = 'Europe/Berlin'\n"
    named = hours + "columns = { h = '%Y-%m-%dT%H' }\n"
    said = [one for one in found(DAYS + named + JOBS) if one.kind == "one-partition"]
    assert [(one.level, one.place) for one in said] == [("warning", "dataset daily")]
    assert "with its offset" in said[0].hint
    exact = hours + "column = 'h'\n"
    assert not [one for one in found(DAYS + exact + JOBS) if one.kind == "one-partition"]


def test_a_window_over_a_dataset_that_nothing_knows_is_an_error() -> None:
    window = (
        "[[job]]\nname = 'daily'\nreads = [{ dataset = 'rates', mapping = 'window', before = 6 }]\n"
    )
    levels = {one.place: one.level for one in found(TABLE.format("raw") + window)}
    assert levels["job daily"] == "error"
    assert levels["dataset daily"] == "warning"


def test_unknown_partitioning_is_told_once_for_each_dataset_with_the_jobs_it_blocks() -> None:
    findings = found(TABLE.format("raw") + TABLE.format("clean"))
    unknown = [one for one in findings if one.kind == "unknown-partitioning"]
    assert [(one.place, one.text) for one in unknown] == [
        ("dataset daily", "partitioning unknown; this blocks daily, page"),
        (
            "dataset rates",
            "partitioning unknown; this blocks daily if it changes",
        ),
    ]


def test_a_wrong_glob_is_told_once_and_hides_nothing_else() -> None:
    findings = found(DAYS.replace("2024-01-01", "1st of May") + TABLE.format("rats") + JOBS)
    assert shown(findings) == [
        ("error", "unknown-dataset", '[[dataset]] "rats"'),
        ("error", "contradiction", '[[dataset]] "*"'),
    ]


def test_a_column_that_the_schema_does_not_have_is_found() -> None:
    nodes = [DatasetNode(ref=dataset(name), fields=("dt", "price")) for name in ("raw", "rates")]
    snapshot = LineageSnapshot.of(lineage(EDGES).jobs.values(), nodes)
    (one,) = found(DAYS.replace('"ds"', '"dtt"') + JOBS, snapshot)
    assert one.text == "no column 'dtt' in rates, raw"
    assert one.hint == "Did you mean dt?"


def test_a_facet_that_cannot_be_read_is_told() -> None:
    broken = DatasetNode(ref=dataset("raw"), partitioning={"grain": "fortnight"})
    snapshot = LineageSnapshot.of(lineage(EDGES).jobs.values(), [broken])
    findings = found(JOBS, snapshot)
    assert ("warning", "facet", "lineage") in shown(findings)
