"""An error in a declared calendar names what it is of, and which of its ends is wrong."""

from __future__ import annotations

import pytest

from lineage_backfill.errors import KeyFormatError
from lineage_backfill.project.declarations import CalendarDeclaration
from lineage_backfill.project.resolve.calendars import Calendars


@pytest.mark.parametrize("end", ["start", "end"])
def test_a_date_for_a_week_names_the_end_that_it_is_of(end: str) -> None:
    weeks = CalendarDeclaration(grain="week", **{end: "2024-01-01"})  # type: ignore[arg-type]
    calendars = Calendars("UTC", 1_710_000_000, lambda _: ())
    with pytest.raises(KeyFormatError, match=f"^dataset w: `{end}` '2024-01-01' is not") as refused:
        calendars.resolve(weeks, (), (), "dataset w")
    assert "2024-W01" in refused.value.hint
