"""What is missing from the environment is said before Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_runtime.errors import JarsMissingError, JavaMissingError, SessionError
from spark_runtime.session import (
    JARS_VARIABLE,
    LISTENER_SETTING,
    find_jars,
    get_session,
    jars_folder,
    listening,
    settings,
)


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("delta-spark_4.0_2.13-4.4.0.jar", "delta-storage-4.4.0.jar", "notes.txt"):
        (folder / name).touch()
    monkeypatch.setenv(JARS_VARIABLE, str(folder))
    return folder


def test_jars_are_found_in_a_folder_or_by_name(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_jars()
    assert [jar.name for jar in found] == [
        "delta-spark_4.0_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
    ]
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, found)))
    assert find_jars() == found


@pytest.mark.parametrize("spark", ["4.1.4", "4.2.0"])
def test_the_jar_is_that_of_the_installed_pyspark(
    jars: Path, monkeypatch: pytest.MonkeyPatch, spark: str
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: spark)
    with pytest.raises(JarsMissingError, match=rf"no delta-spark_{spark[:3]}_\*.jar"):
        find_jars()
    (jars / f"delta-spark_{spark[:3]}_2.13-4.4.0.jar").touch()
    assert [jar.name for jar in find_jars()] == [
        f"delta-spark_{spark[:3]}_2.13-4.4.0.jar",
        "delta-storage-4.4.0.jar",
    ]


def test_a_missing_jar_is_named_with_what_to_do(jars: Path) -> None:
    (jars / "delta-storage-4.4.0.jar").unlink()
    with pytest.raises(JarsMissingError, match=r"no delta-storage-\*.jar") as raised:
        find_jars()
    assert "scripts/fetch-jars" in raised.value.hint


def test_without_a_setting_the_cache_folder_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars_folder().name == "jars"
    assert jars_folder().parent.name == "lineage-backfill"
    monkeypatch.setattr("spark_runtime.session.jars_folder", lambda: tmp_path / "none")
    with pytest.raises(JarsMissingError, match="none"):
        find_jars()


def test_no_java_is_said(jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_runtime.session._running", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match="no Java found in JAVA_HOME") as raised:
        get_session()
    assert "JDK 17" in raised.value.hint


@pytest.mark.parametrize(("version", "shown"), [("11.0.2", "Java 11"), ("??", "unknown version")])
def test_an_old_java_is_said(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, shown: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr("spark_runtime.session._running", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissingError, match=shown):
        get_session()


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "spark_runtime", "run", "--spec", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("SpecError: run spec")
    assert "Traceback" not in done.stderr


def test_the_command_is_the_same_by_its_path_as_spark_submit_runs_it(tmp_path: Path) -> None:
    import spark_runtime.__main__ as command

    # Whatever is imported then is Delta's package, not our module of that name.
    program = (
        "import runpy, sys; sys.argv[1:] = ['run', '--spec', 'none.json']\n"
        f"sys.path[0] = {str(Path(command.__file__).parent)!r}\n"
        f"try: runpy.run_path({command.__file__!r}, run_name='__main__')\n"
        "except SystemExit as ended: import delta; print(ended.code, hasattr(delta, 'tables'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr.startswith("SpecError: run spec")
    assert done.stdout == "1 True\n"


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    environment = {**os.environ, JARS_VARIABLE: str(tmp_path)}
    command = [sys.executable, "-m", "spark_runtime", "worker", "--reply-fd", str(writing)]
    done = subprocess.run(
        command,
        pass_fds=(writing,),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading) as replies:
        (reply,) = replies.read().splitlines()
    assert done.returncode == 1
    assert '"op": "raised"' in reply
    assert "JarsMissingError" in reply


@pytest.mark.parametrize(
    ("conf", "listeners"),
    [
        ({}, None),
        ({LISTENER_SETTING: "false"}, None),
        ({LISTENER_SETTING: "true"}, "io.openlineage.spark.agent.OpenLineageSparkListener"),
        (
            {LISTENER_SETTING: "TRUE", "spark.extraListeners": "org.example.Mine"},
            "org.example.Mine,io.openlineage.spark.agent.OpenLineageSparkListener",
        ),
    ],
)
def test_the_listener_is_switched_on_beside_others(
    conf: dict[str, str], listeners: str | None
) -> None:
    assert listening(conf).get("spark.extraListeners") == listeners


def test_a_switch_of_the_listener_is_true_or_false() -> None:
    with pytest.raises(SessionError, match="listener = yes"):
        listening({LISTENER_SETTING: "yes"})


class Conf(dict[str, str]):
    """The settings of a session."""

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def session(name: str, **conf: str) -> Any:
    jvm = SimpleNamespace(sessionUUID=lambda: name)
    return SimpleNamespace(_jsparkSession=jvm, conf=Conf(conf))


@pytest.mark.parametrize("before", [{}, {"a": "own"}])
@pytest.mark.parametrize("values", [("1", "1"), ("1", "2")])
def test_settings_are_as_they_were_once_the_last_of_several_has_ended(
    before: dict[str, str], values: tuple[str, str]
) -> None:
    spark, other = session("one", **before), session("two", a="theirs")
    first, second = (settings(spark, {"a": value, "b": "x"}) for value in values)
    first.__enter__()
    with settings(other, {"a": "9"}):
        second.__enter__()
    assert spark.conf == {"a": values[1], "b": "x"}
    first.__exit__(None, None, None)  # those of one thread end in the middle of another's
    assert spark.conf == {"a": values[1], "b": "x"}
    second.__exit__(None, None, None)
    assert (spark.conf, other.conf) == (before, {"a": "theirs"})


def test_settings_within_others_end_before_them() -> None:
    spark = session("one")
    with settings(spark, {"a": "1"}):
        with settings(spark, {"a": "2"}), settings(spark, {"a": "1"}):
            assert spark.conf["a"] == "1"
        assert spark.conf["a"] == "1"
        with pytest.raises(ZeroDivisionError), settings(spark, {"a": "2"}):
            raise ZeroDivisionError
        assert spark.conf["a"] == "1"
    assert spark.conf == {}
