"""What code declares is read like the project file: the same mistakes, in the same words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef
from lineage_backfill.workspace.configuration import load_project
from spark_runtime.job.datasets import Dataset, Dimension, Write, calendar_of, offset, window

REF = DatasetRef("w", "d")
DAY = {"name": "day", "grain": "day", "column": "ds"}
SHOP = {"name": "shop", "keys": ["a", "b"], "column": "shop"}
STATIC: dict[str, Any] = {"keys": ["eu", "us"], "column": "region"}
RUNTIME: dict[str, Any] = {"keys": "runtime", "column": "region"}
WHOLE: dict[str, Any] = {"grain": "none"}
#: What only keys with a time have.
DATED: list[dict[str, Any]] = [
    {"zone": "Europe/Berlin"},
    {"start": "2024-01-01"},
    {"end": "2024-01-01"},
    {"data_lag": 1},
    {"data_lag": -1},
    {"retention": 30},
    {"zone": "UTC", "start": "2024-01-01", "data_lag": 2},
]
DATASETS: list[dict[str, Any]] = [
    *({**kind, **more} for kind in (STATIC, RUNTIME, WHOLE) for more in DATED),
    {"dimensions": [SHOP, {**DAY, "keys": ["x"], "grain": None, "start": "2024-01-01"}]},
    {"dimensions": [SHOP], "retention": 3},
    {"dimensions": [SHOP, DAY], "columns": {"shop": "%Y", "ds": "%F"}},
    {"dimensions": [SHOP, DAY], "zone": "UTC"},
    {"dimensions": [DAY, DAY]},
    {"dimensions": [{**DAY, "grain": "none"}]},
    {"dimensions": [{"name": "day"}]},
    {**STATIC, "column": None, "columns": {"region": "%Y"}},
    {"grain": "dya"},
    {"grain": "day", "cron": "@daily"},
    {"grain": "day", "zone": "Mars"},
    {"cron": "0 0 6 * * 1-5"},
    *({"grain": "day", "data_lag": lag} for lag in (-2, 100_001, True, 1.5, "1")),
    *({"grain": "day", "retention": count} for count in (0, -1, 100_001, True, 1.5)),
    {"keys": []},
    {"keys": ["a", "a"]},
    {"grain": "day", "column": "ds", "columns": {"ds": "%F"}},
    {"grain": "day", "columns": {"ds": ""}},
    {"grain": "day", "columns": {"ds": 1}},
    {"grain": "day", "location": "/d", "table": "d"},
    {"grain": "day", "format": "csv"},
]
COUNTS = (-1, 100_001, 10**9, True, 1.5, "1")
READS: list[tuple[str, dict[str, Any]]] = [
    *(("offset", {"by": by}) for by in (0, -100_001, *COUNTS[1:])),
    *(("window", {"before": count}) for count in COUNTS),
    *(("window", {"after": count}) for count in COUNTS),
]
WRITES: list[dict[str, Any]] = [
    {"mode": "apend"},
    {"on_empty": "kep"},
    {"on_drift": "ad"},
    *({"lookback": count} for count in COUNTS),
]


def toml(table: Mapping[str, Any]) -> str:
    """Return the settings of a table in TOML."""
    return "".join(f"{name} = {value(one)}\n" for name, one in table.items() if one is not None)


def value(one: Any) -> str:
    """Return a value in TOML."""
    if isinstance(one, dict):
        inner = (f"{name} = {value(each)}" for name, each in one.items() if each is not None)
        return "{" + ", ".join(inner) + "}"
    return f"[{', '.join(map(value, one))}]" if isinstance(one, list) else json.dumps(one)


def in_file(text: str, folder: Path) -> str:
    """Return the refusal of a project file, without the place."""
    (folder / "lineage-backfill.toml").write_text(f'[project]\nnamespace = "w"\n{text}')
    with pytest.raises(UsageError) as refused:
        load_project(folder, environ={}, user_file=folder / "none")
    message = refused.value.message.partition('"d"')[2]
    return f"{message} {refused.value.hint}"


def in_code(declare: Callable[[], object], place: str) -> str:
    """Return the refusal of a declaration in code, without the place."""
    with pytest.raises(UsageError) as refused:
        declare()
    assert refused.value.message.startswith(place)
    return f"{refused.value.message.removeprefix(place)} {refused.value.hint}"


@pytest.mark.parametrize("settings", DATASETS, ids=str)
def test_a_mistake_of_a_dataset(settings: dict[str, Any], tmp_path: Path) -> None:
    dimensions = [Dimension(**one) for one in settings.get("dimensions", ())]
    coded = Dataset("d", **{**settings, "dimensions": dimensions})
    theirs = in_code(lambda: coded.declaration(REF), "dataset w:d")
    assert theirs == in_file("[[dataset]]\nname = 'd'\n" + toml(settings), tmp_path)
    if settings.keys() <= {"grain", "cron", "keys", "zone", "data_lag", "start", "end"}:
        of_runs = in_code(lambda: calendar_of(coded, "job w:d"), "job w:d")
        assert of_runs == in_file("[[job]]\nname = 'd'\n" + toml(settings), tmp_path)


@pytest.mark.parametrize(("mapping", "settings"), READS, ids=str)
def test_a_mistake_of_a_read(mapping: str, settings: dict[str, Any], tmp_path: Path) -> None:
    declared: dict[str, Callable[..., object]] = {"offset": offset, "window": window}
    theirs = in_code(lambda: declared[mapping]("d", **settings), "input d")
    table = {"dataset": "d", "mapping": mapping, **settings}
    assert theirs == in_file(f"[[job]]\nname = 'j'\n[[job.reads]]\n{toml(table)}", tmp_path)


@pytest.mark.parametrize("settings", WRITES, ids=str)
def test_a_mistake_of_a_write(settings: dict[str, Any], tmp_path: Path) -> None:
    theirs = in_code(lambda: Write("d", **settings).declaration(REF), "output w:d")
    table = {"dataset": "d", **settings}
    assert theirs == in_file(f"[[job]]\nname = 'j'\n[[job.writes]]\n{toml(table)}", tmp_path)


def test_a_window_without_numbers_is_a_mistake(tmp_path: Path) -> None:
    theirs = in_code(lambda: window("d"), "input d")
    table = {"dataset": "d", "mapping": "window"}
    assert theirs == in_file(f"[[job]]\nname = 'j'\n[[job.reads]]\n{toml(table)}", tmp_path)
