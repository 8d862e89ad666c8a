"""The functions of `python` mappings are the user's code: the tool and the runtime load them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lineage_backfill.errors import DeclarationError
from lineage_backfill.workspace.configuration import load_project
from lineage_backfill.workspace.environment import load_functions
from spark_runtime.job.scheduled import declare

PROJECT = """
[[job]]
name = "j"
[[job.reads]]
dataset = "a"
mapping = "python"
function = "mapping_code:chosen"
[[job.writes]]
dataset = "b"
"""


@pytest.fixture(params=["tool", "runtime"])
def side(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mapping_code", raising=False)
    (tmp_path / "lineage-backfill.toml").write_text(PROJECT)
    return str(request.param)


def loaded(side: str, folder: Path) -> object:
    """Load the functions as one side does, and return the only one."""
    project = load_project(folder)
    functions = load_functions(project) if side == "tool" else declare(project, "j").functions
    return functions["mapping_code:chosen"]


def test_a_function_is_loaded(side: str, tmp_path: Path) -> None:
    (tmp_path / "mapping_code.py").write_text("chosen = str.upper\n")
    function = loaded(side, tmp_path)
    assert callable(function)
    assert function("a") == "A"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "ModuleNotFoundError: No module named 'mapping_code'"),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("other = 1", "AttributeError: module 'mapping_code' has no attribute 'chosen'"),
        ("def chosen(key: str", "SyntaxError: '(' was never closed (mapping_code.py, line 1)"),
        ("raise ValueError('no configuration')", "ValueError: no configuration"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_code_that_cannot_be_loaded_is_refused_with_the_reason(
    side: str, tmp_path: Path, code: str | None, said: str
) -> None:
    if code is not None:
        (tmp_path / "mapping_code.py").write_text(code + "\n")
    with pytest.raises(DeclarationError) as caught:
        loaded(side, tmp_path)
    assert caught.value.message == (
        f"the mapping function mapping_code:chosen cannot be loaded: {said}"
    )
