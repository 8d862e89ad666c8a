"""The planner against the obvious definition over single keys, on random graphs."""

from __future__ import annotations

import pytest

from tests.oracle.check import check

CHUNK = 100


@pytest.mark.parametrize("first", range(0, 2_000, CHUNK))
def test_plans_equal_the_definition(first: int) -> None:
    for seed in range(first, first + CHUNK):
        check(seed)
