"""What the runs of a plan need and was never written, told before they run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lineage_backfill.critic.in_force import of_job
from lineage_backfill.critic.unwritten import inputs_of, missing_reads, waiting_keys
from lineage_backfill.partitions.keys import PartitionSet
from lineage_backfill.partitions.text import parse
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.staleness.record import Change, TableRecord
from lineage_backfill.staleness.staleness import find_stale
from tests.unit.planning.world import NOW, dataset, declarations, job, lineage, plan, request

TOML = """
[[dataset]]
name = "hours"
grain = "hour"
start = "2024-03-01T00"

[[dataset]]
name = "d*"
grain = "day"
start = "2024-03-01"

[[job]]
name = "total"
[[job.reads]]
dataset = "hours"
on_missing = "{word}"
"""
EDGES = "hours > total > days\ndays > copy > days_again"
AT = datetime(2024, 3, 5, tzinfo=UTC)


def record(resolver: Resolver, name: str, keys: str, *, since: bool = False) -> TableRecord:
    calendar = resolver.calendar(dataset(name))
    assert calendar is not None
    found = parse(calendar, (keys,)) if keys else PartitionSet(())
    changes = (Change(keys=found, at=AT, version=1),) if keys else ()
    return TableRecord(changes=changes, since=AT if since else None)


@pytest.mark.parametrize(
    ("word", "written", "lost", "failing"),
    [
        ("guard", "2024-03-02T00..2024-03-03T23", (), ()),
        ("guard", "2024-03-02T00..2024-03-03T21", ("2024-03-03T22..2024-03-03T23",), ()),
        (
            "guard",
            "2024-03-02T00..2024-03-02T23",
            ("2024-03-03T00..2024-03-03T23",),
            ("2024-03-03",),
        ),
        (
            "fail",
            "2024-03-02T00..2024-03-03T21",
            ("2024-03-03T22..2024-03-03T23",),
            ("2024-03-03",),
        ),
        ("read", "", (), ()),
        ("guard", "", (), ()),  # of a table that is not here nothing is known
    ],
)
def test_a_plan_is_judged_before_it_runs(
    word: str, written: str, lost: tuple[str, ...], failing: tuple[str, ...]
) -> None:
    toml, edges = declarations(TOML.format(word=word)), lineage(EDGES)
    made = plan(request(jobs={"total": "2024-03-02..2024-03-03"}), edges, toml)
    resolver = Resolver(edges, toml, now=NOW)
    assert inputs_of(made, resolver) == {
        dataset(name) for name in ("hours", "days") if name == "days" or word != "read"
    }
    # What a run of the plan writes is there by then.
    tables = {"hours": written, "days": "2024-03-01"}
    records = {dataset(name): record(resolver, name, keys) for name, keys in tables.items()}
    found = missing_reads(made, resolver, records)
    assert [(one.job, one.partitions, one.failing) for one in found] == (
        [(job("total"), lost, failing)] if lost else []
    )


SPARSE = """
[project]
namespace = "n"
[[dataset]]
name = "raw"
grain = "day"
start = "2024-03-01"
sparse = true
[[dataset]]
name = "clean"
grain = "day"
start = "2024-03-01"
[[job]]
name = "tidy"
"""


@pytest.mark.parametrize(
    ("stated", "failing"),
    [("", ("2024-03-04",)), ('reads = [{ dataset = "raw", on_missing = "guard" }]', "all")],
)
def test_a_key_of_a_sparse_input_is_no_gap_once_a_later_one_was_written(
    stated: str, failing: Any
) -> None:
    toml, edges = declarations(SPARSE + stated), lineage("raw > tidy > clean")
    made = plan(request(jobs={"tidy": "2024-03-01..2024-03-04"}), edges, toml)
    resolver = Resolver(edges, toml, now=datetime(2024, 3, 5, tzinfo=UTC))
    tables = {
        dataset("raw"): record(resolver, "raw", "2024-03-03"),
        dataset("clean"): record(resolver, "clean", ""),
    }
    (found,) = missing_reads(made, resolver, tables)
    expected = ("2024-03-01..2024-03-02", "2024-03-04") if failing == "all" else failing
    assert (found.partitions, found.failing) == (expected, expected)
    stale = find_stale(resolver, tables=tables, runs=lambda _job: (), jobs={job("tidy")})
    assert bool(stale[0].missing_inputs) == (failing == "all")


def test_the_default_of_a_sparse_input_is_shown() -> None:
    resolver = Resolver(lineage("raw > tidy > clean"), declarations(SPARSE), now=NOW)
    found = {one.name: one for one in of_job(resolver, job("tidy")) if one.edge.startswith("reads")}
    assert found["on_missing"].value == "read"
    assert "sparse" in found["on_missing"].place


def test_a_sparse_output_is_not_listed_as_missing() -> None:
    toml = declarations(SPARSE.replace('"clean"', '"other"').replace('"raw"', '"clean"'))
    resolver = Resolver(lineage("raw > tidy > clean"), toml, now=NOW)
    tables = {dataset("clean"): record(resolver, "clean", "2024-03-02")}
    (found,) = find_stale(resolver, tables=tables, runs=lambda _job: (), jobs={job("tidy")})
    assert not found.missing


def test_a_log_that_does_not_go_back_judges_nothing() -> None:
    toml, edges = declarations(TOML.format(word="fail")), lineage(EDGES)
    made = plan(request(jobs={"total": "2024-03-02"}), edges, toml)
    resolver = Resolver(edges, toml, now=NOW)
    tables = {dataset("hours"): record(resolver, "hours", "2024-03-01T00", since=True)}
    assert missing_reads(made, resolver, tables) == ()


def test_what_is_stale_names_what_its_inputs_lack() -> None:
    toml, edges = declarations(TOML.format(word="guard")), lineage(EDGES)
    now = datetime(2024, 3, 4, tzinfo=UTC)
    resolver = Resolver(edges, toml, now=now)
    records = {
        dataset("hours"): record(resolver, "hours", "2024-03-01T00..2024-03-03T20"),
        dataset("days"): record(resolver, "days", "2024-03-01..2024-03-02"),
    }
    total, copy = find_stale(
        resolver, tables=records, runs=lambda _job: (), jobs={job("total"), job("copy")}
    )[::-1]
    (lost,) = total.missing_inputs
    calendar = resolver.calendar(dataset("hours"))
    assert calendar is not None
    assert (lost.dataset, lost.keys) == (
        dataset("hours"),
        parse(calendar, ("2024-03-03T21..2024-03-03T23",)),
    )
    assert copy.missing_inputs == ()  # a job makes its input


@pytest.mark.parametrize(
    ("word", "written", "waiting"),
    [
        ("guard", "2024-03-01T00..2024-03-03T23", {}),
        (
            "guard",
            "2024-03-01T00..2024-03-01T05",
            {"total": "2024-03-02..2024-03-03", "copy": "2024-03-02..2024-03-03"},
        ),
        ("fail", "2024-03-02T00..2024-03-03T21", {"total": "2024-03-03", "copy": "2024-03-03"}),
        ("read", "", {}),
    ],
)
def test_what_fails_for_want_of_an_input_makes_what_reads_it_wait(
    word: str, written: str, waiting: dict[str, str]
) -> None:
    toml, edges = declarations(TOML.format(word=word)), lineage(EDGES)
    made = plan(request(jobs={"total": "2024-03-02..2024-03-03"}), edges, toml)
    resolver = Resolver(edges, toml, now=NOW)
    tables = {"hours": written, "days": "", "days_again": ""}
    records = {dataset(name): record(resolver, name, keys) for name, keys in tables.items()}
    days = resolver.calendar(dataset("days"))
    assert days is not None
    assert waiting_keys(made, resolver, records) == {
        job(name): parse(days, (keys,)) for name, keys in waiting.items()
    }


ALL = """
[[dataset]]
name = "days"
grain = "day"
start = "2024-03-01"
end = "2024-03-09"

