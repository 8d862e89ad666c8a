"""Random graphs in the shapes of producers: no plan is smaller, and none has a job twice."""

from __future__ import annotations

import pytest

from tests.oracle.producers import check_producers


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_the_plan_is_that_of_the_graph(first: int) -> None:
    for seed in range(first, first + 100):
        check_producers(seed)


@pytest.mark.slow
def test_the_plan_is_that_of_two_thousand_graphs() -> None:
    for seed in range(1_000, 3_000):
        check_producers(seed)
