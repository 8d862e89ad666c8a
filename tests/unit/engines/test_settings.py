"""What is wrong with an engine's settings is said in the words of the project file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.engines import create_engine
from lineage_backfill.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("command", {"command": ["sh"]}, "an engine of kind 'command' has no setting 'command'"),
        ("command", {}, "an engine of kind 'command' needs the setting 'argv'"),
        ("command", {"argv": []}, "the settings of engine 'command' do not fit: `argv` is empty"),
        ("local", {"slot": 2}, "an engine of kind 'local' has no setting 'slot'"),
        ("spark-submit", {"mastr": "x"}, "an engine of kind 'spark-submit' has no setting 'mastr'"),
        ("airflo", {}, "there is no engine of kind 'airflo'"),
    ],
)
def test_a_setting_that_an_engine_does_not_take(
    tmp_path: Path, kind: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_engine(kind, settings, project=tmp_path, state_dir=tmp_path)
    assert refused.value.message == said
    assert refused.value.hint
