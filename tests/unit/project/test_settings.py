"""The project file: found, layered, read exactly as the formats document shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import ConfigError, DeclarationError
from lineage_backfill.project import Project
from lineage_backfill.project.declarations import (
    CalendarDeclaration,
    DimensionMapping,
    EngineDeclaration,
)
from lineage_backfill.workspace.configuration import find_file, lineage_origin, load_project

FULL = """
[project]
namespace = "nyc"
zone = "America/New_York"

[lineage]
marquez = "http://localhost:5000/"

[limits]
max_runs = 99

[pools]
spark = 2

[engines.cluster]
kind = "spark"
master = "yarn"

[spark]
master = "local[2]"
sql.shuffle.partitions = 4
ui.enabled = false

[[dataset]]
name = "flights_hourly"
grain = "hour"
zone = "UTC"
start = "2013-01-01T05"
data_lag = 2
retention = 720
columns = { hour_utc = "%Y-%m-%dT%H" }
format = "delta"
location = "data/flights_hourly"

[[dataset]]
name = "slots"
every = "8m"
start = 2013-01-01T05:30:00
column = "slot"
location = "s3://bucket/slots"

[[dataset]]
name = "by_region"
dimensions = [
  { name = "day", grain = "day", start = 2013-01-01, column = "ds" },
  { name = "region", keys = ["eu", "us"], column = "region" },
]

[[dataset]]
pattern = "public.orders_{day:%Y_%m_%d}"

[[dataset]]
name = "customers"
keys = "runtime"

[[job]]
name = "rolling_week"
engine = "local"
entrypoint = "pipeline.jobs:rolling_week"
batch = "range"
pool = "spark"
priority = 3
protected = true
idempotent = false
schedule = "0 0 6 ? * 2-6"
schedule_zone = "Europe/Berlin"
collect_schedule_gaps = true

[[job.reads]]
dataset = "flights_daily"
mapping = "window"
before = 6

[[job.reads]]
dataset = "by_region"
dimensions.region = { mapping = "all" }

[[job.reads]]
dataset = "states"
mapping = "map"
map = { eu = ["de", "fr"], us = "ny" }

[[job.writes]]
dataset = "rolling_week"
mode = "merge"
on_empty = "fail"
lookback = 3
"""

READS = "[[job]]\nname='j'\n[[job.reads]]\ndataset='d'\n"
WRITES = "[[job]]\nname='j'\n[[job.writes]]\ndataset='d'\n"


def load(folder: Path, text: str, **more: object) -> Project:
    (folder / "lineage-backfill.toml").write_text(text)
    arguments: dict[str, Any] = {"environ": {}, "user_file": folder / "no-user-file.toml"}
    return load_project(folder, **arguments | more)


def test_the_whole_file_as_the_formats_document_shows_it(tmp_path: Path) -> None:
    project = load(tmp_path, FULL)
    declared = project.declarations
    hourly, slots, region, orders, customers = declared.datasets
    assert (declared.namespace, declared.zone) == ("nyc", "America/New_York")
    assert hourly.calendar == CalendarDeclaration(
        grain="hour", zone="UTC", start="2013-01-01T05", data_lag=2
    )
    assert (hourly.retention, hourly.columns) == (720, {"hour_utc": "%Y-%m-%dT%H"})
    assert hourly.location == str(tmp_path / "data/flights_hourly")
    assert slots.calendar == CalendarDeclaration(every="8m", start="2013-01-01T05:30")
    assert (slots.columns, slots.location) == ({"slot": None}, "s3://bucket/slots")
    assert region.calendar is None
    assert [(d.name, d.column, d.calendar.keys) for d in region.dimensions] == [
        ("day", "ds", None),
        ("region", "region", ("eu", "us")),
    ]
    assert region.dimensions[0].calendar.start == "2013-01-01"
    assert (orders.name, orders.pattern) == ("public.orders", "public.orders_{day:%Y_%m_%d}")
    assert orders.calendar == CalendarDeclaration(grain="day")
    assert customers.calendar == CalendarDeclaration(keys="runtime")

    (job,) = declared.jobs
    assert (job.engine, job.batch, job.pool, job.priority) == ("local", "range", "spark", 3)
    assert (job.protected, job.idempotent) == (True, False)
    assert (job.schedule, job.schedule_zone) == ("0 0 6 ? * 2-6", "Europe/Berlin")
    assert job.collect_schedule_gaps
    window, product, static = job.reads
    assert (window.mapping, window.before, window.after) == ("window", 6, None)
    assert product.dimensions == {"region": DimensionMapping(mapping="all")}
    assert static.map == {"eu": ("de", "fr"), "us": ("ny",)}
    (write,) = job.writes
    assert (write.mode, write.on_empty, write.lookback) == ("merge", "fail", 3)

    assert declared.pools == {"spark": 2}
    assert (declared.limits.max_runs, declared.limits.max_parallel) == (99, 4)
    assert declared.engines == (
        EngineDeclaration(name="cluster", kind="spark", settings={"master": "yarn"}),
        EngineDeclaration(name="local", kind="local"),
    )
    assert project.spark == {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    assert project.lineage.marquez == "http://localhost:5000"
    assert project.store_url == f"sqlite:///{tmp_path}/.lineage-backfill/runs.db"
    assert (project.code, project.outbox) == (tmp_path, tmp_path / ".lineage-backfill/lineage")


def test_an_output_says_how_it_is_merged(tmp_path: Path) -> None:
    text = """
