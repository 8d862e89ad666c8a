"""Which backfills a driver may take by itself, and which are interrupted."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from lineage_backfill.model import BackfillState
from lineage_backfill.ports import Claim, ControlRequest, Driver, Holder, Settings
from lineage_backfill.runs.drive.owner import LEASE, may_drive, owner, standing
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, backfill_record

LATER = NOW + timedelta(hours=1)
ALIVE = Holder(owner=owner(), until=NOW + LEASE)
DEAD = Holder(owner=owner().rpartition(" ")[0] + " 999999999", until=NOW + LEASE)
ELSEWHERE = Holder(owner="far process 1", until=NOW + LEASE)
OVER = Holder(owner=owner(), until=NOW)


@pytest.mark.parametrize(
    ("values", "holder", "fence", "wanted"),
    [
        pytest.param({}, ALIVE, 1, False, id="it is driven"),
        pytest.param({}, ELSEWHERE, 1, False, id="it is driven elsewhere"),
        pytest.param({}, DEAD, 1, True, id="its driver has died"),
        pytest.param({}, OVER, 1, True, id="its lease is over"),
        pytest.param({}, None, 1, True, id="it was let go"),
        pytest.param({}, None, 0, False, id="it is about to be driven"),
        pytest.param({"updated_at": NOW - LEASE}, None, 0, True, id="its submitter has died"),
        pytest.param({"state": "scheduled"}, None, 0, True, id="it waits for a driver"),
        pytest.param({"state": "scheduled"}, ALIVE, 1, False, id="its driver waits"),
        pytest.param(
            {"state": "scheduled", "scheduled_for": LATER}, None, 0, False, id="it is early"
        ),
        pytest.param({"state": "scheduled", "scheduled_for": NOW}, None, 0, True, id="it is due"),
        pytest.param(
            {"state": "scheduled", "scheduled_for": LATER, "control": ControlRequest.CANCEL},
            None,
            0,
            True,
            id="somebody gave it up before",
        ),
        *(
            pytest.param({"state": state}, None, 1, False, id=f"it is {state}")
            for state in BackfillState
            if not state.is_under_way
        ),
    ],
)
def test_who_may_drive(
    values: dict[str, Any], holder: Holder | None, fence: int, wanted: bool
) -> None:
    given = values | {"state": BackfillState(values.get("state", "running"))}
    claim = Claim(backfill_record(**given), holder, fence)
    assert may_drive(claim, NOW) is wanted


@pytest.mark.parametrize(
    ("driver", "state"),
    [
        (None, "interrupted"),
        (Driver(owner=ALIVE.owner, until=LATER, project="shop"), "running"),
        (Driver(owner=DEAD.owner, until=LATER, project="shop"), "interrupted"),
        (Driver(owner=ALIVE.owner, until=NOW, project="shop"), "interrupted"),
        (Driver(owner=ALIVE.owner, until=LATER, project="other"), "interrupted"),
        (Driver(owner=ALIVE.owner, until=LATER, project="shop", target="prod"), "interrupted"),
    ],
)
def test_what_a_live_driver_will_take_is_not_interrupted(driver: Driver | None, state: str) -> None:
    with closing(SqlRunStore(IN_MEMORY)) as store:
        record = backfill_record(settings=Settings(project="shop"), updated_at=NOW - LEASE)
        store.create(record, {}, [])
        if driver is not None:
            store.announce(driver)
        assert standing(store, "b-1", NOW)[0].state == state
