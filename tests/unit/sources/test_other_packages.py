"""Lineage sources of other packages are found by their entry points; the template is one."""

from __future__ import annotations

import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lineage_backfill.errors import ConfigError, LineageError
from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.sources.packages import create_source
from lineage_backfill.workspace.environment import open_project
from lineage_backfill.workspace.lineage import ProjectLineage

TEMPLATE = Path(__file__).parents[3] / "docs" / "examples" / "catalog"
REPORT = "orders_report"
SETTINGS = {"export": "edges.csv", "namespace": "shop"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a project whose environment has the template installed."""
    site = tmp_path / "site-packages"
    shutil.copytree(TEMPLATE, site)
    package = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    about = site / f"{package['name'].replace('-', '_')}-{package['version']}.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text(f"Name: {package['name']}\nVersion: 1.0\n")
    groups = package["entry-points"].items()
    lines = [f"[{group}]\n{n} = {value}" for group, points in groups for n, value in points.items()]
    about.joinpath("entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(site)
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("edges.csv", "lineage-backfill.toml"):
        shutil.copy(TEMPLATE / name, folder)
    yield folder
    sys.modules.pop("catalog_lineage", None)


def test_the_template_is_named_by_the_project_file(project: Path) -> None:
    lineage = ProjectLineage(open_project(project / "lineage-backfill.toml")).read()
    raw, daily, report = (DatasetRef("shop", n) for n in ("raw_orders", "orders_daily", REPORT))
    assert {ref: (node.reads, node.writes) for ref, node in lineage.jobs.items()} == {
        JobRef("shop", "orders_daily"): ((raw,), (daily,)),
        JobRef("shop", "report"): ((daily,), (report,)),
    }
    assert lineage.source == "catalog"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job,direction,dataset\n",
        "job,dataset\na,b\n",
        "job,direction,dataset\na,read,b\n",
        "job,direction,dataset\na,reads\n",
        'job,direction,dataset\na,reads,"b\n',
        "job,direction,dataset\n,reads,b\n",
    ],
)
def test_the_template_returns_no_part_of_the_lineage(project: Path, text: str) -> None:
    (project / "edges.csv").write_text(text)
    with pytest.raises(LineageError, match=r"edges\.csv"):
        create_source("catalog", SETTINGS, project=project).read()


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("datahub", {}, "there is no lineage source of kind 'datahub'"),
        ("catalog", {}, "a lineage source of kind 'catalog' needs the setting 'export'"),
        ("catalog", SETTINGS | {"file": "x"}, "'catalog' has no setting 'file'"),
        ("catalog", SETTINGS | {"export": 4}, "`export` of lineage source `catalog` must be a str"),
        ("catalog", SETTINGS | {"namespace": ["x"]}, "must be a string, not a list"),
        ("catalog", SETTINGS | {"project": "x"}, "'catalog' has no setting 'project'"),
    ],
)
def test_what_a_source_does_not_take_is_refused(
    project: Path, kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        create_source(kind, settings, project=project)


FILE = """
import csv
from lineage_backfill import JobNode, JobRef, LineageSnapshot

class Crm:
    def __init__(self, *, namespace: str = "crm"):
        self.namespace = namespace

    def read(self):
        return LineageSnapshot.of([JobNode(ref=JobRef(self.namespace, "load"))])

def other(project):
    return Crm(namespace=project.name)
"""


@pytest.mark.parametrize(
    ("kind", "settings", "space"),
    [
        ("crm.py", {}, "crm"),
        ("crm.py:Crm", {"namespace": "eu"}, "eu"),
        ("crm.py:other", {}, "project"),
    ],
)
def test_a_python_file_is_a_source(
    tmp_path: Path, kind: str, settings: dict[str, Any], space: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    project.joinpath("crm.py").write_text(FILE)
    assert list(create_source(kind, settings, project=project).read().jobs) == [
        JobRef(space, "load")
    ]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (None, "crm.py", "crm.py: no such file"),
        ("", "crm.py", "crm.py offers no such class"),
        (FILE + "\nclass Erp(Crm): ...", "crm.py", "several classes with `read`: Crm, Erp"),
        (FILE, "crm.py:Erp", "crm.py has no class or function 'Erp'"),
        ("1 / 0", "crm.py", "crm.py cannot be imported: ZeroDivisionError"),
        ("def made(): ...", "crm.py:made", "made of lineage source kind 'crm.py:made' does not"),
        (FILE, "crm.py:csv", "crm.py has no class or function 'csv'"),
    ],
)
def test_a_file_that_offers_no_source_is_refused(
    tmp_path: Path, text: str | None, kind: str, said: str
) -> None:
    if text is not None:
        (tmp_path / "crm.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        create_source(kind, {}, project=tmp_path)


class Lake:
    """A lineage source that keeps its settings."""

    def __init__(
        self,
        *,
        project: Path,
        limit: int = 0,
        wait: float = 0,
        verify: bool = True,
        name: str = "",
        port: int | str = 0,
        tags: Sequence[str] = (),
    ) -> None:
        self.kept = (limit, wait, verify, name, port, tags)

    def read(self) -> LineageSnapshot:
        raise NotImplementedError


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> str:
    point = EntryPoint("lake", "lake_lineage:Lake", "lineage_backfill.sources")
    monkeypatch.setattr("lineage_backfill.plugins.entry_points", lambda group: [point])
    module = ModuleType("lake_lineage")
    monkeypatch.setattr(module, "Lake", Lake, raising=False)
    monkeypatch.setitem(sys.modules, "lake_lineage", module)
    return "lake"


def test_a_string_may_stand_for_a_number_as_references_give_only_strings(
    lake: str, tmp_path: Path
) -> None:
    given = {"limit": "12", "wait": "1.5", "verify": "false", "name": "8", "port": "80"}
    made: Any = create_source(lake, given, project=tmp_path)
    assert made.kept == (12, 1.5, False, "8", "80", ())
    made = create_source(lake, {"limit": 12, "wait": 2, "verify": False}, project=tmp_path)
    assert made.kept[:3] == (12, 2, False)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("limit", "hunter2", r"must be a whole number, not \*\*\*"),
        ("limit", "1.5", r"must be a whole number, not \*\*\*"),
        ("limit", "9" * 30, r"must be a whole number, not \*\*\*"),
        ("limit", 1.5, "must be a whole number, not 1.5"),
        ("wait", "nan", r"must be a number, not \*\*\*"),
        ("verify", "no", r"must be true or false, not \*\*\*"),
        ("tags", "x", r"must be a list of strings, not \*\*\*"),
        ("name", True, "must be a string, not true"),
    ],
)
def test_settings_of_another_type_are_refused_without_the_text_of_a_reference(
    lake: str, tmp_path: Path, setting: str, value: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=f"^`{setting}` of lineage source `lake` {said}$"):
        create_source(lake, {setting: value}, project=tmp_path)


def test_without_packages_there_are_our_kinds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        create_source("catalog", {}, project=tmp_path)
    assert caught.value.hint == "Use one of airflow, dbt, unity."


def test_an_object_that_cannot_read_is_no_source(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(import_module("catalog_lineage").CatalogSource, "read")
    with pytest.raises(ConfigError, match=r"not have all members of .*\.LineageSource"):
        create_source("catalog", SETTINGS, project=project)


def test_one_source_is_named(project: Path) -> None:
    file = project / "lineage-backfill.toml"
    file.write_text(file.read_text().replace("[lineage]\n", '[lineage]\nevents = ["e.json"]\n'))
    with pytest.raises(ConfigError, match="has `events` and `source`"):
        open_project(file)
    file.write_text(file.read_text().replace('events = ["e.json"]\n', ""))
    project_ = open_project(file, lineage={"events": [str(project / "e.json")]})
    assert project_.lineage.source is None, "an option comes before the file"


def test_settings_may_refer_to_secrets_which_stay_hidden(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPORT", "edges.csv")
    file = project / "lineage-backfill.toml"
    file.write_text(file.read_text().replace('"edges.csv"', '"env:EXPORT"'))
    found = open_project(file)
    assert found.lineage.source_settings == SETTINGS
    (shown,) = (one.shown for one in found.settings if one.name == "lineage.source_settings")
    assert "edges" not in shown


def test_runs_to_ignore_are_not_said_to_be_left_out(project: Path) -> None:
    file = project / "lineage-backfill.toml"
    file.write_text(file.read_text().replace("[lineage]\n", '[lineage]\nignore_runs = ["r1"]\n'))
    (warning,) = ProjectLineage(open_project(file)).read().warnings
    assert warning == "`ignore_runs` is not known to the lineage source 'catalog': r1"
