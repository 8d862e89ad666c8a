"""Declared edges to datasets that nothing knows: a slip is refused, another dataset is believed."""

from __future__ import annotations

import re

import pytest

from lineage_backfill.critic.review import review
from lineage_backfill.errors import UnknownNameError
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.staleness.staleness import find_stale
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
        "w:flights_daily",
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
    toml = f'{DAYS}[[job]]\nname = "*"\n[[job.reads]]\ndataset = "flights_*"\n'
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml)
    assert not [text for text in made.warnings if "flights_*" in text]


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
    toml = f'{DAYS}[[job]]\nname = "{name}"\npriority = 2\n{more}'
    made = plan(request({"flights_daily": "2024-03-10"}), EDGES, toml)
    assert (MEANT.format(name) in made.warnings) is warned


WINDOW = '[[job.reads]]\ndataset = "flights_daily"\nmapping = "window"\nbefore = 6\n'
#: All that job `win` reads and writes.
EDGES_OF_WIN = f'{WINDOW}[[job.writes]]\ndataset = "rolling"\n'
#: A job of each length, each read by nothing else.
JOBS = (
    "flights_daily > rolling_week > weekly\nflights_daily > win > rolling\n"
    "flights_daily > e > exported"
)
GUARDS = {
    "protected": "protected = true\n",
    "idempotent": "idempotent = false\n",
    "reads": WINDOW,
    "writes": '[[job.writes]]\ndataset = "weekly"\nmode = "merge"\n',
}


def judge(table: str, jobs: str = JOBS) -> tuple[str, str, list[str]]:
    """How `impact`, `stale` and `config check` take a table: as one, or the test fails.

    Returns what is refused, its hint, and the warnings.
    """
    toml = f'{DAYS}{table}\n[[job]]\nname = "*"\nengine = "local"\n'
    known, declared = lineage(jobs), declarations(toml)
    findings = review(known, declared, now=NOW)
    errors = [one.hint for one in findings if one.level == "error"]
    asked = request({"flights_daily": "2024-03-10"})
    resolver = Resolver(known, declared, now=NOW)
    if errors:
        with pytest.raises(UnknownNameError) as caught:
            plan(asked, known, declared)
        with pytest.raises(UnknownNameError, match=re.escape(str(caught.value))):
            find_stale(resolver, tables={}, runs={}, jobs=())
        assert errors == [caught.value.hint]
        return str(caught.value), caught.value.hint, []
    find_stale(resolver, tables={}, runs={}, jobs=())
    warnings = [text for text in plan(asked, known, declared).warnings if "[[" in text]
    hints = [one.hint for one in findings if one.level == "warning"]
    is_doubted = any("did you mean" in text for text in warnings)
    assert any(re.match("Did you mean|The name exists in", hint) for hint in hints) >= is_doubted
    return "", "", warnings


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(
    "name",
    [
        "rolling_wek",
        "rollin_wek",  # a letter in each word
        "rolling_weeek",
        "rolling_wekk",
        "rolling_ewek",
        "rollnig_week",
        "Rolling_Week",
        "rolling-week",
        "rolling.week",
        "rollingweek",
        "rolling_wek*",
        "roling_*",
        "Rolling_W*",
        "rolling-we?k",
        "*_wek",
        "[Rr]oling_week",
    ],
)
def test_a_job_whose_table_is_misspelt_is_not_run_without_it(name: str, guard: str) -> None:
    refused, hint, _ = judge(f'[[job]]\nname = "{name}"\n{GUARDS[guard]}')
    assert repr(name) in refused
    assert refused.endswith(f"with `{guard}`")
    assert hint.startswith("Did you mean w:rolling_week? If it is ")
    assert hint.endswith("[[job]] name = 'rolling_week'.")


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("wim", WINDOW),
        ("wni", WINDOW),
        ("Win", WINDOW),
        ("Win", GUARDS["protected"]),
        ("wim*", WINDOW),
        ("win", f'namespace = "m"\n{WINDOW}'),
        ("win", f'namespace = "W"\n{GUARDS["protected"]}'),
        ("wi*", f'namespace = "W"\n{GUARDS["protected"]}'),
    ],
)
def test_a_short_name_is_refused_if_the_edges_are_those_of_the_job(name: str, more: str) -> None:
    refused, hint, _ = judge(f'[[job]]\nname = "{name}"\n{more}')
    assert repr(name) in refused
    assert hint.startswith("Did you mean w:win?")


