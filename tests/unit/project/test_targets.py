"""`[target.NAME]` overlays the project file, the same for the tool and for Spark jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import ConfigError, UsageError
from lineage_backfill.project import Project, reader
from lineage_backfill.store.sql import SqlRunStore
from lineage_backfill.workspace.configuration import load_project
from spark_runtime.configuration import load_project as load_in_job

FILE = """
[project]
namespace = "shop"
[limits]
max_runs = 10
max_parallel = 2
[pools]
small = 1
[engines.here]
kind = "command"
argv = ["a", "{spec}"]
[[dataset]]
name = "orders"
grain = "day"
location = "dev/orders"
[[dataset]]
name = "d*"
grain = "hour"

[target.prod.limits]
max_runs = 1000
[target.prod.pools]
big = 4
[target.prod.engines.here]
argv = ["b", "{spec}"]
[[target.prod.dataset]]
name = "orders"
location = "prod/orders"
[[target.prod.dataset]]
name = "daily"
grain = "day"
[target.test.store]
url = "sqlite:///test.db"
"""


def load(folder: Path, text: str = FILE, **more: str) -> Project:
    (folder / "lineage-backfill.toml").write_text(text)
    flags = {name.removeprefix("flag_"): more.pop(name) for name in [*more] if "flag" in name}
    return load_project(folder, environ=more, user_file=folder / "none", flags=flags)


def test_a_target_overlays_tables_key_by_key_and_lists_by_name(tmp_path: Path) -> None:
    base, prod = load(tmp_path), load(tmp_path, flag_target="prod")
    assert (base.target, prod.target) == ("", "prod")
    assert (base.declarations.limits.max_runs, prod.declarations.limits.max_runs) == (10, 1000)
    assert prod.declarations.limits.max_parallel == 2
    assert prod.declarations.pools == {"small": 1, "big": 4}
    engines = {one.name: one for one in prod.declarations.engines}
    assert engines["here"].settings["argv"] == ["b", "{spec}"]
    datasets = {one.name: one for one in prod.declarations.datasets}
    assert str(datasets["orders"].location).endswith("prod/orders")
    assert datasets["orders"].calendar == base.declarations.datasets[0].calendar
    assert [one.name for one in prod.declarations.datasets] == ["daily", "orders", "d*"]


def test_each_target_keeps_its_own_records(tmp_path: Path) -> None:
    stores = {
        name: load(tmp_path, flag_target=name).store_url.removeprefix(f"sqlite:///{tmp_path}/")
        for name in ("", "prod", "test")
    }
    assert stores == {
        "": ".lineage-backfill/runs.db",
        "prod": ".lineage-backfill/targets/prod/runs.db",
        "test": "test.db",
    }
    assert load(tmp_path, flag_target="prod").outbox.parts[-3:] == ("targets", "prod", "lineage")


def test_a_job_reads_the_same_target_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = {"LINEAGE_BACKFILL_TARGET": "prod"}
    prod = load(tmp_path, **variable)
    assert prod.target == "prod"
    assert load(tmp_path, **variable, flag_target="test").target == "test"
    monkeypatch.setenv("LINEAGE_BACKFILL_TARGET", "prod")
    assert load_in_job(tmp_path).declarations == prod.declarations


@pytest.mark.parametrize(
    ("added", "target", "said"),
    [
        ("", "prd", "no target 'prd'"),
        ("[target.prod.stroe]\nurl = 'x'", "", "unknown key `stroe`"),
        ("[target.stage.store]\nulr = 'x'", "", "unknown key `ulr`"),
        ("[target.stage.project]\nnamespace = 'x'", "stage", "is the same in all targets"),
        ("[target.'a/b'.store]\nurl = 'sqlite:///x'", "", "invalid name of a target"),
        ("[target.stage.target.x]", "stage", "a target within a target"),
        ("[target.stage.limits]\nmax_runs = 0", "stage", "must be at least 1"),
        # A mistake is refused whichever target is chosen, not only once its own is.
        ("[target.stage.limits]\nmax_runs = 0", "", r"\[target.stage\] .*must be at least 1"),
        ("[[target.stage.dataset]]\nname = 'd'\nlocatoin = 'x'", "", "unknown key `locatoin`"),
        ("[[target.stage.dataset]]\nnam = 'd'", "prod", "unknown key `nam`|`name` is missing"),
        ("[[target.stage.job]]\nname = 'j'\npool = 'bgi'", "", "pool `bgi` is not declared"),
        ("[[target.stage.job]]\nname = 'j'\nengine = 'x'", "", "engine `x` is not declared"),
        ("[target.stage.engines.here]\nkind = 3", "", "`kind` must be"),
        ("[target.stage.pools]\nsmall = 0", "", "must be at least 1"),
        ("[[target.stage.notify]]\non = ['faild']", "", "`on`"),
        ("[target.stage.spark]\ncores = [1]", "", "must be one value"),
        ("[target.stage]\ndataset = [3]", "", r"`dataset` must be a list of tables"),
        # Nor does what the chosen target makes of a table hide a mistake of another one.
        ("[[job]]\nname = 'j'\npool = 'big'", "prod", r"\[target.test\] .*pool `big` is not"),
        (
            "[[job]]\nname = 'j'\npriority = 1\n[[target.stage.job]]\nname = 'j'\npriority = true",
            "",
            "`priority` must be a whole number",
        ),
        (
            (
                "[[dataset]]\nname = 'x'\nretention = 'all'"
                "\n[[target.prod.dataset]]\nname = 'x'\nretention = 3"
            ),
            "prod",
            r"\[target.test\] .*`retention` must be a whole number",
        ),
        (
            (
                "[[dataset]]\npattern = 't_{day:%Y%m%d}'"
                "\n[[dataset]]\nnamespace = 'n'\nname = 't'"
                "\n[[target.stage.dataset]]\npattern = 't_{day:%Y%m%d}'\nnamespace = 'n'"
            ),
            "prod",
            r'\[target.stage\] .*"t".*declared twice',
        ),
    ],
)
def test_what_is_wrong_with_a_target_is_refused(
    tmp_path: Path, added: str, target: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load(tmp_path, FILE + added, flag_target=target)


def test_a_mistake_outside_of_all_targets_is_not_blamed_on_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key `namespace`") as raised:
        load(tmp_path, "namespace = 'shop'" + FILE)
    assert "target" not in str(raised.value)


@pytest.mark.parametrize(
    "added",
    [
        "[[target.stage.job]]\nname = 'b'",
        "[[target.stage.job]]\nname = 'ab'",
        "[[target.stage.job]]\nname = 'day_2'",
        "[target.stage.pools]\ngpu = 1\n[[target.stage.job]]\nname = 'a'\npool = 'gpu'",
    ],
)
def test_a_target_adds_tables_and_what_they_use(tmp_path: Path, added: str) -> None:
    jobs = "[[job]]\nname = 'a'\n[[job]]\nname = 'day_1'\n"
    file = FILE.replace("[pools]", "[pools]\ncpu = 1")
    load(tmp_path, file + jobs + added, flag_target="stage")


def test_of_two_tables_of_one_name_the_namespace_tells_which_is_overridden(tmp_path: Path) -> None:
    base = "".join(f"[[dataset]]\nnamespace = '{n}'\nname = 'x'\nlocation = '{n}'\n" for n in "ab")
    base += "[[dataset]]\nname = 'y'\n"

    def overridden(*spaces: str) -> list[tuple[str | None, str, str | None]]:
        added = "".join(
            f"[[target.stage.dataset]]\n{space}\nname = '{name}'\nlocation = '/{number}'\n"
            for number, (space, name) in enumerate(one.split() for one in spaces)
        )
        declared = load(tmp_path, FILE + base + added, flag_target="stage").declarations.datasets
        return [(one.namespace, one.name, one.location) for one in declared if one.name in "xy"]

    a, b = (("a", "x", f"{tmp_path}/a"), ("b", "x", f"{tmp_path}/b"))
    y = (None, "y", None)
    assert overridden("namespace='b' x") == [a, ("b", "x", "/0"), y]
    assert overridden("namespace='b' x", "namespace='a' x") == [
        ("a", "x", "/1"),
        ("b", "x", "/0"),
        y,
    ]
    assert overridden("namespace='c' x", "namespace='c' y") == [
        ("c", "x", "/0"),
        a,
        b,
        ("c", "y", "/1"),
    ]
    with pytest.raises(ConfigError, match='"x": overrides several tables'):
        overridden("# x")
    with pytest.raises(ConfigError, match='"y": overridden twice'):
        overridden("# y", "namespace='c' y")


def test_an_override_may_add_what_bears_another_name(tmp_path: Path) -> None:
    added = """
