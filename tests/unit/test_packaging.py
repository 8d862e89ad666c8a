"""The wheel holds all of both packages and nothing else, and each needs only what it says."""

from __future__ import annotations

import ast
import email.parser
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lineage_backfill.engines.spark.shipping import CORE, pack_runtime

ROOT = Path(__file__).parents[2]
PACKAGES = ("lineage_backfill", "spark_runtime")
#: What a cluster has (README), and what spark_runtime asks for only where it is there.
ON_THE_CLUSTER = {"pyspark", "delta-spark", "openlineage-python"}
OPTIONAL = {"platformdirs"}
#: What is shipped with it.
SHIPPED = {"cronsim"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def files_of_the_packages() -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def needs(metadata: Message, extra: str = "") -> set[str]:
    """Return the names of what the extra asks for; with no extra, of what the core asks for."""
    found: set[str] = set()
    for text in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(text)
        if (requirement.marker is None) if not extra else f"extra == '{extra}'" in text:
            found.add(canonicalize_name(requirement.name))
    return found


def test_the_wheel_holds_every_file_of_both_packages_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files_of_the_packages()
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed
    assert "lineage_backfill/example/shop.toml" in packed
    assert any(name.startswith("lineage_backfill/runspec/schemas/") for name in packed)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())


def test_the_core_asks_for_no_spark(metadata: Message) -> None:
    assert needs(metadata) & {"pyspark", "delta-spark", "pandas", "flask"} == set()
    assert {"openlineage-python", "networkx", "cronsim", "tzdata"} <= needs(metadata)


def test_the_extras(metadata: Message) -> None:
    assert needs(metadata, "spark") == {"pyspark", "delta-spark"}
    assert needs(metadata, "connect") == {"pyspark"}
    assert needs(metadata, "serve") == {"flask", "waitress"}
    assert needs(metadata, "airflow") == {"apache-airflow-providers-openlineage"}
    assert needs(metadata, "airflow-legacy") == {"openlineage-airflow"}
    assert needs(metadata, "databricks") == {"databricks-sdk"}
    assert needs(metadata, "object-store") == {"fsspec"}
    assert needs(metadata, "testing") == {"pytest"}
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "airflow",
        "airflow-legacy",
        "connect",
        "databricks",
        "dev",
        "object-store",
        "postgres",
        "serve",
        "spark",
        "testing",
    }


def test_the_command_is_there() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="lineage-backfill")
    assert callable(command.load())


def test_the_command_line_loads_where_there_is_no_spark() -> None:
    absent = "sys.modules.update(dict.fromkeys(['pyspark', 'delta', 'spark_runtime', 'pandas']))"
    command = f"import sys; {absent}; import lineage_backfill.cli.main"
    subprocess.run([sys.executable, "-W", "error", "-c", command], check=True, cwd=ROOT)


def installed_with(names: set[str]) -> set[str]:
    """Return the names and, all the way down, those of what they themselves install."""
    found: set[str] = set()
    while names:
        found |= names
        wanted = [Requirement(r) for name in names for r in importlib.metadata.requires(name) or []]
        names = {
            str(canonicalize_name(r.name))
            for r in wanted
            if r.marker is None or r.marker.evaluate({"extra": ""})
        } - found
    return found


def test_what_runs_on_the_cluster_imports_only_what_is_there() -> None:
    there = installed_with(ON_THE_CLUSTER) | OPTIONAL | SHIPPED
    known = importlib.metadata.packages_distributions()
    core = [path for name in CORE for path in (ROOT / "lineage_backfill").glob(f"{name}*/**/*.py")]
    core += [path for name in CORE if (path := ROOT / "lineage_backfill" / f"{name}.py").exists()]
    for path in (*(ROOT / "spark_runtime").rglob("*.py"), *core):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for top in {name.partition(".")[0] for name in names}:
                if top not in sys.stdlib_module_names | set(PACKAGES):
                    owners = {canonicalize_name(owner) for owner in known.get(top, [])}
                    assert owners & there, f"{path.name} imports {top}"