@pytest.mark.parametrize("more", [GUARDS["protected"], GUARDS["idempotent"], WINDOW])
@pytest.mark.parametrize("name", ["w:win", "w.win", "w/win", "w:w[i]n", "w:wi*"])
def test_a_name_with_its_namespace_before_it_is_refused(name: str, more: str) -> None:
    refused, hint, _ = judge(f'[[job]]\nname = "{name}"\n{more}')
    assert repr(name) in refused
    assert hint.startswith("Did you mean w:win?")


@pytest.mark.parametrize(
    ("name", "more", "meant"),
    [
        # A short word or another namespace alone do not prove it.
        ("wim", GUARDS["protected"], "w:win"),
        ("wim*", GUARDS["protected"], "w:win"),
        ("win", f'namespace = "prod"\n{GUARDS["protected"]}', "w:win"),
        ("roll*", f'namespace = "prod"\n{GUARDS["protected"]}', "w:rolling_week"),
        ("rolllling_week", GUARDS["protected"], "w:rolling_week"),
        ("rollingsweek", GUARDS["protected"], "w:rolling_week"),
        ("trailing", EDGES_OF_WIN, "w:win"),  # or the job was renamed, and has not run yet
        # Nothing is lost that a run must not lose.
        ("rolling_wek", "priority = 2\n", "w:rolling_week"),
        ("roling_*", "priority = 2\n", "w:rolling_week"),
    ],
)
def test_a_table_that_may_be_misspelt_is_warned_about(name: str, more: str, meant: str) -> None:
    refused, _, (warning,) = judge(f'[[job]]\nname = "{name}"\n{more}')
    assert not refused
    assert repr(name) in warning
    assert warning.endswith(f"did you mean {meant}?")


ELSEWHERE = '[[job.reads]]\ndataset = "weather"\n[[job.writes]]\ndataset = "climate"\n'


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("rolling_month", EDGES_OF_WIN.replace('"rolling"', '"monthly"')),
        ("rolling_week_2", GUARDS["protected"]),
        ("rolling_week_eu", GUARDS["protected"]),
        ("rolling_wek", ELSEWHERE),  # another job: it reads and writes other data
        ("f", GUARDS["protected"]),
        ("f", WINDOW),
        ("E2", WINDOW),
        ("backup", GUARDS["protected"]),
        ("win", GUARDS["protected"]),  # the job itself
        ("win*", GUARDS["protected"]),
        ("*", f'namespace = "[w]"\n{GUARDS["protected"]}'),
    ],
)
def test_a_table_of_another_job_is_believed(name: str, more: str) -> None:
    refused, _, warnings = judge(f'[[job]]\nname = "{name}"\n{more}')
    assert not refused
    assert not [text for text in warnings if "did you mean" in text]


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ("a", "b"),
        ("day_1", "day_2"),
        ("store_2001", "store_2002"),
        ("load_eu", "load_us"),
        ("load_de", "load_dk"),
        ("load_de_2023", "load_de_2024"),
        ("region_a", "region_b"),
    ],
)
@pytest.mark.parametrize("more", [*GUARDS.values(), EDGES_OF_WIN])
@pytest.mark.parametrize("star", ["", "*"])
def test_siblings_are_other_jobs(known: str, name: str, more: str, star: str) -> None:
    """They differ in a number or a short word only, even where they read and write the same."""
    jobs = f"flights_daily > {known} > rolling"
    refused, _, warnings = judge(f'[[job]]\nname = "{name}{star}"\n{more}', jobs)
    assert not refused
    asked = [text for text in warnings if "did you mean" in text]
    assert not asked or name in ("load_dk", "region_b")  # a letter differs: it may be a slip