[[dataset]]
name = "shop_1"
[[dataset]]
name = "order"
[[target.stage.dataset]]
name = "shop_2"
[[target.stage.dataset]]
name = "order"
location = "x"
[[target.stage.dataset]]
name = "e*"
[target.stage.pools]
small = 3
large = 4
"""
    assert load(tmp_path, FILE + added, flag_target="stage").declarations.pools["large"] == 4


def test_a_target_is_checked_without_its_secrets_and_with_its_own_hosts(tmp_path: Path) -> None:
    added = """
[target.stage]
lineage = { marquez = "http://m", api_key = "env:NOT_HERE" }
run = { notify_hosts = ["hooks.example.org"] }
store = { url = "env:NOR_THIS" }
[[target.stage.notify]]
on = ["failed"]
webhook = "https://hooks.example.org/x"
"""
    assert load(tmp_path, FILE + added).target == ""
    assert load(tmp_path, FILE + added, flag_target="prod").target == "prod"


def test_what_no_target_overlays_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[str] = []
    for name in ("read_dataset", "_job"):
        inner = getattr(reader, name)

        def counted(table: Any, place: str, *rest: Any, _inner: Any = inner, **more: Any) -> Any:
            tables.append(place)
            return _inner(table, place, *rest, **more)

        monkeypatch.setattr(reader, name, counted)
    added = "".join(f"[[dataset]]\nname = 'e{n}'\n[[job]]\nname = 'j{n}'\n" for n in range(20))
    load(tmp_path, FILE + added, flag_target="test")
    assert [place for place in tables if "[target.prod]" in place] == [
        f'{tmp_path}/lineage-backfill.toml [target.prod] [[dataset]] "{name}"'
        for name in ("daily", "orders")
    ]
    assert len(tables) == 2 + 2 + 40


def test_a_misspelt_target_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, flag_target="prd")
    assert "prod" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, '[project]\nnamespace = "n"\n', flag_target="prod")
    assert caught.value.hint == "It has no [target.…]."


def test_a_run_store_keeps_to_its_first_target(tmp_path: Path) -> None:
    for target in ("prod", "prod", "test"):
        store = SqlRunStore(f"sqlite:///{tmp_path}/runs.db")
        try:
            if target == "test":
                with pytest.raises(UsageError, match="keeps backfills of target 'prod'"):
                    store.keep_to(target)
            else:
                store.keep_to(target)
        finally:
            store.close()
