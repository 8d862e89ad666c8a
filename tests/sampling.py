"""Long lists of cases of which the suite runs some, and `--thorough` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def a_part(cases: Iterable[Any], *, every: int) -> list[Any]:
    """Return parameters of which every so many-th is run without `--thorough`."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.thorough] if number % every else [],
        )
        for number, case in enumerate(cases)
    ]