[[dataset]]
name = "open"
keys = "runtime"

[[job]]
name = "total"
[[job.reads]]
dataset = "{source}"
mapping = "all"
on_missing = "{word}"
[[job.writes]]
dataset = "names"
mode = "full"

[[dataset]]
name = "names"
grain = "none"
"""


@pytest.mark.parametrize(
    ("source", "word", "written", "lost", "fails"),
    [
        ("days", "guard", "2024-03-01..2024-03-09", (), False),
        (
            "days",
            "guard",
            "2024-03-03",
            ("2024-03-01..2024-03-02", "2024-03-04..2024-03-09"),
            False,
        ),
        ("days", "fail", "2024-03-03..2024-03-09", ("2024-03-01..2024-03-02",), True),
        ("days", "guard", "", ("2024-03-01..2024-03-09",), True),
        ("days", "read", "", (), False),
        ("open", "guard", "*", (), False),
        ("open", "fail", "*", (), False),
        ("open", "fail", "", ("*",), True),
    ],
)
def test_all_of_an_input_needs_its_existing_keys(
    source: str, word: str, written: str, lost: tuple[str, ...], fails: bool
) -> None:
    toml, edges = (
        declarations(ALL.format(source=source, word=word)),
        lineage(f"{source} > total > names"),
    )
    made = plan(request(jobs={"total": None}), edges, toml)
    resolver = Resolver(edges, toml, now=NOW)
    calendar = resolver.calendar(dataset(source))
    assert calendar is not None
    table = record(resolver, source, written)
    if not written:  # its log goes back to its first commit, which added nothing
        table = TableRecord(changes=(Change(keys=PartitionSet(()), at=AT, version=0),))
    tables = {dataset(source): table}
    found = missing_reads(made, resolver, tables)
    assert [(one.partitions, bool(one.failing)) for one in found] == (
        [(lost, fails)] if lost else []
    )
    assert bool(waiting_keys(made, resolver, tables)) is fails
    tables[dataset("names")] = TableRecord(changes=table.changes[:0])
    (stale,) = find_stale(resolver, tables=tables, runs=lambda _job: (), jobs={job("total")})
    assert stale.stale
    assert [one.keys for one in stale.missing_inputs] == ([parse(calendar, lost)] if lost else [])
