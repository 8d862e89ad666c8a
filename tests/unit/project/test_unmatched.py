"""Names of the project file that are not known, with the nearest known names."""

from __future__ import annotations

import pytest

from lineage_backfill.critic.review import review
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.project.unmatched import Unmatched
from tests.unit.planning.world import NOW, declarations, lineage, plan, request

EDGES = """
flights_daily > rolling_week > weekly
flights_daily, airports > load_orders > orders
"""
ALL = '[[dataset]]\nname = "*"\ngrain = "day"\n'
READS = '[[job]]\nname = "rolling_week"\n[[job.reads]]\ndataset = "rates"\n'
NEW = 'engine = "local"\n[[job.writes]]\ndataset = "new"\n'


def found(toml: str, snapshot: LineageSnapshot | None = None) -> tuple[Unmatched, ...]:
    known = lineage(EDGES) if snapshot is None else snapshot
    return tuple(Resolver(known, declarations(ALL + toml), now=NOW).unmatched)


def test_a_table_can_say_that_its_name_is_expected() -> None:
    toml = '[[dataset]]\nname = "a"\nexpected = true\n[[job]]\nname = "j"\nexpected = true\n'
    read = declarations(toml)
    assert (read.datasets[0].expected, read.jobs[0].expected) == (True, True)
    assert found(toml) == ()


def test_an_unanswered_grain_states_none() -> None:
    (read,) = declarations('[[dataset]]\nname = "a"\ngrain = "?"\ncolumn = "ds"\n').datasets
    assert read.calendar is None


@pytest.mark.parametrize(
    ("toml", "place", "near"),
    [
        ('[[job]]\nname = "load_order"', '[[job]] "load_order"', ["w:load_orders"]),
        ('[[job]]\nname = "Load_Orders"', '[[job]] "Load_Orders"', ["w:load_orders"]),
        (
            '[[job]]\nname = "load_orders"\nnamespace = "x"',
            '[[job]] "load_orders"',
            ["w:load_orders"],
        ),
        ('[[job]]\nname = "billing"', '[[job]] "billing"', []),
        ('[[dataset]]\nname = "flights_dayly"', '[[dataset]] "flights_dayly"', ["w:flights_daily"]),
        ('[[dataset]]\nname = "w:orders"', '[[dataset]] "w:orders"', ["w:orders"]),
        (
            '[[job]]\nname = "rolling_week"\n[[job.reads]]\ndataset = "flights_dayly"',
            '[[job]] "rolling_week" [[job.reads]] "flights_dayly"',
            ["w:flights_daily"],
        ),
        (
            '[[job]]\nname = "*"\n[[job.writes]]\ndataset = "weakly"',
            '[[job]] "*" [[job.writes]] "weakly"',
            ["w:weekly"],
        ),
        # What the file alone makes reads known data.
        (
            f'[[job]]\nname = "new"\n{NEW}[[job.reads]]\ndataset = "weakly"',
            '[[job]] "new" [[job.reads]] "weakly"',
            ["w:weekly", "w:new"],
        ),
    ],
)
def test_a_name_that_is_not_known_is_reported_with_the_nearest(
    toml: str, place: str, near: list[str]
) -> None:
    (one,) = found(toml)
    assert (one.place, list(map(str, one.near))[:1]) == (place, near[:1])
    assert one.text.startswith(f"{place} is not known")


@pytest.mark.parametrize(
    "toml",
    [
        '[[job]]\nname = "load_orders"',
        '[[job]]\nname = "load_*"\n[[dataset]]\nname = "nothing_*"\ngrain = "day"',
        f'[[job]]\nname = "load_order"\n{NEW}',
        f'[[job]]\nname = "load_order"\nentrypoint = "a:b"\n{NEW}',
        '[[job]]\nname = "load_order"\nexpected = true\n[[job.writes]]\ndataset = "new"',
        f'[[dataset]]\nname = "rates"\n{READS}',
        f'{READS}[[job]]\nname = "load_orders"\n[[job.writes]]\ndataset = "rates"',
        '[[dataset]]\npattern = "day_{day:%Y%m%d}"',
    ],
)
def test_what_lineage_or_another_table_names_is_known(toml: str) -> None:
    assert found(toml) == ()


