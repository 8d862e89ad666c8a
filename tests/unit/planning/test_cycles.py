"""Cycles of datasets: what is stale all along them is found in rounds, or by doubling them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import networkx as nx
import pytest

from lineage_backfill.planning.planner import Planner
from tests.unit.planning.world import (
    NOW,
    declarations,
    find,
    lineage,
    plan,
    request,
)

FIRST = date(2024, 1, 1)
NEWEST = (date(2024, 3, 31) - FIRST).days  # the last day that is complete
#: How few and how many days later a job reads its input, as it is declared.
READS = {
    "": (0, 0),
    'mapping = "offset", by = -1': (1, 1),
    'mapping = "offset", by = -3': (3, 3),
    'mapping = "window", before = 2': (0, 2),
    'mapping = "window", before = 1, after = 1': (-1, 1),
}


def label(day: int) -> str:
    return (FIRST + timedelta(days=day)).isoformat()


@pytest.mark.parametrize("seed", range(150))
def test_a_cycle_makes_stale_what_single_keys_do(seed: int) -> None:
    """Jobs j0, j1 … read the dataset before theirs, j0 the last one, and some another one."""
    rng = random.Random(seed)
    count = rng.choice((2, 3, 4))
    firsts = [rng.choice((0, 0, 40, 50)) for _ in range(count)]
    lasts = [rng.choice((NEWEST, NEWEST, NEWEST - 2, 70)) for _ in range(count)]
    runs = [  # of the run calendar
        range(rng.choice((0, 0, 0, 48)), 1 + rng.choice((NEWEST, NEWEST, 66))) for _ in range(count)
    ]
    reads = [{(n - 1) % count: rng.choice(list(READS))} for n in range(count)]
    for n in range(count):
        other = rng.randrange(count)
        if other not in (n, *reads[n]) and rng.random() < 0.5:
            reads[n][other] = rng.choice(list(READS))
    changed = rng.choice((37, 39, 45, 47, 49, 55))

    ends = [
        f'start = "{label(one)}", end = "{label(two)}"'
        for one, two in zip(firsts, lasts, strict=True)
    ]
    tables = [f'{{ name = "d{n}", grain = "day", {ends[n]} }}' for n in range(count)]
    jobs = [
        f'{{ name = "j{n}", grain = "day", start = "{label(runs[n][0])}", '
        f'end = "{label(runs[n][-1])}", reads = ['
        + ", ".join(
            f'{{ dataset = "d{m}"{", " if how else ""}{how} }}' for m, how in reads[n].items()
        )
        + "] }"
        for n in range(count)
    ]
    edges = [
        ", ".join(f"d{m}" for m in reads[n]) + (", raw" if n == 0 else "") + f" > j{n} > d{n}"
        for n in range(count)
    ]
    toml = (
        f'dataset = [{{ name = "raw", grain = "day", start = "{label(0)}" }}, {", ".join(tables)}]'
        f"\njob = [{', '.join(jobs)}]"
    )

    # A run key beyond the bounds of its output writes nothing, and is not run.
    writing = [set(runs[n]) & set(range(firsts[n], lasts[n] + 1)) for n in range(count)]
    stale = [{changed} & writing[0], *(set[int]() for _ in jobs[1:])]
    before = None
    while before != stale:
        before = [set(one) for one in stale]
        for n in range(count):
            for m, how in reads[n].items():
                low, high = READS[how]
                read = {day + by for day in stale[m] for by in range(low, high + 1)}
                stale[n] |= read & writing[n]
    needs = nx.DiGraph()
    for n in range(count):
        for m, how in reads[n].items():
            low, high = READS[how]
            needs.add_edges_from(
                ((m, day - by), (n, day))
                for day in stale[n]
                for by in range(low, high + 1)
                if day - by in stale[m]
            )
    tied = {
        node
        for group in nx.strongly_connected_components(needs)
        if len(group) > 1
        for node in group
    }
    waiting = tied.union(*(nx.descendants(needs, node) for node in tied))

    found = plan(request({"raw": label(changed)}), lineage("\n".join(edges)), toml)
    for n in range(count):
        part = find(found, f"j{n}")
        left = {day for m, day in waiting if m == n}
        assert days(part.partitions) == stale[n] - left, toml
        assert days(part.left_stale) == left, toml


def days(keys: Sequence[Any]) -> set[int]:
    found: set[int] = set()
    for key in keys:
        one, _, two = str(key).partition("..")
        begin, end = (date.fromisoformat(day) for day in (one, two or one))
        found.update(range((begin - FIRST).days, (end - FIRST).days + 1))
    return found


def test_a_lookback_reads_later_keys_of_a_cycle() -> None:
    toml = """
    dataset = [{ name = "*", grain = "day", start = "2024-01-01" }]
    [[job]]
    name = "j0"
    reads = [{ dataset = "d1", mapping = "offset", by = -1 }]
    writes = [{ dataset = "d0", lookback = 1 }]
    """
    made = plan(request({"raw": "2024-03-01"}), lineage("raw, d1 > j0 > d0\nd0 > j1 > d1"), toml)
    assert find(made, "j0").status != "planned"  # 03-01 is corrected by what 03-02 reads


def test_a_cycle_over_two_grids_goes_on_to_the_newest_key() -> None:
    toml = """
    [[dataset]]
    name = "h*"
    grain = "hour"
    start = "2024-03-01T00"
    [[dataset]]
    name = "d*"
    grain = "day"
    start = "2024-02-10"
    [[job]]
    name = "j0"
    grain = "day"
    start = "2024-03-05"
    reads = [{ dataset = "d1", mapping = "offset", by = -1 }]
    [[job]]
    name = "j1"
    grain = "hour"
    start = "2024-03-01T00"
    writes = [{ dataset = "d1", mode = "merge" }]
    """
    edges = lineage("hraw, d1 > j0 > h0\nh0 > j1 > d1")
    made = plan(request({"hraw": "2024-03-10T05"}), edges, toml)
    assert find(made, "j0").partitions == ("2024-03-10..2024-03-31",)
    assert find(made, "j1").partitions == ("2024-03-10T00..2024-03-31T23",)


def test_a_long_cycle_is_planned_without_its_keys_one_by_one() -> None:
    declared = declarations(
        'dataset = [{ name = "*", grain = "hour", start = "2014-08-30T23" }]\n'
        'job = [{ name = "j0", reads = [{ dataset = "d1", mapping = "offset", by = -1 }] }]'
    )
    edges = lineage("raw, d1 > j0 > d0\nd0 > j1 > d1")
    tracemalloc.start()
    try:
        made = Planner(edges, declared, now=NOW).plan(request({"raw": "2014-08-31T05"}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.totals["runs"] == 168_062
    assert peak < 20e6