[[job]]
name = "j"
[[job.writes]]
dataset = "a"
mode = "merge"
merge_on = ["id"]
delete_when = "op = 'D'"
delete_missing = true
[[job.writes]]
dataset = "b"
unsafe_overwrite = true
"""
    merged, written = load(tmp_path, text).declarations.jobs[0].writes
    assert merged.merge_on == ("id",)
    assert (merged.delete_when, merged.delete_missing) == ("op = 'D'", True)
    assert (merged.unsafe_overwrite, written.unsafe_overwrite) == (None, True)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            f"{WRITES}mode='append'\ndelete_missing=true",
            '`delete_missing` needs mode = "merge"',
            "",
        ),
        ("[[dataset]]\nname='a'\ngrian='day'", '[[dataset]] "a": unknown key `grian`', "`grain`"),
        ("[limit]\nmax_runs=1", "unknown key `limit`", "`limits`"),
        ("[lineage]\nevent='x'", "[lineage]: unknown key `event`", "`events`"),
        ("[[dataset]]\nname='a'\ngrain='dya'", "`grain` is 'dya'", "`day`"),
        ("[[dataset]]\nname='a'\ngrain='day'\nkeys=['x']", "`grain` and `keys`", "Keep one"),
        ("[[dataset]]\nname='a'\ncron='* * * * *'\nevery='8m'", "`cron` and `every`", "Keep one"),
        ("[[dataset]]\nname='a'\nkeys=[]", "must list at least one key", ""),
        ("[[dataset]]\nname='a'\nkeys=['x', 'x']", "each only once", ""),
        ("[[dataset]]\nname='a'\nkeys='runtimes'", "not 'runtimes'", "`runtime`"),
        ("[[dataset]]\ngrain='day'", "[[dataset]] number 1: `name` is missing", ""),
        ("[[dataset]]\nname='a'\ngrain='day'\nzone='Europe/Berlni'", "not a time", "Berlin"),
        ("[[dataset]]\nname='a'\nretention='7'", "`retention` must be a whole number", ""),
        ("[[dataset]]\nname='a'\nretention=true", "must be a whole number, not true", ""),
        (
            "[[dataset]]\nname='a'\nretention=2024-01-02",
            "a whole number, not 2024-01-02",
            "",
        ),
        ("[[dataset]]\nname='a'\nlocation=['b']", "`location` must be a string, not a list", ""),
        ("[[job]]\nname='j'\nprotected='no'", "must be true or false, not 'no'", ""),
        ("[project]\nzone={a=1}", "`zone` must be a string, not a table", ""),
        ("[[dataset]]\nname='a'\nretention=0", "must be at least 1", "counts partition keys"),
        ("[[dataset]]\nname='a'\nretention=100001", "must be at most 100000", ""),
        ("[[dataset]]\nname='a'\ngrain='day'\ndata_lag=-2", "`data_lag` is -2, but must be", ""),
        ("[[dataset]]\nname='a'\ngrain='day'\ndata_lag=1000000", "at most 100000", ""),
        (f"{READS}mapping='window'\nbefore=1000000", "`before` is 1000000", ""),
        (f"{READS}mapping='window'\nafter=1000000", "`after` is 1000000", ""),
        (f"{READS}mapping='window'\nbefore=-2", "`before` is -2, but must be at least 0", ""),
        (f"{READS}mapping='offset'\nby=-1000000000", "must be at least -100000", ""),
        (f"{READS}mapping='offset'\nby=100001", "`by` is 100001", ""),
        (
            f"{READS}dimensions.day={{mapping='offset', by=-100001}}",
            '[[job]] "j" [[reads]] "d" dimensions.day: `by` is -100001',
            "",
        ),
        (f"{WRITES}lookback=1000000000", "`lookback` is 1000000000", ""),
        (f"{WRITES}lookback=-1", "`lookback` is -1, but must be at least 0", ""),
        (
            "[[dataset]]\nname='a'\ncron='0 0 6 * * 1-5'",
            """[[dataset]] "a": the cron expression '0 0 6 * * 1-5' has 6 fields""",
            "five fields",
        ),
        (
            "[[dataset]]\nname='a'\ndimensions=[{name='day', cron='61 * * * *'}]",
            """[[dimensions]] "day": the cron expression '61 * * * *' has a bad minute""",
            "0 to 59",
        ),
        ("[[job]]\nname='j'\nschedule='0 22-2 * * *'", "end lies before its start", "list both"),
        ("[[job]]\nname='j'\nschedule=''", "`schedule` is empty", ""),
        (
            "[[dataset]]\nname='a'\nlocation=\"a\\u0000\"",
            '[[dataset]] "a": `location` holds a NUL character',
            "Remove it",
        ),
        (
            "[[job]]\nname='j'\nschedule='@daily'\nschedule_zone='Europe/Berlni'",
            "`schedule_zone` 'Europe/Berlni' is not a time zone",
            "Berlin",
        ),
        (
            "[[job]]\nname='j'\nschedule_zone='UTC'",
            '"j": has `schedule_zone` without a `schedule`',
            "Add the cron expression",
        ),
        (
            "[[job]]\nname='j'\ncollect_schedule_gaps=true",
            "has `collect_schedule_gaps` without a `schedule`",
            "Add the cron expression",
        ),
        ("[[job]]\nname='j'\nschedule='@daily'\ncollect_schedule_gaps=1", "true or false", ""),
        (
            "[[job]]\nname='j'\nkeys=['a']\nschedule='@daily'\ncollect_schedule_gaps=true",
            "has `collect_schedule_gaps`, but static keys have no time",
            "declare the time as a dimension",
        ),
        ("[[dataset]]\npattern='a_{shop}'\nstart='2024-01-01'", "static keys have no time", ""),
        ("[[dataset]]\npattern='a_{shop}'\nretention=3", "static keys have no time", ""),
        ("[[dataset]]\nname='a'\ngrain='year'\nstart=2013", "must be a partition key", "quotes"),
        ("[[dataset]]\nname='a'\ncolumn='x'\ncolumns={y='%d'}", "`column` and `columns`", "Keep"),
        ("[[dataset]]\nname='a'\nlocation='x'\ntable='y'", "`location` and `table`", "Keep"),
        ("[[dataset]]\npattern='a'", "no placeholder", "Mark the part"),
        ("[[job]]\nname='j'\nbatch='ranges'", "`batch` must be", ""),
        ("[[job]]\nname='j'\nbatch=0", "`batch` must be", ""),
        ("[[job]]\nname='j'\nentrypoint='rm -rf'", "`module:function` or the path", ""),
        (
            "[[job]]\nname='j'\n[[job.reads]]\ndataset='d'\nmapping='python'\nfunction='a.py'",
            "`function` must be `module:function`, not 'a.py'",
            "",
        ),
        ("[[job]]\nname='j'\n[[job.reads]]\ndataset='d'\nbefore=1", "mapping 'window'", "Add"),
        ("[[job]]\nname='j'\n[[job.reads]]\ndataset='d'\nmapping='offset'", "needs `by`", ""),
        ("[[job]]\nname='j'\n[[job.reads]]\ndataset='d'\nmapping='python'", "`function`", ""),
        ("[[dataset]]\nname='a'\nnamespace='*'", "is a pattern", "Name one"),
        (
            "[[dataset]]\npattern='a_{d:%Y%m%d}'\nnamespace='n*'",
            "is a pattern, and the name",
            "Name one",
        ),
        ("[[job]]\nname='a'\nnamespace='*'", "is a pattern", "Name one"),
        ("[[job]]\nname='a'\nnamespace='n?'", "is a pattern", "Name one"),
        ("[[job]]\nname='a'\nnamespace='[n]'", "is a pattern", "Name one"),
        (
            "[[dataset]]\nname='a'\nnamespace='db://[::1]:[56]'",
            "is a pattern, and the name",
            "Name one",
        ),
        (
            "[[job]]\nname='a'\n[[job.reads]]\ndataset='b'\nnamespace='*'",
            "is a pattern, and the name",
            "Name one",
        ),
        (
            "[[job]]\nname='a'\n[[job.writes]]\ndataset='b'\nnamespace='*'",
            "is a pattern, and the name",
            "Name one",
        ),
        (
            "[[job]]\nname='j'\n[[job.writes]]\ndataset='d'\n[[job.writes]]\ndataset='d'",
            "its edge to `d` twice",
            "Keep one",
        ),
        ("[lineage]\nmarquez='localhost:5000'", "not an http address", ""),
        ("[lineage]\nmarquez='http://x'\nevents='y'", "`marquez` and `events`", "Keep one"),
        ("[store]\nurl='runs.db'", "not a database URL", "sqlite:///"),
        ("name = ", "not valid TOML", ""),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_the_next_step(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "lineage-backfill.toml" in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[dataset]]\nname='a'\n[[dataset]]\nname='a'", "`a` is declared twice"),
        ("[[job]]\nname='j'\nengine='clutser'\n[engines.cluster]", "engine `clutser`"),
        ("[[job]]\nname='j'\npool='sprak'\n[pools]\nspark=1", "pool `sprak`"),
    ],
)
def test_contradictions_are_declaration_errors(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        load(tmp_path, text)


@pytest.mark.parametrize("namespace", ["jdbc:mysql://h/db?ssl=true", "db://[::1]:5432", "[::1]"])
def test_an_address_beside_one_name_is_no_pattern(tmp_path: Path, namespace: str) -> None:
    text = f"[[job]]\nname='a'\nnamespace='{namespace}'"
    (job,) = load(tmp_path, text).declarations.jobs
    assert job.namespace == namespace


FROM_BOTH = {"OPENLINEAGE_URL": "http://sent:5000/", "MARQUEZ_URL": "http://marquez:5000"}


@pytest.mark.parametrize(
    ("text", "environ", "address", "said"),
    [
        ("", FROM_BOTH, "http://sent:5000/", "of OPENLINEAGE_URL; it overrides MARQUEZ_URL"),
        ("", {"MARQUEZ_URL": "http://marquez:5000"}, "http://marquez:5000", "of MARQUEZ_URL"),
        ("", {"OPENLINEAGE_URL": "console"}, None, ""),
        (
            '[lineage]\nmarquez = "http://own:5000"',
            FROM_BOTH,
            "http://own:5000",
            "toml; it overrides OPENLINEAGE_URL and MARQUEZ_URL",
        ),
        (
            '[lineage]\nmarquez = "http://sent:5000"',
            {"OPENLINEAGE_URL": "http://sent:5000/"},
            "http://sent:5000",
            "lineage-backfill.toml",
        ),
        ('[lineage]\nevents = ["a"]', FROM_BOTH, None, "from lineage.events of "),
        (
            "",
            FROM_BOTH | {"LINEAGE_BACKFILL_LINEAGE_MARQUEZ": "http://ours:5000"},
            "http://ours:5000",
            "of LINEAGE_BACKFILL_LINEAGE_MARQUEZ; it overrides OPENLINEAGE_URL and MARQUEZ_URL",
        ),
    ],
)
def test_what_senders_are_told_is_read_where_nothing_else_is_named(
    text: str, environ: dict[str, str], address: str | None, said: str, tmp_path: Path
) -> None:
    project = load(tmp_path, text, environ=environ)
    assert project.lineage.marquez == address
    assert said in lineage_origin(project, environ)


def test_flag_beats_environment_beats_project_beats_user_beats_default(tmp_path: Path) -> None:
    user = tmp_path / "user" / "config.toml"
    user.parent.mkdir()
    user.write_text("[limits]\nmax_runs=1\nmax_parallel=1\n[project]\nzone='UTC'\ncode='lib'")
    text = "[limits]\nmax_runs=2\nmax_parallel=2\n[project]\nnamespace='p'"
    project = load(
        tmp_path,
        text,
        user_file=user,
        environ={
            "LINEAGE_BACKFILL_LIMITS_MAX_RUNS": "3",
            "LINEAGE_BACKFILL_LIMITS_MAX_PARALLEL": "3",
        },
        flags={"limits.max_runs": 4, "lineage.marquez": None},
    )
    limits = project.declarations.limits
    assert (limits.max_runs, limits.max_parallel) == (4, 3)
    assert project.code == user.parent / "lib"
    origins = {setting.name: setting.origin for setting in project.settings}
    assert origins["limits.max_runs"] == "command line"
    assert origins["limits.max_parallel"] == "LINEAGE_BACKFILL_LIMITS_MAX_PARALLEL"
    assert origins["project.namespace"] == str(tmp_path / "lineage-backfill.toml")
    assert origins["project.code"] == str(user)
    assert origins["store.url"] == "default"


def test_one_source_of_lineage_hides_those_of_the_layers_below(tmp_path: Path) -> None:
    project = load(
        tmp_path,
        "[lineage]\nmarquez='http://x:5000'",
        environ={"LINEAGE_BACKFILL_LINEAGE_EVENTS": "a/*.ndjson:/b"},
    )
    assert project.lineage.marquez is None
    assert project.lineage.events == (str(tmp_path / "a/*.ndjson"), "/b")


def test_addresses_of_events_stand_in_a_variable_beside_paths(tmp_path: Path) -> None:
    given = "s3://lake:9000/lineage/*.ndjson /b\nhttp://me:pw@host:80/e.ndjson"
    project = load(tmp_path, "", environ={"LINEAGE_BACKFILL_LINEAGE_EVENTS": given})
    assert list(project.lineage.events) == given.split()


def test_an_unknown_variable_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LINEAGE_BACKFILL_STORE_ULR") as caught:
        load(tmp_path, "", environ={"LINEAGE_BACKFILL_STORE_ULR": "x"})
    assert "LINEAGE_BACKFILL_STORE_URL" in caught.value.hint


def test_a_file_that_nests_too_deep_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path, "a = " + "[" * 100_000)


@pytest.mark.parametrize("place", ["lineage.headers", "spark", "engines.x", "target.x", "any"])
def test_keys_with_too_many_dots_are_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="nested more than 50 levels deep"):
        load(tmp_path, f"{place}{'.a' * 5_000} = 1")


@pytest.mark.parametrize("tool", ["tool = 3", "tool = [1]", "[tool]\nlineage-backfill = 3"])
def test_a_pyproject_whose_tools_are_none_has_no_settings(tmp_path: Path, tool: str) -> None:
    (tmp_path / "pyproject.toml").write_text(tool)
    project = load_project(tmp_path, environ={}, user_file=tmp_path / "none.toml")
    assert project.file is None


@pytest.mark.parametrize("variable", ["STOREURL", "LINEGE_EVENTS", "MAX_RUNS", "X"])
def test_any_misspelt_variable_is_refused(tmp_path: Path, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"LINEAGE_BACKFILL_{variable}"):
        load(tmp_path, "", environ={f"LINEAGE_BACKFILL_{variable}": "x"})


@pytest.mark.parametrize(
    "variable", ["JARS", "TEST_POSTGRES", "SERVICE_HOST", "PORT_80_TCP", "WEB_SERVICE_PORT", "PORT"]
)
def test_variables_of_scripts_and_of_kubernetes_are_no_settings(
    tmp_path: Path, variable: str
) -> None:
    load(tmp_path, "", environ={f"LINEAGE_BACKFILL_{variable}": "x"})


def test_secrets_are_masked(tmp_path: Path) -> None:
    text = "[store]\nurl='postgresql+psycopg://me:pass@db/x'\n[lineage]\napi_key='k'"
    shown = {setting.name: setting.shown for setting in load(tmp_path, text).settings}
    assert shown["store.url"] == "postgresql+psycopg://me:***@db/x"
    assert shown["lineage.api_key"] == "***"
    assert shown["lineage.marquez"] == ""


def test_a_user_file_declares_no_datasets(tmp_path: Path) -> None:
    user = tmp_path / "config.toml"
    user.write_text("[[dataset]]\nname='a'")
    with pytest.raises(ConfigError, match="unknown key `dataset`"):
        load(tmp_path, "", user_file=user)


def test_the_file_is_found_upward_and_beats_a_pyproject_beside_it(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")
    (tmp_path / "pyproject.toml").write_text("[tool.lineage-backfill.project]\nnamespace='x'\n")
    assert find_file(below) == tmp_path / "pyproject.toml"
    project = load_project(below, environ={}, user_file=tmp_path / "none.toml")
    assert (project.declarations.namespace, project.root) == ("x", tmp_path)
    (tmp_path / "lineage-backfill.toml").write_text("")
    assert find_file(below) == tmp_path / "lineage-backfill.toml"


def test_without_any_file_the_defaults_hold_and_a_named_file_must_exist(tmp_path: Path) -> None:
    nowhere = tmp_path / "none.toml"
    project = load_project(tmp_path, environ={}, user_file=nowhere)
    assert (project.file, project.root, project.declarations.zone) == (None, tmp_path, "UTC")
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read"):
        load_project(tmp_path, file=Path("gone.toml"), environ={}, user_file=nowhere)


def test_the_package_imports_without_pydantic() -> None:
    code = "import lineage_backfill.project, sys; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("declared", "engine"),
    [
        ("", "local"),
        ("[engines.local]\nworkers = 1\n", "local"),
        ('[engines.mine]\nkind = "command"\nargv = ["run", "{spec}"]\n', None),
    ],
)
def test_a_job_with_an_entrypoint_runs_locally_where_no_other_engine_is_declared(
    tmp_path: Path, declared: str, engine: str | None
) -> None:
    file = tmp_path / "lineage-backfill.toml"
    jobs = '[[job]]\nname = "a"\nentrypoint = "m:f"\n[[job]]\nname = "b"\n'
    file.write_text(declared + jobs)
    project = load_project(file=file, environ={}, user_file=tmp_path / "none")
    assert [job.engine for job in project.declarations.jobs] == [engine, None]


@pytest.mark.parametrize("space", ["db://[::1]:5432", "db://[fe80::1%eth0]", "db://[2001:DB8::7]"])
def test_a_namespace_may_have_the_brackets_of_an_address(tmp_path: Path, space: str) -> None:
    (found,) = load(tmp_path, f"[[job]]\nname='a'\nnamespace='{space}'").declarations.jobs
    assert found.namespace == space
