"""What is wrong with an engine's settings is said in the words of the project file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import date
from math import inf, nan
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.engines import create_engine
from lineage_backfill.errors import ConfigError, EnvironmentMissingError
from lineage_backfill.ports import Engine

if TYPE_CHECKING:
    from decimal import Decimal

AIRFLOW = {"url": "http://a", "token": "t"}


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("command", {"command": ["sh"]}, "an engine of kind 'command' has no setting 'command'"),
        ("command", {}, "an engine of kind 'command' needs the setting 'argv'"),
        ("command", {"argv": []}, "the settings of engine 'command' do not fit: `argv` is empty"),
        ("local", {"slot": 2}, "an engine of kind 'local' has no setting 'slot'"),
        ("spark", {"mastr": "x"}, "an engine of kind 'spark' has no setting 'mastr'"),
        ("airflo", {}, "there is no engine of kind 'airflo'"),
        (
            "spark",
            {"master": "sc://host:15002", "jars": []},
            "`jars` has no meaning with Spark Connect",
        ),
    ],
)
def test_a_setting_that_an_engine_does_not_take(
    tmp_path: Path, kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path)
    assert refused.value.message == said
    assert refused.value.hint


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("local", {"memory": 4}, "`memory` must be a string, not 4"),
        ("local", {"python": 4}, "`python` must be a string, not 4"),
        ("local", {"python": date(2024, 1, 2)}, "`python` must be a string, not 2024-01-02"),
        ("local", {"python": ["python3"]}, "`python` must be a string, not a list"),
        ("local", {"workers": 1.5}, "`workers` must be a whole number, not 1.5"),
        ("local", {"workers": True}, "`workers` must be a whole number, not true"),
        ("local", {"workers": nan}, "`workers` must be a whole number, not nan"),
        ("local", {"workers": "2"}, "`workers` must be a whole number, not '2'"),
        ("local", {"workers": 2**63}, "`workers` is too large: a whole number has at most 64 bits"),
        ("local", {"idle_seconds": nan}, "`idle_seconds` must be a finite number, not nan"),
        ("local", {"idle_seconds": inf}, "`idle_seconds` must be a finite number, not inf"),
        ("local", {"idle_seconds": True}, "`idle_seconds` must be a number, not true"),
        ("local", {"idle_seconds": 10**400}, "`idle_seconds` is too large: a whole number has"),
        ("local", {"env": "x"}, "`env` must be a table, not 'x'"),
        ("local", {"env": {"PORT": 1}}, "`env.PORT` must be a string, not 1"),
        ("local", {"env": {"DB_PASSWORD": 1}}, "`env.DB_PASSWORD` must be a string, not ***"),
        ("local", {"command": "worker"}, "`command` must be a list of strings, not 'worker'"),
        ("command", {"argv": "true"}, "`argv` must be a list of strings, not 'true'"),
        ("command", {"argv": ["a", 1]}, "item 2 of `argv` must be a string, not 1"),
        ("command", {"argv": ["a"], "undo": "no"}, "`undo` must be true or false, not 'no'"),
        ("command", {"argv": ["a"], "undo": 1}, "`undo` must be true or false, not 1"),
        ("spark", {"packages": "x"}, "`packages` must be a list of strings, not 'x'"),
        ("spark", {"files": "x"}, "`files` must be a list of strings, not 'x'"),
        ("spark", {"jars": "x"}, "`jars` must be a list of strings, not 'x'"),
        ("spark", {"jars": 0}, "`jars` must be a list of strings, not 0"),
        ("spark", {"jars": {}}, "`jars` must be a list of strings, not a table"),
        ("spark", {"arguments": [1]}, "item 1 of `arguments` must be a string, not 1"),
        ("spark", {"master": 4}, "`master` must be a string, not 4"),
        ("spark", {"deploy_mode": 4}, "`deploy_mode` must be one of client, cluster, not 4"),
        ("spark", {"workers": 1.5}, "`workers` must be a whole number, not 1.5"),
        ("spark", {"max_age": inf}, "`max_age` must be a finite"),
        ("airflow", AIRFLOW | {"url": 4}, "`url` must be a string, not 4"),
        ("airflow", AIRFLOW | {"url": ["http://a"]}, "`url` must be a string, not a list"),
        ("airflow", AIRFLOW | {"url": True}, "`url` must be a string, not true"),
        ("airflow", AIRFLOW | {"password": 1234}, "`password` must be a string, not ***"),
        ("airflow", AIRFLOW | {"poll": "5"}, "`poll` must be a number, not '5'"),
        ("airflow", AIRFLOW | {"timeout": nan}, "`timeout` must be a finite number, not nan"),
        ("airflow", AIRFLOW | {"undo": "no"}, "`undo` must be true or false, not 'no'"),
    ],
)
def test_a_setting_of_another_type(
    tmp_path: Path, kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path, name="mine")
    place, _, fault = said.partition("` ")
    assert refused.value.message.startswith(f"{place}` of engine `mine` {fault}")
    assert refused.value.hint
    assert refused.value.exit_code == 64


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("local", {"idle_seconds": 1e300}, "`idle_seconds` is 1e+300, but must be at most"),
        ("local", {"idle_seconds": 0}, "`idle_seconds` is 0, but must be more than 0"),
        ("spark", {"max_age": 2**60}, "but must be at most"),
        ("airflow", AIRFLOW | {"timeout": -1}, "`timeout` is -1, but must be more than 0"),
        ("airflow", AIRFLOW | {"poll": 1e12}, "`poll` is 1000000000000.0, but must be at most"),
    ],
)
def test_a_length_of_time_for_which_a_program_cannot_wait(
    tmp_path: Path, kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path)
    assert said in refused.value.message


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("local", {"workers": 2, "memory": "4g", "idle_seconds": 600, "env": {"A": "b"}}),
        ("local", {"idle_seconds": 0.5, "python": "python3", "conf": {"spark.a": "1"}}),
        ("command", {"argv": ["run", "{spec}"], "env": {}, "undo": True}),
        ("spark", {"jars": [], "py_files": ["a.zip"], "arguments": ["--verbose"]}),
        ("spark", {"master": "spark://h:1", "workers": 2, "max_age": 60}),
        ("spark", {"master": "yarn", "deploy_mode": "cluster"}),
        ("spark", {"conf": {"spark.master": "yarn"}, "deploy_mode": "cluster"}),
        ("airflow", {"url": "http://a", "username": "u", "password": "p", "poll": 1}),
        ("airflow", AIRFLOW | {"timeout": 2.5, "undo": False}),
    ],
)
def test_settings_that_fit(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    create_engine(kind, settings, project=tmp_path, state_dir=tmp_path).close()


@pytest.mark.parametrize(
    ("kind", "settings", "hint"),
    [
        ("spark-submit", {"master": "yarn"}, 'Write `kind = "spark"`'),
        ("spark-submit", {"slots": 2}, "Write `workers = 2`."),
        ("local", {"slots": 3}, "Write `workers = 3`."),
        ("spark", {"runs_at_once": 4}, "Write `workers = 4`"),
        ("spark", {"reuse": False}, '`deploy_mode = "cluster"`'),
        ("spark", {"orphan_seconds": 1}, "Remove it"),
        ("spark", {"stranded_seconds": 1}, "Remove it"),
        ("spark", {"max_runs_per_application": 1}, "`max_age`"),
    ],
)
def test_what_earlier_versions_had_is_refused_with_the_line_to_write(
    tmp_path: Path, kind: str, settings: dict[str, Any], hint: str
) -> None:
    with pytest.raises(ConfigError, match="any more") as refused:
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path)
    assert hint in refused.value.hint


# --- engines of other packages ---------------------------------------------------------------


class Acme(Engine):
    """An engine whose settings have annotations of all sorts."""

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        queue: str = "",
        ports: Sequence[int] = (),
        labels: Mapping[str, list[str]] | None = None,
        limit: int | str = 1,
        price: Decimal | None = None,
        shape: Shape = None,  # type: ignore[name-defined]  # noqa: F821
        fault: Exception | None = None,
        **more: Any,
    ) -> None:
        if fault is not None:
            raise fault


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("lineage_backfill.engines.ENGINES", {"acme": f"{__name__}:Acme"})
    monkeypatch.setitem(sys.modules, __name__, ModuleType(__name__))
    monkeypatch.setattr(sys.modules[__name__], "Acme", Acme, raising=False)
    return "acme"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"queue": 1}, "`queue` of engine `acme` must be a string, not 1"),
        ({"ports": 1}, "`ports` of engine `acme` must be a list of whole numbers, not 1"),
        ({"ports": [1, "2"]}, "item 2 of `ports` of engine `acme` must be a whole number, not '2'"),
        ({"labels": {"a": "b"}}, "`labels.a` of engine `acme` must be a list of strings, not 'b'"),
        ({"labels": {"a": [1]}}, "item 1 of `labels.a` of engine `acme` must be a string, not 1"),
        ({"limit": 1.5}, "`limit` of engine `acme` must be a whole number or a string, not 1.5"),
    ],
)
def test_annotated_settings_of_another_package(
    tmp_path: Path, acme: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(acme, settings, project=tmp_path, state_dir=tmp_path)
    assert refused.value.message == said


@pytest.mark.parametrize(
    "settings",
    [
        {"price": 1.5, "shape": [1], "colour": {"a": date(2024, 1, 1)}},
        {"queue": "q", "ports": [1], "labels": {"a": ["b"]}, "limit": "x"},
        {"limit": 3, "labels": {}},
    ],
)
def test_any_value_fits_where_an_annotation_says_nothing(
    tmp_path: Path, acme: str, settings: dict[str, Any]
) -> None:
    create_engine(acme, settings, project=tmp_path, state_dir=tmp_path)


@pytest.mark.parametrize(
    "fault", [AttributeError("x"), KeyError("x"), OSError("x"), ZeroDivisionError()]
)
def test_an_engine_that_cannot_be_made_is_named(
    tmp_path: Path, acme: str, fault: Exception
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(acme, {"fault": fault}, project=tmp_path, state_dir=tmp_path, name="mine")
    said = f"engine `mine` of kind 'acme' cannot be made: {type(fault).__name__}"
    assert refused.value.message.startswith(said)
    assert "report it to its package" in refused.value.hint


def test_an_engine_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lineage_backfill.engines.ENGINES", {"acme": "no_such_package:Acme"})
    with pytest.raises(ConfigError, match="`acme` of kind 'acme' cannot be made: ModuleNotFound"):
        create_engine("acme", {}, project=tmp_path, state_dir=tmp_path)


def test_an_error_with_a_code_of_its_own_is_kept(tmp_path: Path, acme: str) -> None:
    fault = EnvironmentMissingError("there is no acme")
    with pytest.raises(EnvironmentMissingError):
        create_engine(acme, {"fault": fault}, project=tmp_path, state_dir=tmp_path)


@pytest.mark.parametrize("name", ["project", "state_dir"])
def test_what_the_tool_gives_is_no_setting(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"kind 'local' has no setting '{name}'"):
        create_engine("local", {name: "x"}, project=tmp_path, state_dir=tmp_path)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("[engines.local]\nmemory = 4", "`memory` of engine `local` must be a string, not 4"),
        ('[engines.a]\nkind = "airflow"\nurl = 4', "`url` of engine `a` must be a string, not 4"),
        (
            '[engines.a]\nkind = "airflow"\nurl = "http://a"\npassword = 1234',
            "`password` of engine `a` must be a string, not ***",
        ),
        (
            '[engines.a]\nkind = "airflow"\nurl = "http://a"\ntoken = "t"\ntasks = 4',
            "[engines.a]: unknown key `tasks`",
        ),
        (
            '[engines.far]\nkind = "spark"\narguments = [1]',
            "item 1 of `arguments` of engine `far` must be a string, not 1",
        ),
    ],
)
def test_config_check_names_setting_and_engine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lines: str,
    said: str,
) -> None:
    copy = 'name = "copy"\nreads = [{ dataset = "a" }]\nwrites = [{ dataset = "b" }]'
    (tmp_path / "lineage-backfill.toml").write_text(f"[[job]]\n{copy}\n{lines}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["config", "check"]) == 64
    shown = capsys.readouterr()
    assert said in shown.out + shown.err