@pytest.mark.parametrize(
    ("toml", "near"),
    [
        ('[[dataset]]\nname = "flights_daily"\n', ["w:flights_daily", "w:flights_dayly"]),
        ('[[dataset]]\nname = "flights_hourly"\n', []),
        ("", []),
    ],
)
def test_without_lineage_only_near_misses_in_the_file_are_reported(
    toml: str, near: list[str]
) -> None:
    edges = (
        '[[job]]\nname = "j"\nengine = "local"\n[[job.reads]]\ndataset = "flights_dayly"\n'
        '[[job.writes]]\ndataset = "j_out"\n[[job]]\nname = "k"\n'
    )
    alone = LineageSnapshot.of([], source="project")
    names = {str(ref) for one in found(edges + toml, alone) for ref in one.near}
    assert names == set(near)


@pytest.mark.parametrize(
    ("toml", "refused"),
    [
        ('[[job]]\nname = "load_order"\nprotected = true', True),
        ('[[job]]\nname = "billing"', True),  # its job may be any
        ('[[dataset]]\nname = "weakly"\ngrain = "week"', True),
        ('[[dataset]]\nname = "airport"\ngrain = "none"', False),  # none that the plan uses
        ('[[dataset]]\nname = "something_else"\ngrain = "day"', False),
    ],
)
def test_run_refuses_a_plan_that_the_name_may_bear_on(toml: str, refused: bool) -> None:
    """The plan is made as if the table were not there, and says so."""
    asked = request({"flights_daily": "2024-03-10"}, select=("rolling_week",))
    edges = "flights_daily > rolling_week > weekly\nairports > load_airports > airports_2"
    made = plan(asked, edges, ALL + toml)
    (decision,) = made.decisions
    assert (decision.kind, decision.refused) == ("unmatched", refused)
    assert bool(made.refused) == refused
    allowed = request({"flights_daily": "2024-03-10"}, allow=frozenset({"unmatched"}))
    assert not plan(allowed, edges, ALL + toml).refused


def test_config_check_names_each_as_an_error() -> None:
    toml = (
        f'{ALL}[[job]]\nname = "load_order"\n[[job.reads]]\ndataset = "flights_dayly"\n'
        '[[dataset]]\nname = "weakly"\ngrain = "week"\n'
    )
    errors = [
        one for one in review(lineage(EDGES), declarations(toml), now=NOW) if one.level == "error"
    ]
    assert [(one.kind, one.place) for one in errors] == [
        ("unknown-dataset", '[[dataset]] "weakly"'),
        ("unknown-job", '[[job]] "load_order"'),
        ("unknown-dataset", '[[job]] "load_order" [[job.reads]] "flights_dayly"'),
    ]
    assert errors[1].hint == (
        "Nearest: w:load_orders. Correct the name; if it is right, set `expected = true`."
    )


def test_of_many_names_the_nearest_are_not_searched_for_all() -> None:
    toml = "".join(f'[[dataset]]\nname = "weekly_{number}"\n' for number in range(30))
    assert len(found(toml)) == 30
    assert found(toml)[-1].near == ()


@pytest.mark.parametrize(
    ("edge", "is_known"),
    [("dataset = 't'", True), ("dataset = 't'\nnamespace = 'w'", False), ("dataset = 'u'", False)],
)
def test_a_bare_name_of_an_edge_is_the_one_that_the_job_has(edge: str, is_known: bool) -> None:
    snapshot = lineage("lake:t > j > o\nother:t > k > p")
    toml = f"[[job]]\nname = 'j'\n[[job.reads]]\n{edge}"
    assert (found(toml, snapshot) == ()) is is_known
