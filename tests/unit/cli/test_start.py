"""The command line starts fast: it imports what is heavy only where it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lineage_backfill.store.sql import SqlRunStore

ROOT = Path(__file__).parents[3]
SHOP = ROOT / "docs" / "examples" / "shop"
PROGRAM = """
import sys
from lineage_backfill.cli.main import main
code = main(sys.argv[2:])
wrong = set(sys.argv[1].split(",")) & set(sys.modules)
sys.exit(f"imported {sorted(wrong)}" if wrong else code)
"""
#: What no verb needs that does not run a job on this machine, serve pages or ask a service.
HEAVY = (
    "pyspark,delta,pandas,numpy,flask,waitress,jinja2,lineage_backfill.web.pages,openlineage,ssl"
)
#: And what the help of all verbs needs neither.
OURS = "lineage_backfill.workspace,lineage_backfill.project,lineage_backfill.planning"
VERBS_OF_OURS = ",".join(
    f"lineage_backfill.cli.{module}" for module in ("options", "impact", "backfill", "doctor")
)
CHANGE = ["raw_orders", "--from", "2024-03-10T22"]
VERBS: list[tuple[str, list[str]]] = [
    (f"{HEAVY},{OURS},{VERBS_OF_OURS},networkx,requests,sqlalchemy,alembic,pydantic", ["--help"]),
    (f"{HEAVY},networkx,requests,sqlalchemy,alembic", ["impact", "--help"]),
    (f"{HEAVY},requests,sqlalchemy,alembic,networkx", ["impact", *CHANGE]),
    (f"{HEAVY},requests,sqlalchemy,alembic,networkx", ["impact", *CHANGE, "--format", "tree"]),
    (f"{HEAVY},requests,sqlalchemy,alembic,networkx", ["config", "show"]),
    (f"{HEAVY},requests,sqlalchemy,alembic", ["config", "check"]),
    (f"{HEAVY},requests,sqlalchemy,alembic", ["lineage", "show"]),
    (f"{HEAVY},requests,sqlalchemy,alembic", ["history"]),
    (f"{HEAVY},requests,sqlalchemy,alembic", ["stale"]),
    (f"{HEAVY},requests,sqlalchemy,alembic", ["graph"]),
]


@pytest.mark.parametrize(("unwanted", "arguments"), VERBS, ids=lambda one: " ".join(one)[:30])
def test_a_verb_imports_nothing_that_it_does_not_need(unwanted: str, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, unwanted, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=SHOP,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_no_verb_imports_anything_heavy_before_it_is_called() -> None:
    every = (
        "import sys; from lineage_backfill.cli.main import program;"
        "every = program().commands.values();"
        "print(*(verb.command.help for verb in every if not verb.hidden));"
        "sys.exit(str(set(sys.argv[1].split(',')) & set(sys.modules) or ''))"
    )
    unwanted = f"{HEAVY},networkx,requests,sqlalchemy,alembic"
    done = subprocess.run(
        [sys.executable, "-c", every, unwanted], capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""
    assert "Show what a fix" in done.stdout


def test_a_store_in_a_file_imports_nothing_of_postgresql(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    SqlRunStore(store).close()  # alembic makes the tables, and imports both
    opened = (
        "import sys; from lineage_backfill.store.sql import SqlRunStore;"
        "SqlRunStore(sys.argv[1]).backfills();"
        "print([one for one in sys.modules if one.startswith('sqlalchemy.dialects.postgresql')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", opened, store],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == "[]"
