"""What is stale: compared with tables that remember what each of their partitions was made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.keys import NOTHING, PartitionSet
from lineage_backfill.partitions.text import parse, render
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.plans.request import ChangedJob, Request
from lineage_backfill.staleness.record import Change, PartitionBuild, Run, TableRecord
from lineage_backfill.staleness.staleness import Staleness, find_stale
from tests.unit.planning.world import (
    dataset,
    declarations,
    job,
    keys,
    lineage,
    plan,
    shown,
    summary,
)

NOW = datetime(2024, 1, 11, 12, tzinfo=UTC)  # ten days are complete
DAYS = "[[dataset]]\nname = '*'\ngrain = 'day'\nstart = '2024-01-01'\n"
CHAIN = "raw > clean > tidy\n tidy > total > sums"


def at(hour: float) -> datetime:
    """Return an instant so many hours after the newest complete day."""
    return NOW + timedelta(hours=hour)


class World:
    """A lineage with what the logs of its tables and recorded runs tell."""

    def __init__(self, edges: str = CHAIN, toml: str = DAYS, **seen: Collection[str]) -> None:
        self.snapshot = lineage(edges)
        self.declared = declarations(toml)
        self.resolver = Resolver(self.snapshot, self.declared, now=NOW, seen=seen)
        self.tables: dict[DatasetRef, TableRecord] = {}
        self.runs: dict[JobRef, list[Run]] = {}

    def parse(self, name: str, text: str) -> PartitionSet:
        calendar = self.resolver.calendar(dataset(name))
        assert calendar is not None
        return parse(calendar, keys(text))

    def table(self, name: str, *commits: tuple[str, float], **rest: object) -> None:
        """Let a log tell of commits: (keys, hour); the last one of each key counts."""
        changes, seen = [], NOTHING
        for number in range(len(commits) - 1, -1, -1):
            text, hour = commits[number]
            own = self.parse(name, text) - seen
            seen |= own
            changes.append(Change(keys=own, at=at(hour), version=number))
        changes.reverse()
        builds = [PartitionBuild(keys=one.keys, at=one.at) for one in changes]
        values: dict[str, object] = {"changes": tuple(changes), "builds": tuple(builds)}
        self.tables[dataset(name)] = TableRecord(**(values | rest))  # type: ignore[arg-type]

    def run(self, name: str, text: str, start: float, end: float | None) -> None:
        calendar = self.resolver.job(job(name)).calendar
        assert calendar is not None
        run = Run(
            keys=parse(calendar, keys(text)),
            started_at=at(start),
            ended_at=None if end is None else at(end),
        )
        self.runs.setdefault(job(name), []).append(run)

    def stale(self, since: datetime | None = None) -> dict[str, Staleness]:
        found = find_stale(
            self.resolver,
            tables=self.tables,
            runs=lambda job: self.runs.get(job, ()),
            jobs=self.resolver.edges.jobs,
            since=since,
        )
        return {one.job.name: one for one in found}

    def says(self, name: str, since: datetime | None = None) -> dict[str, str]:
        """Return what is said of a job, as texts."""
        one = self.stale(since)[name]
        calendar = one.calendar
        assert calendar is not None

        def text(found: PartitionSet) -> str:
            return shown(render(calendar, found)) if found else ""

        said = {
            "missing": text(one.missing),
            **{f"older than {older.dataset.name}": text(older.keys) for older in one.older},
            "running": text(one.running),
            "unjudged": text(one.unjudged),
        }
        return {what: value for what, value in said.items() if value}


ALL = "2024-01-01..2024-01-10"


def test_a_slice_with_an_active_run_does_not_count() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03..2024-01-04", 9))
    world.table("tidy", ("2024-01-02..2024-01-10", 2))
    world.run("clean", "2024-01-01", 10, None)
    world.run("clean", "2024-01-03", 10, None)
    assert world.says("clean") == {
        "older than raw": "2024-01-04",
        "running": "2024-01-01, 2024-01-03",
    }


def test_a_change_while_it_ran_counts_where_the_beginning_is_known() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03", 5))
    world.table("tidy", (ALL, 6))
    assert world.says("clean") == {}  # committed later, and nobody tells when it began
    world.run("clean", ALL, 4, 7)
    assert world.says("clean") == {"older than raw": "2024-01-03"}


def test_the_versions_that_were_read_decide() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03", 5), ("2024-01-07", 6))
    for read, older in ((0, "2024-01-03, 2024-01-07"), (1, "2024-01-07"), (2, "")):
        build = PartitionBuild(keys=world.parse("tidy", ALL), at=at(9), read={dataset("raw"): read})
        world.tables[dataset("tidy")] = TableRecord(builds=(build,))
        assert world.says("clean") == ({"older than raw": older} if older else {})


def test_versions_of_a_table_that_was_made_again_since_say_nothing() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03", 5))
    for made, older in ((0.5, ALL), (2, "2024-01-03"), (6, "")):
        read = 0 if made == 2 else 50
        build = PartitionBuild(
            keys=world.parse("tidy", ALL), at=at(made), read={dataset("raw"): read}
        )
        world.tables[dataset("tidy")] = TableRecord(builds=(build,))
        assert world.says("clean") == ({"older than raw": older} if older else {})


def test_what_was_undone_is_as_old_as_what_it_holds_again() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-05..2024-01-06", 5))
    world.table("tidy", (ALL, 2))
    both = world.parse("tidy", "2024-01-05..2024-01-06")
    table = world.tables[dataset("tidy")]
    world.run("clean", "2024-01-05..2024-01-06", 6, 7)
    assert world.says("clean") == {}
    # One of the two was put back; nothing made what it holds now but the first commit.
    undone = Change(keys=world.parse("tidy", "2024-01-06"), at=at(8), version=2)
    kept = Change(keys=both - undone.keys, at=at(6.5), version=1)
    world.tables[dataset("tidy")] = TableRecord(
        changes=(*table.changes, kept, undone), builds=table.builds
    )
    assert world.says("clean") == {"older than raw": "2024-01-06"}


def test_a_run_that_made_nothing_is_known_by_its_record() -> None:
    world = World()
    world.table("raw", (ALL, 1))
    world.table("tidy", ("2024-01-01..2024-01-09", 2))
    world.run("clean", "2024-01-10", 3, 4)
    assert world.says("clean") == {}


def test_a_record_is_not_believed_against_a_later_commit() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03", 5))
    world.table("tidy", (ALL, 6))
    world.run("clean", ALL, 2, 3)  # long before the commit of somebody else
    assert world.says("clean") == {}


def test_runs_alone_tell_it_where_there_is_no_log() -> None:
    world = World()
    world.run("clean", "2024-01-02..2024-01-06", 1, 2)
    world.run("clean", "2024-01-03", 8, 9)
    world.run("total", "2024-01-02..2024-01-04", 3, 4)
    said = world.says("total")
    assert said == {
        "missing": "2024-01-05..2024-01-10",
        "older than tidy": "2024-01-03",
        "unjudged": "2024-01-01",
    }
    assert world.stale()["total"].why == ("the recorded runs do not go back so far",)
    # Nothing tells when the raw data changed.
    assert "it is not recorded when w:raw changed" in world.stale()["clean"].why


def test_what_nothing_is_known_of_is_not_judged() -> None:
    world = World()
    world.table("raw", (ALL, 1))
    assert world.says("clean") == {"unjudged": ALL}
    assert world.stale()["clean"].why == (
        "no table log and no recorded run shows when it was written",
    )
    blocked = World(toml="[[dataset]]\nname = 'raw'\ngrain = 'day'")
    assert blocked.stale()["clean"].why[0].startswith("the partitioning of w:tidy")


def test_a_log_that_was_cleaned_up_leaves_doubts() -> None:
    world = World()
    old = world.parse("tidy", "2024-01-01..2024-01-08")
    world.table("raw", ("2024-01-02", 1), ("2024-01-03", 5))
    world.table("tidy", ("2024-01-09..2024-01-10", 6), old=old, since=at(4))
    assert world.says("clean") == {"older than raw": "2024-01-03", "unjudged": "2024-01-02"}
    # And where it is not known what it held at its beginning, what it lacks may have been there.
    world.table("tidy", ("2024-01-09..2024-01-10", 6), since=at(4), whole=False)
    assert world.says("clean") == {"unjudged": "2024-01-01..2024-01-08"}


def test_a_run_that_made_nothing_clears_the_doubts_of_a_cleaned_log() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03..2024-01-04", 5))
    world.table("tidy", old=world.parse("tidy", ALL), since=at(4))
    world.run("clean", "2024-01-04", 6, 7)  # after the change, and nothing was to be committed
    said = world.says("clean")
    assert said["older than raw"] == "2024-01-03"
    assert "2024-01-04" not in said["unjudged"]


def test_a_key_that_is_being_made_is_not_unjudged() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-05", 5))
    world.table("tidy", ("2024-01-09..2024-01-10", 6), since=at(4), whole=False)
    world.table("sums")
    assert world.says("clean") == {"unjudged": "2024-01-01..2024-01-08"}
    world = World("raw > clean > tidy, extra")
    world.table("raw", (ALL, 1))
    world.table("tidy")
    world.table("extra", ("2024-01-09..2024-01-10", 6), since=at(4), whole=False)
    world.run("clean", "2024-01-02", 7, None)
    said = world.says("clean")
    assert said["running"] == "2024-01-02"
    assert said["missing"] == "2024-01-01, 2024-01-03..2024-01-10"
    assert "unjudged" not in said


@pytest.mark.parametrize(("on_missing", "lacking"), [("guard", ALL), ("fail", ALL), ("read", "")])
def test_an_input_that_may_be_missing_is_not_waited_for(on_missing: str, lacking: str) -> None:
    world = World(
        "raw > clean > tidy",
        f"{DAYS}[[job]]\nname = 'clean'\n"
        f"[[job.reads]]\ndataset = 'raw'\non_missing = '{on_missing}'\n",
    )
    world.tables[dataset("raw")] = TableRecord(changes=(Change(keys=NOTHING, at=at(1)),), builds=())
    world.table("tidy")
    found = world.stale()["clean"].missing_inputs
    assert shown([key for one in found for key in render(one.calendar, one.keys)]) == lacking


def test_an_input_that_changed_before_its_log_begins_leaves_doubts_about_what_is_older() -> None:
    world = World()
    old = world.parse("raw", "2024-01-01..2024-01-08")
    world.table("raw", ("2024-01-09..2024-01-10", 6), old=old, since=at(4))
    world.table("tidy", ("2024-01-01..2024-01-04", 2), ("2024-01-05..2024-01-10", 8))
    assert world.says("clean") == {"unjudged": "2024-01-01..2024-01-04"}


def test_of_several_outputs_the_oldest_counts() -> None:
    world = World("raw > clean > tidy, extra")
    world.table("raw", (ALL, 1), ("2024-01-05", 5))
    world.table("tidy", (ALL, 6))
    world.table("extra", ("2024-01-02..2024-01-10", 2))
    assert world.says("clean") == {"missing": "2024-01-01", "older than raw": "2024-01-05"}


def test_of_several_writers_each_answers_for_its_own_commits() -> None:
    world = World("raw > clean > tidy\n raw > fix > tidy")
    world.table("raw", (ALL, 1), ("2024-01-05", 5))
    commits = (("clean", ALL, 2), ("fix", "2024-01-05", 6))
    builds = [
        PartitionBuild(keys=world.parse("tidy", text), at=at(hour), job=job(name))
        for name, text, hour in commits
    ]
    world.tables[dataset("tidy")] = TableRecord(builds=tuple(builds))
    assert world.says("clean") == {"older than raw": "2024-01-05"}
    assert world.says("fix") == {"missing": "2024-01-01..2024-01-04, 2024-01-06..2024-01-10"}
    # A commit of which nobody tells whose it is says nothing of either.
    world.table("tidy", (ALL, 2))
    assert world.says("clean") == {"unjudged": ALL}


def test_of_several_writers_who_made_what_an_old_log_forgot_is_not_guessed() -> None:
    world = World("raw > clean > tidy\n raw > fix > tidy")
    world.table("raw", (ALL, 1))
    late = world.parse("tidy", "2024-01-09..2024-01-10")
    build = PartitionBuild(keys=late, at=at(6), job=job("clean"))
    old = world.parse("tidy", "2024-01-01..2024-01-08")
    world.tables[dataset("tidy")] = TableRecord(builds=(build,), old=old, since=at(4))
    assert world.says("clean") == world.says("fix") == {"unjudged": ALL}


def test_a_part_of_a_partition_is_not_judged_by_the_table() -> None:
    toml = DAYS + "[[dataset]]\nname = 'month'\ngrain = 'month'\nstart = '2023-12-01'\n"
    toml += "[[job]]\nname = 'add'\ngrain = 'day'\nstart = '2024-01-01'\n"
    toml += "[[job.writes]]\ndataset = 'month'\nmode = 'merge'\n"
    world = World("raw > add > month", toml)
    world.table("raw", (ALL, 1))
    world.table("month", ("2023-12-01", 2))
    world.run("add", "2024-01-01..2024-01-08", 3, 4)
    assert world.says("add") == {"missing": "2024-01-09..2024-01-10"}


def test_a_job_without_outputs_is_judged_by_its_runs() -> None:
    world = World("raw > mail > ")
    world.table("raw", (ALL, 1), ("2024-01-05", 9))
    world.run("mail", "2024-01-01..2024-01-09", 2, 3)
    assert world.says("mail") == {"missing": "2024-01-10", "older than raw": "2024-01-05"}


def test_unpartitioned_data_is_one_key() -> None:
    toml = DAYS + "[[dataset]]\nname = 'rates'\ngrain = 'none'\n"
    world = World("rates > clean > tidy\n tidy > all > rates", toml)
    world.table("rates", ("*", 9))
    world.table("tidy", (ALL, 2), ("2024-01-04", 10))
    assert world.says("clean")["older than rates"] == (
        "2024-01-01..2024-01-03, 2024-01-05..2024-01-10"
    )
    assert world.says("all") == {"older than tidy": "*"}


@pytest.mark.parametrize(
    "keys_of_job",
    [
        "keys = ['eu', 'us', 'asia']",
        "dimensions = [{name = 'region', keys = ['eu', 'us', 'asia']}]",
    ],
)
def test_static_keys_are_judged_by_the_table_whatever_its_column_is_called(
    keys_of_job: str,
) -> None:
    toml = "[[dataset]]\nname = '*'\nkeys = ['eu', 'us', 'asia']\ncolumn = 'region'\n"
    world = World("raw > clean > tidy", f"{toml}[[job]]\nname = 'clean'\n{keys_of_job}\n")
    world.table("raw", ("eu, us, asia", 1), ("us", 5))
    world.table("tidy", ("eu, us", 2))
    named = {"missing": "asia", "older than raw": "us"}
    if "dimensions" in keys_of_job:
        named = {"missing": "region=asia", "older than raw": "region=us"}
    assert world.says("clean") == named


STORES = """
[[dataset]]
name = "*"
dimensions = [
  { name = "day", grain = "day", start = "2024-01-09" }, { name = "store", keys = "runtime" },
]
"""


def test_of_runtime_keys_those_are_missing_that_an_input_holds() -> None:
    world = World("raw > clean > tidy", STORES, store=("eu", "us"))
    world.table(
        "raw", ("day=2024-01-09/store=eu,day=2024-01-09/store=us,day=2024-01-10/store=eu", 1)
    )
    world.table("tidy", ("day=2024-01-09/store=eu", 2))
    assert world.says("clean") == {
        "missing": "day=2024-01-09/store=us, day=2024-01-10/store=eu",
    }


def test_a_period_is_missing_if_no_input_tells_its_runtime_keys() -> None:
    days = '[[dataset]]\nname = "raw"\ngrain = "day"\nstart = "2024-01-09"\n'
    world = World("raw > clean > tidy", days + STORES, store=("eu", "us"))
    world.table("raw", ("2024-01-09, 2024-01-10", 1), ("2024-01-09", 3))
    world.table("tidy", ("day=2024-01-09/store=eu", 2))
    assert world.says("clean") == {
        "missing": "day=2024-01-10/store=*",
        "older than raw": "day=2024-01-09/store=eu",
    }


def test_old_keys_can_be_left_out() -> None:
    world = World()
    world.table("raw", (ALL, 1), ("2024-01-03", 9))
    world.table("tidy", ("2024-01-02..2024-01-08", 2))
    since = datetime(2024, 1, 4, tzinfo=UTC)
    assert world.says("clean", since) == {"missing": "2024-01-09..2024-01-10"}
    # The key whose interval holds the instant has not ended by then.
    world.table("raw", (ALL, 1), ("2024-01-03..2024-01-04", 9))
    for when in (since, since + timedelta(hours=23)):
        assert world.says("clean", when)["older than raw"] == "2024-01-04"


def test_a_request_for_what_is_stale_runs_that_and_what_follows_from_it() -> None:
    write = "[[job]]\nname = 'clean'\n[[job.writes]]\ndataset = 'tidy'\nlookback = 2"
    world = World(toml=DAYS + write)
    world.table("raw", (ALL, 1))
    world.table("tidy", ("2024-01-01..2024-01-04", 2), ("2024-01-06..2024-01-10", 3))
    world.table("sums", (ALL, 4))
    (asked,) = [one.asked() for one in world.stale().values() if one.stale]
    # The keys are all that is stale: lookback does not widen them.
    assert asked == ChangedJob(job=job("clean"), keys=("2024-01-05",), exact=True)
    made = plan(Request(jobs=(asked,)), world.snapshot, world.declared, now=NOW)
    assert summary(made) == {"clean": "2024-01-05", "total": "2024-01-05"}
    both = Request(jobs=(ChangedJob(job=job("clean"), keys=("2024-01-05",)), asked))
    wider = plan(both, world.snapshot, world.declared, now=NOW)
    assert summary(wider)["clean"] == "2024-01-03..2024-01-05"


# --- against tables that remember ---------------------------------------------------------------


@dataclass
class Remembering:
    """Tables that know for each partition what it was made from; stale is what is not so now."""

    world: World
    contents: dict[tuple[str, PartitionSet], object] = field(default_factory=dict)
    number: int = 0

    def put(self, name: str, key: PartitionSet, made_from: object = None) -> None:
        """Write a partition; what is written is never what was there before."""
        self.number += 1
        self.contents[name, key] = (self.number, made_from)

    def now(self, name: str, key: PartitionSet) -> object:
        """Return what a job would make one key from."""
        facts = self.world.resolver.job(job(name))
        return tuple(
            (edge.dataset.name, one, (self.contents.get((edge.dataset.name, one)) or (0,))[0])  # type: ignore[index]
            for edge in facts.live
            if edge.mapping is not None
            for one in edge.mapping.required(edge.corrected_by(key)).singles()
        )

    def is_stale(self, name: str, key: PartitionSet) -> bool:
        """Whether a key was never made, or would be made from something else now."""
        held = self.contents.get((TABLE_OF[name], key))
        return held is None or held[1] != self.now(name, key)  # type: ignore[index]


EDGES = "a > one > b\n a, b > two > c\n b, c, d > three > d\n"
TOML = DAYS.replace("'*'", "'[abd]'") + (
    "[[dataset]]\nname = 'c'\ngrain = 'week'\nstart = '2024-W01'\n"
    "[[job]]\nname = 'one'\n[[job.reads]]\ndataset = 'a'\nmapping = 'window'\nbefore = 2\n"
    "[[job.writes]]\ndataset = 'b'\nlookback = 1\n"
    "[[job]]\nname = 'three'\n[[job.reads]]\ndataset = 'd'\nmapping = 'offset'\nby = -1\n"
)
TABLE_OF = {"one": "b", "two": "c", "three": "d"}
STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "one", "two", "three"]), st.integers(0, 9)), max_size=40
)
#: A commit: what it wrote, when, and the newest version of each table at that time.
Commit = tuple[PartitionSet, float, Mapping[DatasetRef, int]]


@given(STEPS, st.booleans())
def test_stale_is_what_would_be_made_from_something_else(
    steps: list[tuple[str, int]], told: bool
) -> None:
    world = World(EDGES, TOML)
    tables = Remembering(world)
    commits: dict[str, list[Commit]] = {name: [] for name in "abcd"}
    for hour, (name, number) in enumerate(steps, 1):
        table = TABLE_OF.get(name, name)
        calendar = world.resolver.calendar(dataset(table))
        assert calendar is not None
        existing = list(calendar.existing.singles())
        key = existing[number % len(existing)]
        tables.put(table, key, None if name == "a" else tables.now(name, key))
        versions = {dataset(other): len(found) - 1 for other, found in commits.items()}
        commits[table].append((key, hour, versions))
    for name, found in commits.items():
        world.tables[dataset(name)] = recorded(found, told=told)
    for name, one in world.stale().items():
        assert one.calendar is not None
        expected = NOTHING
        for key in one.calendar.existing.singles():
            if tables.is_stale(name, key):
                expected |= key
        assert one.stale == expected, name
        assert not one.unjudged


def recorded(commits: Iterable[Commit], *, told: bool) -> TableRecord:
    """Return what the log of these commits tells, with the versions that were read or without."""
    last = {key: (version, hour, read) for version, (key, hour, read) in enumerate(commits)}
    ordered = sorted(last.items(), key=lambda item: item[1][0])
    return TableRecord(
        changes=tuple(
            Change(keys=key, at=at(hour), version=version) for key, (version, hour, _) in ordered
        ),
        builds=tuple(
            PartitionBuild(keys=key, at=at(hour), read=read if told else {})
            for key, (_, hour, read) in ordered
        ),
    )


def test_many_partitions_with_a_commit_each_are_judged() -> None:
    count = 5_000
    toml = "[[dataset]]\nname = '*'\ngrain = 'hour'\nstart = '2021-01-01T00'\n"
    world = World("raw > clean > tidy", toml)
    (first,) = world.parse("raw", "2021-01-01T00").singles()
    ((ordinals, _),) = first.boxes
    for name, late in (("raw", 0.0), ("tidy", 0.5)):
        changes = [
            Change(
                keys=PartitionSet(((ordinals.shift(number), 1),)),
                at=at(number + late),
                version=number,
            )
            for number in range(count)
        ]
        builds = tuple(PartitionBuild(keys=one.keys, at=one.at) for one in changes)
        world.tables[dataset(name)] = TableRecord(changes=tuple(changes), builds=builds)
    one = world.stale()["clean"]
    assert one.missing.ordinals.lo == ordinals.lo + count
    assert one.older == ()


@pytest.mark.parametrize(("hour", "said"), [(2, "older than raw"), (0.5, "unjudged")])
def test_a_key_that_was_perhaps_never_built_is_stale_once_its_input_is_newer(
    hour: float, said: str
) -> None:
    """It was built at most as late as the file that may hold it; before that, nothing is known."""
    world = World("raw > clean > tidy")
    world.table("raw", ("2024-01-03", hour))
    perhaps = PartitionBuild(keys=world.parse("tidy", "2024-01-03"), at=at(1), is_certain=False)
    rest = [
        PartitionBuild(keys=world.parse("tidy", text), at=at(1))
        for text in ("2024-01-01..2024-01-02", "2024-01-04..2024-01-10")
    ]
    world.table("tidy", builds=(*rest, perhaps))
    assert world.says("clean") == {said: "2024-01-03"}
