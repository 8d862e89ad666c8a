"""The command lines of spark-submit, and what clusters say of an application.

Their command lines are pinned, and answers like those of their programs are read; a real YARN is
in tests/services/test_yarn.py.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.spark import spark_submit
from lineage_backfill.engines.spark.clusters import Kubernetes, was_killed
from lineage_backfill.engines.spark.engine import spark_engine
from lineage_backfill.engines.spark.shipping import code_state, pack, pack_code
from lineage_backfill.engines.spark.spark_submit import SparkSubmitEngine
from lineage_backfill.engines.spark.yarn import Found, ResourceManager, Yarn
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.ports import AttemptState, EngineRun, Origin

DELTA = [
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a package, Spark's programs and one attempt, all of them empty."""
    (tmp_path / "pipeline" / "__pycache__").mkdir(parents=True)
    (tmp_path / "pipeline" / "jobs.py").write_text("x = 1\n")
    (tmp_path / "pipeline" / "__pycache__" / "jobs.cpython-311.pyc").write_bytes(b"")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "more.py").touch()
    program = tmp_path / "spark" / "bin" / "spark-submit"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (tmp_path / "runs").mkdir()
    job = {"namespace": "n", "name": "daily  totals", "entrypoint": "pipeline.jobs:daily"}
    spec = {"token": "t-1", "job": job, "result_path": str(tmp_path / "runs" / "result.json")}
    (tmp_path / "runs" / "spec.json").write_text(json.dumps(spec))
    return tmp_path


def engine(project: Path, **settings: Any) -> SparkSubmitEngine:
    home, places = str(project / "spark"), {"project": project, "state_dir": project / "state"}
    given = {"master": "yarn", "spark_home": home, "jars": [], **settings}
    made = spark_engine(**places, deploy_mode="cluster", **given)
    assert isinstance(made, SparkSubmitEngine)
    return made


def command(project: Path, **settings: Any) -> list[str]:
    """The command line; archives by name alone, their folder bears the hash of what is in them."""
    argv = list(engine(project, **settings).command(AttemptFiles(project / "runs" / "spec.json")))
    option = argv.index("--py-files") + 1
    archives = argv[option].split(",")
    assert all(str(project / "state") in one for one in archives[:2])
    argv[option] = ",".join(Path(one).name for one in archives)
    return [part.replace(str(project), "P") for part in argv]