A_CRON_CALENDAR = """
[[dataset]]
name = "slots"
cron = "30 6 * * *"
column = "slot"
location = "slots"

[[job]]
name = "j"
[[job.writes]]
dataset = "slots"
"""
ON_THE_CLUSTER_ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
import spark_runtime.__main__
from datetime import UTC, datetime
from pathlib import Path
from spark_runtime.configuration import load_project
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
project = load_project(Path())
now = datetime(2024, 6, 16, 12, tzinfo=UTC)
(spec,) = run_specs(declare(project, "j", entrypoint="jobs:j"), project, StartRequest(), now)
print(spec.keys[0].key, f"slots/{spec.outputs[0].scope[0].values['slot']}")
"""


def test_what_is_shipped_resolves_a_run_in_a_bare_interpreter(tmp_path: Path) -> None:
    archive = pack_runtime(tmp_path)
    names = {name.split("/")[0] for name in zipfile.ZipFile(archive).namelist()}
    assert names == {"cronsim", "lineage_backfill", "spark_runtime"}
    bare = [sys.executable, "-I", "-S", "-W", "error", "-c", ON_THE_CLUSTER_ALONE, str(archive)]
    (tmp_path / "lineage-backfill.toml").write_text(A_CRON_CALENDAR)
    done = subprocess.run(bare, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2024-06-15T06:30", "slots/2024-06-15T06:30"]


def test_the_version_is_that_of_the_changelog() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version


def test_a_release_names_the_address_of_the_project(tmp_path: Path) -> None:
    for name in ("README.md", "pyproject.toml", "LICENSE", "scripts/addresses.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    here = "https://git.example.com/team/lineage-backfill"
    subprocess.run(
        [sys.executable, tmp_path / "scripts" / "addresses.py", here, "v1.2.3"], check=True
    )
    metadata = ProjectMetadata(str(tmp_path), PluginManager()).core
    assert metadata.urls["Source"] == f"{here}/tree/v1.2.3"
    assert set(metadata.urls) == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
    links = re.findall(r"\]\(([^)#\s][^)\s]*)\)", metadata.readme)
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"{here}/raw/v1.2.3/docs/pictures/session.svg" in links
    assert f"{here}/blob/v1.2.3/docs/tutorial.md" in links
    assert f"{here}/actions/workflows/check.yml/badge.svg" in links


def test_the_first_lines_of_the_readme_work_from_the_wheel_as_printed(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    typed, shown = blocks[:2]
    (install, draft), (impact, *printed) = typed.splitlines(), shown.splitlines()
    assert install.startswith("pip install lineage-backfill ")
    site, folder = tmp_path / "site", tmp_path / "folder"
    wheel.extractall(site)
    folder.mkdir()
    for command in (draft, impact.removeprefix("$ ")):
        done = subprocess.run(
            [sys.executable, "-m", *command.partition("#")[0].replace("-", "_", 1).split()],
            cwd=folder,
            env={"PYTHONPATH": str(site), "COLUMNS": "90", "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    there = printed.index("as of 2024-04-02 08:00:00 UTC")  # the day of the example on that page
    assert lines[:there] == printed[:there]


TYPED = """
import sys
from difflib import unified_diff
from pathlib import Path
import lineage_backfill
from consoles import refreshed
assert Path(lineage_backfill.__file__).is_relative_to(sys.argv[1]), lineage_backfill.__file__
page = Path(sys.argv[2])
printed = page.read_text(encoding="utf-8")
now = refreshed(printed, page.parent / "examples")
print(*unified_diff(printed.splitlines(), now.splitlines(), lineterm=""), sep="\\n")
"""


def test_the_tutorial_works_from_the_wheel_as_printed(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    wheel.extractall(site)
    arguments = [str(site), str(ROOT / "docs" / "tutorial.md")]
    done = subprocess.run(
        [sys.executable, "-c", TYPED, *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{site}:{ROOT / 'scripts' / 'docs'}", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []
