"""Long lists of cases of which the suite runs some, and `--thorough` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

_config: list[pytest.Config] = []


def configure(config: pytest.Config) -> None:
    """Heed the options of this run; before tests are collected."""
    _config[:] = [config]


def is_run(number: int, *, every: int) -> bool:
    """Whether a case of a list is run, of which every so many-th is run without `--thorough`."""
    return number % every == 0 or bool(_config and _config[0].getoption("--thorough"))


def a_part(cases: Iterable[Any], *, every: int) -> list[Any]:
    """Return parameters of which every so many-th is run without `--thorough`."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)))
        for number, case in enumerate(cases)
        if is_run(number, every=every)
    ]
