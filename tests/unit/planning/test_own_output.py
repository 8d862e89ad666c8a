"""A job that reads its own output reads what its earlier keys have written there, and no more."""

from __future__ import annotations

import pytest

from tests.unit.planning.world import find, plan, request, runs_of, shown, waits

TOTALS = """
[[dataset]]
name = "raw"
grain = "day"
[[dataset]]
name = "totals"
grain = "day"
[[job]]
name = "add"
[[job.reads]]
dataset = "totals"
mapping = "window"
before = 2
"""


@pytest.mark.parametrize("after", ["", "after = 0", "after = 1", "after = 3"])
def test_a_window_over_the_own_output_ends_where_the_key_starts(after: str) -> None:
    made = plan(request({"raw": "2024-03-28"}), "raw, totals > add > totals", TOTALS + after)
    assert find(made, "add").status == "planned"
    reads = {
        shown(run.partitions): shown(part.keys or ())
        for run in runs_of(made, "add")
        for part in run.reads
        if part.dataset.name == "totals"
    }
    assert reads == {
        "2024-03-28": "2024-03-26..2024-03-27",
        "2024-03-29": "2024-03-27..2024-03-28",
        "2024-03-30": "2024-03-28..2024-03-29",
        "2024-03-31": "2024-03-29..2024-03-30",
    }
    assert waits(made, "add")["2024-03-30"] == ["add[2024-03-28]", "add[2024-03-29]"]


@pytest.mark.parametrize("after", ["", ", after = 0", ", after = 2"])
def test_so_does_the_window_of_the_time_dimension_of_a_product(after: str) -> None:
    toml = f"""
[[dataset]]
name = "totals"
dimensions = [{{ name = "day", grain = "day" }}, {{ name = "shop", keys = ["a", "b"] }}]
[[job]]
name = "add"
[[job.reads]]
dataset = "totals"
dimensions.day = {{ mapping = "window", before = 1{after} }}
"""
    asked = request(jobs={"add": "day=2024-03-30/shop=b"})
    made = plan(asked, "totals > add > totals", toml)
    assert {
        shown(run.partitions): shown(run.reads[0].keys or ()) for run in runs_of(made, "add")
    } == {
        "day=2024-03-30/shop=b": "day=2024-03-29/shop=b",
        "day=2024-03-31/shop=b": "day=2024-03-30/shop=b",
    }


SHOPS = """
[[dataset]]
name = "totals"
grain = "day"
[[dataset]]
name = "sales"
dimensions = [{ name = "day", grain = "day" }, { name = "shop", keys = KEYS }]
[[job]]
name = "add"
dimensions = [{ name = "day", grain = "day" }, { name = "shop", keys = KEYS }]
[[job.reads]]
dataset = "totals"
mapping = "offset"
by = -1
[[job.writes]]
dataset = "totals"
mode = "merge"
"""


@pytest.mark.parametrize("keys", ['["a", "b"]', '"runtime"'])
@pytest.mark.parametrize(("sooner", "later"), ["ab", "ba"])
def test_keys_that_share_a_partition_of_the_own_output_run_in_order_of_time(
    keys: str, sooner: str, later: str
) -> None:
    """Whichever static key comes first, a day waits for what is merged into the day before."""
    sales = f"day=2024-03-30/shop={later}, day=2024-03-29/shop={sooner}"
    edges = "sales, totals > add > totals"
    made = plan(request({"sales": sales}), edges, SHOPS.replace("KEYS", keys))
    names = {shown(run.partitions): run.id for run in runs_of(made, "add")}
    assert next(iter(names)) == f"day=2024-03-29/shop={sooner}"
    for run in runs_of(made, "add"):
        day = int(shown(run.partitions)[len("day=2024-03-") :][:2])
        wanted = {one for key, one in names.items() if key.startswith(f"day=2024-03-{day - 1}")}
        assert wanted <= set(run.upstream)
