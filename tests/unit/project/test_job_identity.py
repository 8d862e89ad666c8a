"""What a project file says of a job's identity: other names, older names, its edges."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.project.declarations import JobDeclaration
from lineage_backfill.project.reader import jobs


def _job(**values: object) -> JobDeclaration:
    (found,) = jobs([values], "here", engines=(), pools=())
    return found


def test_a_pattern_names_the_job_by_what_is_left_of_it() -> None:
    assert _job(pattern="deequ_agg_ds={day:%Y_%m_%d}").name == "deequ_agg"
    assert _job(pattern="{id}", name="queries").name == "queries"


def test_older_names_and_shared_outputs_are_read() -> None:
    found = _job(
        name="grp.t2",
        replaces="t2",
        edges_of="30d",
        writes=[{"dataset": "b", "shares": ["other"]}],
    )
    assert (found.replaces, found.retired, found.edges_of) == (("t2",), None, "30d")
    assert found.writes[0].shares == ("other",)


@pytest.mark.parametrize("span", ["month", "0d", "last"])
def test_edges_come_from_the_last_run_or_a_length_of_time(span: str) -> None:
    with pytest.raises(UsageError, match="edges_of"):
        _job(name="j", edges_of=span)
