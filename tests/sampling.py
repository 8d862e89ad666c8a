"""Samples of long lists of cases; `--thorough` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

_config: list[pytest.Config] = []


def configure(config: pytest.Config) -> None:
    """Keep the options of this test run; call it before collection."""
    _config[:] = [config]


def is_run(number: int, *, every: int) -> bool:
    """Whether a case runs: with `--thorough` each, else one in `every`."""
    return number % every == 0 or bool(_config and _config[0].getoption("--thorough"))


def a_part(cases: Iterable[Any], *, every: int) -> list[Any]:
    """Return the cases to run as parameters: with `--thorough` all, else one in `every`."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)))
        for number, case in enumerate(cases)
        if is_run(number, every=every)
    ]
