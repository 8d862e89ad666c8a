"""The worked example of Airflow holds on every day: without Airflow, by its own tables."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.days import TURNS, WEEK

HERE = Path(__file__).parents[2] / "docs" / "examples" / "airflow"


@pytest.fixture(scope="module")
def story() -> Any:
    """The module of the story."""
    spec = importlib.util.spec_from_file_location("airflow_story", HERE / "story.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("now", [*WEEK, *TURNS], ids=lambda now: f"{now:%a %d %b %H:%M}")
def test_the_fix_makes_stale_what_the_story_rebuilds_on_any_day(
    story: Any, tmp_path: Path, now: datetime
) -> None:
    played = story.Story(tmp_path, now)
    played.fill()
    assert played.stale() == []
    for key in played.wrong:
        played.deliver(key)
    assert {line.split()[0] for line in played.stale()} == {"clean_orders"}
    for line in played.wanted():
        story.build(played.lake, *line.split())
    assert played.stale() == []
    assert len(set(played.wanted())) == 13


def test_the_page_of_the_first_hour_is_short_and_the_path_that_the_story_takes() -> None:
    page = (HERE.parents[1] / "first-hour-airflow.md").read_text(encoding="utf-8")
    verbs = re.findall(r"^(?:\w+=\S+ )?lineage-backfill (\w+)", page, re.MULTILINE)
    toml = "\n".join(re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    assert len(verbs) <= 6
    assert len([line for line in toml.splitlines() if line]) <= 10
    assert page.count("You should see") == len(verbs)
    played = re.findall(r'self\.(?:tool|show)\(\s*"(\w+)"', (HERE / "story.py").read_text())
    assert played == verbs


def test_the_package_for_airflow_names_what_it_holds() -> None:
    folder = HERE.parents[2] / "examples" / "airflow_provider"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for points in project["entry-points"].values():
        for point in points.values():
            module, _, name = point.partition(":")
            file = folder / Path(*module.split("."))
            file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
            defined = {one.name for one in ast.parse(file.read_text()).body if hasattr(one, "name")}
            assert name in defined
