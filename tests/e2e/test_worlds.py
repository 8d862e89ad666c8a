"""What the command line answers about a project is what the planner answers about its values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.document import plan_to_dict
from tests.oracle.project import write_project
from tests.oracle.worlds import NOW, make_world, planner_input
from tests.sampling import a_part


@pytest.mark.parametrize("seed", a_part(range(70_000, 70_025), every=3))
def test_a_world_has_one_plan_however_it_is_asked_for(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make_world(seed)
    words = write_project(world, tmp_path)
    assert main(["impact", *words, "--json", "--now", NOW.isoformat()]) == 0
    shown = json.loads(capsys.readouterr().out)
    plan = json.loads(json.dumps(plan_to_dict(build_plan(*planner_input(world), now=NOW))))
    for part in ("changed", "jobs", "runs", "totals", "warnings"):
        assert shown[part] == plan[part], part