def confs(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--conf", setting)]


@pytest.mark.usefixtures("manager")
def test_all_that_spark_submit_ships_is_passed_on(project: Path) -> None:
    argv = command(
        project,
        jars=["lib/a.jar", "hdfs://h/b.jar"],
        packages=["g:a:1", "g:b:2"],
        repositories=["file:///maven"],
        py_files=["extra", "lib/c.zip", "s3://b/d.zip"],
        files=["app.conf"],
        archives=["env.tar.gz#env"],
        arguments=["--queue", "night"],
        python="./env/bin/python",
        conf={"spark.sql.extensions": "mine"},
    )
    assert argv[1:] == [
        *("--master", "yarn", "--deploy-mode", "cluster"),
        *("--packages", "g:a:1,g:b:2", "--repositories", "file:///maven"),
        *("--jars", "P/lib/a.jar,hdfs://h/b.jar"),
        *("--py-files", "spark_runtime.zip,code.zip,extra.zip,c.zip,d.zip"),
        *("--files", "P/app.conf,P/runs/spec.json", "--archives", "P/env.tar.gz#env"),
        *("--name", "daily totals t-1"),
        *confs("spark.sql.extensions=mine", DELTA[1], "spark.pyspark.python=./env/bin/python"),
        *confs("spark.yarn.tags=t-1", "spark.yarn.maxAppAttempts=1"),
        *("--queue", "night"),
        *("P/state/spark-submit/run_spec.py", "run", "--spec", "spec.json"),
    ]


@pytest.mark.usefixtures("manager")
def test_on_yarn_the_spec_goes_along_and_the_token_is_a_tag(project: Path) -> None:
    argv = command(project, master="yarn", conf={"spark.yarn.tags": "finance"})
    assert argv[1:] == [
        *("--master", "yarn", "--deploy-mode", "cluster"),
        *("--py-files", "spark_runtime.zip,code.zip", "--files", "P/runs/spec.json"),
        *("--name", "daily totals t-1"),
        *confs(*DELTA, "spark.yarn.tags=finance,t-1", "spark.yarn.maxAppAttempts=1"),
        *("P/state/spark-submit/run_spec.py", "run", "--spec", "spec.json"),
    ]


TEMPLATE = "spark.kubernetes.driver.podTemplateFile"


def test_on_kubernetes_the_token_names_the_drivers_pod(project: Path) -> None:
    argv = command(project, master="k8s://https://h:6443", conf={TEMPLATE: "pod.yaml"})
    assert argv[1:] == [
        *("--master", "k8s://https://h:6443", "--deploy-mode", "cluster"),
        *("--py-files", "spark_runtime.zip,code.zip", "--files", "P/runs/spec.json"),
        *("--name", "daily totals t-1"),
        *confs(*DELTA, f"{TEMPLATE}=pod.yaml"),
        *confs("spark.kubernetes.driver.pod.name=lineage-backfill-t-1-driver"),
        *confs("spark.kubernetes.file.upload.path=file://P/state/spark-submit/uploads/t-1"),
        *confs("spark.kubernetes.report.interval=60s"),
        *("P/state/spark-submit/run_spec.py", "run", "--spec", "spec.json"),
    ]


def test_a_driver_in_a_pod_without_a_way_to_its_files_is_refused(project: Path) -> None:
    with pytest.raises(EnvironmentMissingError, match="would not see the project's folder") as no:
        command(project, master="k8s://h")
    assert "`spark.kubernetes.driver.podTemplateFile`" in no.value.hint
    conf = {"spark.kubernetes.file.upload.path": "s3a://b/up", "spark.kubernetes.namespace": "data"}
    argv = command(project, master="k8s://h", conf=conf)
    assert not any("upload.path=file" in part for part in argv)
    assert "--namespace data" in engine(project, master="k8s://h", conf=conf).cluster.log_place("t")


@pytest.mark.usefixtures("manager")
def test_jars_of_this_machine_go_along_where_none_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = [project / "delta-spark_4.0_2.13-4.4.0.jar", project / "delta-storage-1.jar"]
    for jar in jars:
        jar.touch()
    monkeypatch.setenv("LINEAGE_BACKFILL_JARS", str(project))
    argv = command(project, jars=None)
    assert (
        argv[argv.index("--jars") + 1] == "P/delta-spark_4.0_2.13-4.4.0.jar,P/delta-storage-1.jar"
    )
    jars[0].unlink()
    with pytest.raises(EnvironmentMissingError, match=r"no delta-spark_4.0_\*.jar") as raised:
        engine(project, jars=None).open()
    assert "fetch-jars" in raised.value.hint


def test_a_missing_program_is_named_before_the_first_run(project: Path) -> None:
    (project / "spark" / "bin" / "spark-submit").unlink()
    with pytest.raises(EnvironmentMissingError, match="spark/bin/spark-submit") as raised:
        engine(project).open()
    assert "spark_home" in raised.value.hint


def test_the_state_of_the_code_is_that_of_python_files_outside_tables(tmp_path: Path) -> None:
    code = (
        "job.py",
        "pipeline/__init__.py",
        "pipeline/deep/er.py",
        "jobs-2/script.py",
        "_own/x.py",
    )
    others = (
        "readme.md",
        ".git/hook.py",
        "pipeline/__pycache__/job.py",
        "env/pyvenv.cfg",
        "env/lib/module.py",
        "runs/spec.py",
        "data/table/_delta_log/0.json",
        "data/table/copied.py",
        "data/parquet/day=2024-06-15/hour=1/x.py",
    )
    for name in (*code, *others):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = code_state(tmp_path, without=tmp_path / "runs")
    assert [(name, size) for name, size, _ in found] == sorted((name, len(name)) for name in code)
    (tmp_path / "pipeline" / "deep" / "er.py").write_text("changed it")
    assert code_state(tmp_path, without=tmp_path / "runs") != found


def test_an_archive_holds_the_code_and_is_the_same_for_the_same_code(project: Path) -> None:
    (project / "pipeline" / "__init__.py").touch()
    (project / "pipeline" / "names.csv").touch()
    (project / "extra" / "large.csv").touch()
    folder = project / "state"

    def packed() -> Path:
        return pack_code(project, folder, without=folder)

    archive = packed()
    assert zipfile.ZipFile(archive).namelist() == [
        "extra/more.py",
        *(f"pipeline/{name}" for name in ("__init__.py", "jobs.py", "names.csv")),
    ]
    (project / "pipeline" / "jobs.py").touch()
    assert packed() == archive
    (project / "pipeline" / "jobs.py").write_text("x = 2\n")
    assert packed() != archive
    assert zipfile.ZipFile(pack(project / "extra", folder)).namelist() == [
        "extra/large.csv",
        "extra/more.py",
    ]


class Answers:
    """A program that has been asked, and its answers."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(" ".join(command))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Manager(ResourceManager):
    """Knows one application, and what was killed."""

    def __init__(self, state: AttemptState | None = None, reason: str = "") -> None:
        self.found = [] if state is None else [Found("application_1_0001", state, "", reason)]
        self.killed: list[str] = []

    def find(self, token: str) -> list[Found]:
        return self.found

    def kill(self, application: str) -> None:
        self.killed.append(application)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    """The ResourceManager of the engines that a test makes."""
    made = Manager()
    monkeypatch.setattr(spark_submit, "resource_manager", lambda *_: made)
    return made


def test_yarn_kills_what_runs_and_names_its_log() -> None:
    running = Manager(AttemptState.RUNNING)
    Yarn(running).stop("t-1")
    assert running.killed == ["application_1_0001"]
    assert Yarn(running).log_place("t-1") == "yarn logs -applicationId application_1_0001"
    assert Yarn(Manager()).log_place("t-1") == "YARN does not know the application"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("Application not found.", None),
        ("phase: Pending", AttemptState.QUEUED),
        ("", None),
        ("Application status (driver): \n\t pod name: x\n\t phase: Pending\n", AttemptState.QUEUED),
        ("Application status (driver): \n\t phase: Running\n", AttemptState.RUNNING),
        ("Application status (driver): \n\t phase: Succeeded\n", AttemptState.SUCCEEDED),
        ("Application status (driver): \n\t phase: Failed\n", AttemptState.FAILED),
    ],
)
def test_kubernetes_tells_by_the_pod(answer: str, state: AttemptState | None) -> None:
    conf = {f"spark.kubernetes.{name}": name for name in ("context", "namespace")}
    kubectl = "kubectl --server https://h --namespace namespace --context context"
    submit = " ".join(("spark-submit --master k8s://h", *confs(*map("=".join, conf.items()))))
    pod = "lineage-backfill-t-1-driver"
    get = f"{kubectl} get pod --ignore-not-found --request-timeout 30s --output jsonpath=phase: "

    ask = Answers(answer, "")
    cluster = Kubernetes(
        ask, submit=["spark-submit", "--master", "k8s://h"], conf={"spark.cores.max": "1", **conf}
    )
    assert cluster.look("t-1") == state
    cluster.stop("t-1")
    assert cluster.log_place("t-1") == f"{kubectl} logs {pod}"
    assert ask.asked[0].startswith(get)
    assert ask.asked[0].endswith(f" {pod}")
    assert ask.asked[1:] == [f"{submit} --kill namespace:{pod}"]

    ask.answers = [ServiceUnreachableError("no kubectl"), answer]
    assert cluster.look("t-1") == state
    assert ask.asked[2:] == [ask.asked[0], f"{submit} --status namespace:{pod}"]


@pytest.mark.parametrize(
    ("container", "reason", "killed"),
    [
        (
            "exit code: 137\n\t termination reason: OOMKilled",
            ", termination reason: OOMKilled",
            True,
        ),
        ("exit code: 1\n\t termination reason: Error", ", termination reason: Error", False),
        ("exit code: 143", "", True),
    ],
)
def test_kubernetes_tells_how_a_driver_ended(container: str, reason: str, killed: bool) -> None:
    said = f"Application status (driver): \n\t phase: Failed\n\t {container}\n"
    found = Kubernetes(Answers(said), submit=["k8s://h"], conf={}).reason("t-1")
    assert found == container.partition("\n")[0] + reason
    assert was_killed(found) is killed


def program(project: Path, text: str, name: str = "yarn") -> dict[str, str]:
    """Put a program into PATH, and return the environment with it."""
    path = project / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:/usr/bin:/bin"}


def test_a_driver_on_a_cluster_is_found_after_everything_here_has_died(
    project: Path, manager: Manager
) -> None:
    manager.found = Manager(AttemptState.SUCCEEDED).found
    folder = AttemptFiles(project / "runs" / "spec.json")
    yarn = engine(project, master="yarn")
    folder.claim({"life_sign": str(project / "none")})
    handle = yarn.find(folder.spec_path, "t-1")
    assert handle is not None
    assert yarn.poll(handle).state is AttemptState.SUCCEEDED


@pytest.mark.parametrize(
    ("said", "transient"),
    [
        ("User application exited with status 137", True),
        ("AM Container for appattempt_1_0001 exited with  exitCode: 137\nFailing this", True),
        ("AM Container for appattempt_1_0001 exited with  exitCode: -100\nContainer", True),
        ("ApplicationMaster for attempt appattempt_1_0001 timed out. Failing", True),
        ("User application exited with status 1", False),
        ("AM Container for appattempt_1_0001 exited with  exitCode: -1000\nFile not", False),
        ("Application is rejected: the queue takes no applications", False),
        ("", False),
    ],
)
def test_a_driver_that_was_killed_on_its_cluster_is_transient(
    project: Path, manager: Manager, said: str, transient: bool
) -> None:
    manager.found = Manager(AttemptState.FAILED, said).found
    folder = AttemptFiles(project / "runs" / "spec.json")
    yarn = engine(project, master="yarn")
    folder.claim({"life_sign": str(project / "none")})
    handle = yarn.find(folder.spec_path, "t-1")
    assert handle is not None
    outcome = yarn.poll(handle)
    assert (outcome.state, outcome.transient) == (AttemptState.FAILED, transient)
    first = said.partition("\n")[0]
    assert outcome.error is not None
    assert first in outcome.error
    yarn.close()


def test_the_error_of_a_failed_attempt_names_the_log_of_its_driver(project: Path) -> None:
    env = program(project, "echo phase: Failed", "kubectl")
    files = AttemptFiles(project / "runs" / "spec.json")
    files.claim({"life_sign": str(project / "none")})
    found = engine(project, master="k8s://h", env=env)
    handle = found.find(files.spec_path, "t-1")
    assert handle is not None
    outcome = found.poll(handle)
    assert outcome.state is AttemptState.FAILED
    assert (outcome.error or "").endswith("logs lineage-backfill-t-1-driver")


@pytest.mark.parametrize(
    ("master", "name"),
    [("yarn", "application_1_0001"), ("k8s://https://h:6443", "lineage-backfill-t-1-driver")],
)
def test_a_driver_on_a_cluster_has_a_name_there(
    project: Path, manager: Manager, master: str, name: str
) -> None:
    manager.found = Manager(AttemptState.RUNNING).found
    found = engine(project, master=master).identify(str(project / "runs" / "spec.json"))
    assert found == EngineRun(origin=Origin.CREATED, id=name)


def test_a_cluster_that_does_not_answer_is_no_lost_run(project: Path) -> None:
    folder = AttemptFiles(project / "runs" / "spec.json")
    folder.claim({"life_sign": str(project / "none")})
    yarn = engine(project, master="yarn")
    with pytest.raises(ServiceUnreachableError, match="YARN cannot be asked"):
        yarn.find(folder.spec_path, "t-1")


def test_what_the_cluster_does_not_know_another_machine_may_still_submit(
    project: Path, manager: Manager
) -> None:
    folder = AttemptFiles(project / "runs" / "spec.json")
    yarn = engine(project, master="yarn")
    assert not yarn.can_tell(folder.spec_path, "t-1")
    manager.found = Manager(AttemptState.RUNNING).found
    assert yarn.can_tell(folder.spec_path, "t-1")


def test_an_application_that_comes_to_be_after_its_cancellation_is_stopped(
    project: Path, manager: Manager
) -> None:
    manager.found = Manager(AttemptState.RUNNING).found
    folder = AttemptFiles(project / "runs" / "spec.json")
    folder.claim({"life_sign": str(project / "none")})
    yarn = engine(project, master="yarn")
    handle = yarn.find(folder.spec_path, "t-1")
    assert handle is not None
    yarn.works_elsewhere(folder)
    assert manager.killed == []
    yarn.cancel(handle)
    manager.killed.clear()
    assert yarn.works_elsewhere(folder)
    assert manager.killed == ["application_1_0001"]
    yarn.close()