@pytest.mark.parametrize(
    "more",
    [
        '[[job]]\nname = "rolling_week"',
        '[[job]]\nname = "rolling_w*"',
        '[[job]]\nname = "*_week"\nnamespace = "w"',
    ],
)
def test_a_job_with_a_table_of_its_own_is_not_meant(more: str) -> None:
    assert not judge(f'[[job]]\nname = "roling_w*"\nprotected = true\n{more}')[0]


def test_a_shared_file_declares_patterns_for_what_is_not_there_yet() -> None:
    """They are warned about in one sentence."""
    patterns = "".join(
        f'[[job]]\nname = "{name}_*"\nprotected = true\n' for name in ("billing", "crm", "stock")
    )
    datasets = '[[dataset]]\nname = "invoice_*"\ngrain = "day"\n'
    refused, _, warnings = judge(patterns + datasets)
    assert not refused
    assert warnings == [
        "no dataset matches these patterns of [[dataset]]: 'invoice_*'",
        "no job matches these patterns of [[job]]: 'billing_*', 'crm_*', 'stock_*'",
    ]


@pytest.mark.parametrize(
    ("edges", "warned"),
    [
        ('reads = [{ dataset = "flights_hourly" }]', "reads 'flights_hourly'"),
        ('reads = [{ dataset = "hours_*" }]', "reads 'hours_*'"),
        ('writes = [{ dataset = "weekly?" }]', "writes 'weekly?'"),
        ('reads = [{ dataset = "flights_*" }, { dataset = "rol*" }]', "reads 'rol*'"),
        ('reads = [{ dataset = "flights_daily" }]', ""),
        ('writes = [{ dataset = "rolling" }]', ""),  # of one of its jobs
    ],
)
def test_an_edge_of_a_pattern_that_none_of_its_jobs_has_is_told(edges: str, warned: str) -> None:
    """It adds nothing, so its window or its mode is lost."""
    _, _, warnings = judge(f'[[job]]\nname = "[rw]*"\n{edges}')
    assert warnings == [f"no job of [[job]] '[rw]*' {warned} as declared"] * bool(warned)


@pytest.mark.parametrize(
    "name", ["flights_dayly", "Flights_Daily", "flights-daily", "flghts_daily", "flights_dialy"]
)
@pytest.mark.parametrize("star", ["", "*"])
def test_a_dataset_whose_table_is_misspelt_is_warned_about(name: str, star: str) -> None:
    refused, _, (warning,) = judge(f'[[dataset]]\nname = "{name}{star}"\ngrain = "hour"\n')
    assert not refused
    assert repr(name + star) in warning
    assert warning.endswith("did you mean w:flights_daily?")


@pytest.mark.parametrize("name", ["w:flights_daily", "w/flights_daily", "w:flights_d*"])
def test_a_dataset_with_its_namespace_in_its_name_is_warned_about(name: str) -> None:
    refused, _, (warning,) = judge(f'[[dataset]]\nname = "{name}"\ngrain = "hour"\n')
    assert not refused
    assert warning.endswith("did you mean w:flights_daily?")


@pytest.mark.parametrize("name", ["flights_daily_2", "weather", "flights_d*", "*"])
def test_a_table_of_another_dataset_is_believed(name: str) -> None:
    asked = f'[[dataset]]\nname = "{name}"\ngrain = "day"\n'
    assert judge(asked.replace("*", "*y") if name == "*" else asked) == ("", "", [])


@pytest.mark.parametrize(("name", "other"), [("load1", "load2"), ("ja", "jb"), ("ja", "jab")])
def test_names_that_differ_in_numbers_or_are_short_are_no_slips(name: str, other: str) -> None:
    toml = f'{DAYS}[[job]]\nname = "{other}"'
    made = plan(request({"a": "2024-03-10"}), f"a > {name} > b", toml)
    assert not [text for text in made.warnings if "did you mean" in text]
