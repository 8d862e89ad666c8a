"""What every run store promises."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lineage_backfill.errors import (
    ConflictError,
    StoreError,
    UnknownNameError,
    UsageError,
)
from lineage_backfill.model import (
    ALLOWED_MOVES,
    BACKFILL_MOVES,
    BackfillState,
    DatasetRef,
    JobRef,
    RunState,
)
from lineage_backfill.plans.plan import DatasetPartitions
from lineage_backfill.ports import (
    Act,
    AttemptState,
    ControlRequest,
    Driver,
    EngineRun,
    Holder,
    Lease,
    Move,
    Origin,
    RunStore,
    SavedPlan,
    Settings,
    Token,
    Trace,
)
from lineage_backfill.store.sql import IN_MEMORY, SqlRunStore
from tests.fakes import NOW, backfill_record, planned_run

TTL = timedelta(seconds=30)
LATER = NOW + timedelta(seconds=31)
PLAN = {"kind": "plan", "runs": []}


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    made: RunStore
    if request.param == "memory":
        made = SqlRunStore(IN_MEMORY)
    elif request.param == "sqlite":
        made = SqlRunStore(f"sqlite:///{tmp_path}/new/folder/runs.db")
    else:
        made = SqlRunStore(request.getfixturevalue("postgres_url"))
    yield made
    made.close()


def create(store: RunStore, backfill_id: str = "b-1", count: int = 2) -> Lease:
    runs = [planned_run(f"r{n}", keys=("2024-03-01..2024-03-03",)) for n in range(count)]
    store.create(backfill_record(backfill_id), PLAN, runs)
    return lease_of(store, backfill_id)


def lease_of(store: RunStore, backfill_id: str = "b-1") -> Lease:
    return store.acquire(backfill_id, "me", now=NOW, ttl=TTL)


def submitted(run_id: str = "r0", attempt: int = 1) -> Move:
    token = f"{run_id}-{attempt}"
    return Move(run_id=run_id, state=RunState.SUBMITTED, attempt=attempt, token=token)


def running(run_id: str = "r0", attempt: int = 1) -> Move:
    state = AttemptState.RUNNING
    return Move(
        run_id=run_id, state=RunState.RUNNING, attempt=attempt, attempt_state=state, handle="h"
    )


def ended(state: RunState, run_id: str = "r0", attempt: int = 1, error: str | None = None) -> Move:
    good = state is RunState.SUCCEEDED
    return Move(
        run_id=run_id,
        state=state,
        attempt=attempt,
        attempt_state=AttemptState.SUCCEEDED if good else AttemptState.FAILED,
        result={"rows": [1, "ü"]} if good else None,
        error=error,
    )


def test_a_backfill_comes_back_as_it_was_written(store: RunStore) -> None:
    record = backfill_record(
        title="t" * 200,
        description="d" * 1000,
        reason="three bad hours",
        submitted_by="ann",
        parameters={"a": [1, None]},
        code_version="abc",
        scheduled_for=LATER,
        settings=Settings(cutoff=False),
    )
    runs = [planned_run("z", keys=("2024-03-01..2024-03-03", "2024-03-09")), planned_run("a")]
    store.create(record, PLAN, runs)
    assert store.backfill("b-1") == record
    assert store.plan("b-1") == PLAN
    assert [run.run_id for run in store.runs("b-1")] == ["z", "a"]
    first = store.runs("b-1")[0]
    assert (first.job, first.partitions, first.count) == (runs[0].job, runs[0].partitions, 2)
    assert (first.state, first.attempt, first.token) == (RunState.PENDING, 0, None)


def test_a_title_and_a_description_are_of_limited_length() -> None:
    with pytest.raises(UsageError, match="the title has 201 characters"):
        backfill_record(title="t" * 201)
    with pytest.raises(UsageError, match="1001 characters"):
        backfill_record(description="d" * 1001)


def test_an_id_is_used_once(store: RunStore) -> None:
    create(store)
    with pytest.raises(StoreError):
        store.create(backfill_record(), PLAN, [])


def test_an_unknown_backfill_is_named_with_its_near_misses(store: RunStore) -> None:
    create(store, "b-20240401-1234")
    for read in (store.backfill, store.plan, store.runs, store.attempts, store.events):
        with pytest.raises(UnknownNameError, match="no backfill b-20240401-1243") as caught:
            read("b-20240401-1243")
        assert "b-20240401-1234" in caught.value.hint
    with pytest.raises(UnknownNameError):
        store.acquire("b-9", "me", now=NOW, ttl=TTL)
    with pytest.raises(UnknownNameError):
        store.request_control("b-9", ControlRequest.PAUSE, now=NOW)


def test_the_newest_backfill_is_listed_first_and_deleted_ones_are_not(store: RunStore) -> None:
    for number in range(3):
        at = NOW + timedelta(minutes=number)
        store.create(backfill_record(f"b-{number}", submitted_at=at), PLAN, [])
    store.delete("b-1", now=LATER)
    assert [record.id for record in store.backfills()] == ["b-2", "b-0"]
    assert store.backfill("b-1").deleted


def test_an_attempt_goes_from_intent_to_outcome(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [submitted()], now=NOW)
    [run, other] = store.runs("b-1")
    assert (run.state, run.attempt, run.token) == (RunState.SUBMITTED, 1, "r0-1")
    assert (run.started_at, run.ended_at) == (NOW, None)
    assert other.state is RunState.PENDING
    store.record(lease, [running()], now=NOW)
    assert store.runs("b-1")[0].handle == "h"
    store.record(lease, [ended(RunState.SUCCEEDED)], now=LATER)
    run = store.runs("b-1")[0]
    assert (run.state, run.ended_at) == (RunState.SUCCEEDED, LATER)
    [attempt] = store.attempts("b-1")
    assert attempt.state is AttemptState.SUCCEEDED
    assert attempt.result == {"rows": [1, "ü"]}
    assert (attempt.handle, attempt.submitted_at, attempt.ended_at) == ("h", NOW, LATER)


def test_what_an_attempt_runs_as_is_kept_beside_its_handle(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [submitted(), submitted("r1")], now=NOW)
    assert store.runs("b-1")[0].engine_run is None
    first = EngineRun(origin=Origin.CREATED, id="made")
    again = EngineRun(origin=Origin.RERUN, id="there", facts={"tries": {"build": 3}})
    store.record(lease, [replace(running(), engine_run=first), running("r1")], now=NOW)
    assert [run.engine_run for run in store.runs("b-1")] == [first, None]
    store.record(lease, [replace(running(), engine_run=again)], now=NOW)
    store.record(lease, [running()], now=NOW)  # nothing new is known
    store.record(lease, [ended(RunState.PENDING, error="x"), submitted(attempt=2)], now=LATER)
    assert store.runs("b-1")[0].engine_run is None  # of the latest attempt
    one, _, two = store.attempts("b-1")
    assert (one.engine_run, two.engine_run) == (again, None)
    origins = [event.detail.get("origin") for event in store.events("b-1")]
    assert [origin for origin in origins if origin] == ["created", "re-run"]


def test_a_second_attempt_leaves_the_first_one_as_it_was(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [submitted(), running(), ended(RunState.PENDING, error="x")], now=NOW)
    store.record(lease, [submitted(attempt=2)], now=LATER)
    first, second = store.attempts("b-1")
    assert (first.state, first.error) == (AttemptState.FAILED, "x")
    assert (second.state, second.handle, second.error) == (AttemptState.QUEUED, None, None)
    run = store.runs("b-1")[0]
    assert (run.attempt, run.token, run.handle, run.error) == (2, "r0-2", None, None)


def reach(store: RunStore, lease: Lease, state: RunState) -> None:
    way = {
        RunState.PENDING: [],
        RunState.SUBMITTED: [submitted()],
        RunState.RUNNING: [submitted(), running()],
        RunState.SUCCEEDED: [submitted(), ended(RunState.SUCCEEDED)],
        RunState.SKIPPED: [Move(run_id="r0", state=RunState.SKIPPED)],
        RunState.FAILED: [submitted(), ended(RunState.FAILED)],
        RunState.BLOCKED: [Move(run_id="r0", state=RunState.BLOCKED)],
        RunState.CANCELLED: [Move(run_id="r0", state=RunState.CANCELLED)],
    }
    store.record(lease, way[state], now=NOW)


@pytest.mark.parametrize("old", list(RunState))
@pytest.mark.parametrize("new", list(RunState))
def test_only_allowed_moves_are_made(store: RunStore, old: RunState, new: RunState) -> None:
    lease = create(store)
    reach(store, lease, old)
    before = store.runs("b-1"), store.attempts("b-1"), store.events("b-1")
    move = submitted(attempt=2) if new is RunState.SUBMITTED else Move(run_id="r0", state=new)
    if new in ALLOWED_MOVES[old]:
        store.record(lease, [move], now=NOW)
        assert store.runs("b-1")[0].state is new
    else:
        with pytest.raises(StoreError, match=f"r0 cannot go from {old} to {new}"):
            store.record(lease, [submitted("r1"), move], now=NOW)
        assert (store.runs("b-1"), store.attempts("b-1"), store.events("b-1")) == before


def test_a_run_that_is_not_in_the_plan_is_refused(store: RunStore) -> None:
    with pytest.raises(StoreError, match="no run r9"):
        store.record(create(store), [submitted("r9")], now=NOW)


def test_a_token_is_used_once(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [submitted()], now=NOW)
    store.record(lease, [ended(RunState.PENDING)], now=NOW)
    with pytest.raises(StoreError):
        store.record(lease, [replace(submitted(attempt=1), token="r0-1")], now=NOW)


def test_events_are_kept_in_order(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [submitted()], now=NOW)
    store.record(lease, [ended(RunState.FAILED, error="boom")], now=LATER)
    store.enter(lease, BackfillState.FAILED, now=LATER)
    events = store.events("b-1")
    assert [(one.kind, one.run_id) for one in events] == [
        ("created", None),
        ("leased", None),
        ("submitted", "r0"),
        ("failed", "r0"),
        ("failed", None),
    ]
    assert events[3].detail == {"attempt": 1, "error": "boom"}
    assert store.events("b-1", after=events[2].id) == events[3:]


def test_the_state_of_a_backfill_says_when_it_ended(store: RunStore) -> None:
    lease = create(store)
    store.enter(lease, BackfillState.FAILED, now=LATER)
    record = store.backfill("b-1")
    assert (record.state, record.ended_at) == (BackfillState.FAILED, LATER)
    store.enter(lease, BackfillState.RUNNING, now=LATER)
    assert store.backfill("b-1").ended_at is None


@pytest.mark.parametrize("old", list(BackfillState))
@pytest.mark.parametrize("new", list(BackfillState))
def test_a_backfill_makes_only_allowed_moves(
    store: RunStore, old: BackfillState, new: BackfillState
) -> None:
    store.create(backfill_record(state=old), PLAN, [])
    lease = lease_of(store)
    if new in BACKFILL_MOVES[old]:
        store.enter(lease, new, now=LATER)
        record = store.backfill("b-1")
        assert (record.state, record.ended_at is None) == (new, new.is_under_way)
    else:
        with pytest.raises(StoreError, match=f"b-1 cannot go from {old} to {new}"):
            store.enter(lease, new, now=LATER)
        assert store.backfill("b-1").state is old


def test_the_holder_of_a_lease_is_known(store: RunStore) -> None:
    with pytest.raises(UnknownNameError):
        store.claim("b-1")
    store.create(backfill_record(), PLAN, [])
    assert store.claim("b-1").holder is None
    lease = lease_of(store)
    assert store.claim("b-1").holder == Holder(owner="me", until=NOW + TTL)
    store.renew(lease, now=LATER, ttl=TTL)
    assert store.claim("b-1").holder == Holder(owner="me", until=LATER + TTL)
    store.release(lease)
    assert store.claim("b-1").holder is None


def test_a_lease_is_held_by_one_until_it_runs_out(store: RunStore) -> None:
    first = create(store)
    with pytest.raises(ConflictError, match="b-1 is driven by me"):
        store.acquire("b-1", "you", now=NOW, ttl=TTL)
    second = store.acquire("b-1", "you", now=LATER, ttl=TTL)
    assert second.fence > first.fence


def test_a_renewed_lease_holds_for_longer(store: RunStore) -> None:
    lease = create(store)
    store.renew(lease, now=NOW + timedelta(seconds=20), ttl=TTL)
    with pytest.raises(ConflictError):
        store.acquire("b-1", "you", now=LATER, ttl=TTL)


def test_a_released_lease_is_free(store: RunStore) -> None:
    store.release(create(store))
    assert store.acquire("b-1", "you", now=NOW, ttl=TTL).fence == 2


def test_the_lease_of_a_dead_owner_is_free(store: RunStore) -> None:
    create(store)
    taken = store.acquire("b-1", "you", now=NOW, ttl=TTL, is_dead=lambda owner: owner == "me")
    assert taken.owner == "you"


def test_writes_under_an_overtaken_lease_are_refused(store: RunStore) -> None:
    old = create(store)
    new = store.acquire("b-1", "you", now=LATER, ttl=TTL)
    writes: tuple[Callable[[], object], ...] = (
        lambda: store.record(old, [submitted()], now=LATER),
        lambda: store.enter(old, BackfillState.FAILED, now=LATER),
        lambda: store.renew(old, now=LATER, ttl=TTL),
        lambda: store.lock(old, []),
    )
    for write in writes:
        with pytest.raises(ConflictError, match="taken over"):
            write()
    store.release(old)
    store.record(new, [submitted()], now=LATER)
    assert store.runs("b-1")[0].state is RunState.SUBMITTED


def test_a_driven_backfill_is_not_deleted(store: RunStore) -> None:
    lease = create(store)
    with pytest.raises(ConflictError):
        store.delete("b-1", now=NOW)
    store.release(lease)
    store.delete("b-1", now=NOW)


def test_a_deleted_undo_counts_only_if_a_run_of_it_began(store: RunStore) -> None:
    store.release(create(store))
    runs = [planned_run("r0")]
    store.create(backfill_record("b-2", undo_of="b-1"), PLAN, runs)
    assert store.backfill("b-1").undone_by == "b-2"
    store.delete("b-2", now=NOW)
    assert store.backfill("b-1").undone_by is None
    store.create(backfill_record("b-3", undo_of="b-1"), PLAN, runs)
    lease = lease_of(store, "b-3")
    store.record(lease, [submitted()], now=NOW)
    store.release(lease)
    store.delete("b-3", now=NOW)
    assert store.backfill("b-1").undone_by == "b-3"


def test_a_control_request_reaches_the_executor(store: RunStore) -> None:
    lease = create(store)
    assert store.renew(lease, now=NOW, ttl=TTL) is None
    store.request_control("b-1", ControlRequest.PAUSE, now=NOW)
    assert store.renew(lease, now=NOW, ttl=TTL) is ControlRequest.PAUSE
    assert store.backfill("b-1").control is ControlRequest.PAUSE
    store.request_control("b-1", None, now=NOW)
    assert store.renew(lease, now=NOW, ttl=TTL) is None


@pytest.mark.parametrize("first", [*ControlRequest, None])
@pytest.mark.parametrize("second", [*ControlRequest, None])
def test_a_weaker_request_takes_back_no_stronger_one(
    store: RunStore, first: ControlRequest | None, second: ControlRequest | None
) -> None:
    create(store)
    store.request_control("b-1", first, now=NOW)
    store.request_control("b-1", second, now=NOW)
    strength = [None, *ControlRequest]
    expected = max(first, second, key=strength.index) if second else None
    assert store.backfill("b-1").control is expected


def writes(*keys: str, name: str = "daily") -> list[DatasetPartitions]:
    return [DatasetPartitions(dataset=DatasetRef("n", name), keys=keys or None)]


@pytest.mark.parametrize(
    ("sentence", "held", "wanted", "conflict"),
    [
        ("the same key", ("2024-03-01",), ("2024-03-01",), "2024-03-01"),
        ("another key", ("2024-03-01",), ("2024-03-02",), None),
        ("ranges that touch", ("2024-03-01..2024-03-05",), ("2024-03-05..2024-03-09",), "2024"),
        ("ranges apart", ("2024-03-01..2024-03-04",), ("2024-03-05..2024-03-09",), None),
        ("a key in a gap", ("2024-03-01", "2024-03-03"), ("2024-03-02",), None),
        ("an unpartitioned dataset", ("*",), ("*",), r"\*"),
        ("all of a dataset", (), ("2024-03-01",), "2024-03-01"),
        ("a repeated hour", ("2024-10-27T02+0300..2024-10-27T05",), ("2024-10-27T02+0200",), "T02"),
        ("static keys", ("eu",), ("us",), None),
    ],
)
def test_partitions_are_locked_against_other_backfills(
    store: RunStore,
    sentence: str,
    held: tuple[str, ...],
    wanted: tuple[str, ...],
    conflict: str | None,
) -> None:
    holder, other = create(store, "b-1"), create(store, "b-2")
    store.lock(holder, writes(*held))
    store.lock(holder, writes(*held))  # its own are no hindrance
    if conflict is None:
        store.lock(other, writes(*wanted))
    else:
        with pytest.raises(ConflictError, match=f"b-1 holds partitions of n:daily.*{conflict}"):
            store.lock(other, writes(*wanted))
    store.lock(other, writes(*wanted, name="another"))
    store.release(holder)
    store.lock(other, writes(*wanted))


def test_boxes_of_product_keys_meet_where_every_dimension_does(store: RunStore) -> None:
    def box(day: str, region: str) -> list[DatasetPartitions]:
        keys = ({"day": [day], "region": [region]},)
        return [DatasetPartitions(dataset=DatasetRef("n", "by_region"), keys=keys)]

    holder, other = create(store, "b-1"), create(store, "b-2")
    store.lock(holder, box("2024-03-01..2024-03-03", "eu"))
    store.lock(other, box("2024-03-02", "us"))
    store.lock(other, box("2024-03-04", "eu"))
    with pytest.raises(ConflictError):
        store.lock(other, box("2024-03-02", "eu"))


def test_many_threads_may_write_at_once(store: RunStore) -> None:
    leases = [create(store, f"b-{n}", count=20) for n in range(4)]
    errors: list[BaseException] = []

    def work(lease: Lease) -> None:
        try:
            for number in range(20):
                store.record(
                    lease,
                    [replace(submitted(f"r{number}"), token=f"{lease.backfill_id}-{number}")],
                    now=NOW,
                )
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for lease in leases:
        states = {run.state for run in store.runs(lease.backfill_id)}
        assert states == {RunState.SUBMITTED}


def traced(move: Move, *keys: str, job: str = "daily", contents: Any = None) -> Move:
    return replace(move, trace=Trace(job=JobRef("n", job), keys=keys, contents=contents))


def seen(store: RunStore, *keys: str, job: str = "daily") -> list[tuple[tuple[Any, ...], Any]]:
    return [(one.keys, one.contents) for one in store.traces(JobRef("n", job), keys)]


def test_a_trace_is_unknown_until_its_attempt_has_succeeded(store: RunStore) -> None:
    lease = create(store)
    day = "2024-03-01"
    store.record(lease, [traced(submitted(), day)], now=NOW)
    assert seen(store, day) == [((day,), None)]
    done = ended(RunState.SUCCEEDED)
    store.record(lease, [traced(done, day, contents={"reads": ["ü"]})], now=LATER)
    (trace,) = store.traces(JobRef("n", "daily"), (day,))
    assert trace.contents == {"reads": ["ü"]}
    assert (trace.backfill_id, trace.since, trace.ended_at) == ("b-1", NOW, LATER)
    assert seen(store, day, job="another") == []
    trace = Trace(job=JobRef("n", "other"), keys=(day,), since=NOW - TTL)
    store.record(lease, [replace(submitted("r1"), trace=replace(trace, since=None))], now=NOW)
    store.record(lease, [replace(done, run_id="r1", trace=trace)], now=LATER)
    (trace,) = store.traces(trace.job, (day,))
    assert (trace.since, trace.ended_at) == (NOW - TTL, LATER)

    store.delete("b-1", now=LATER + TTL)
    assert seen(store, day) == [((day,), {"reads": ["ü"]})]
    other = create(store, "b-2")
    store.record(other, [traced(replace(submitted(), token="t"), day)], now=LATER)
    # In doubt from the moment of the intent.
    assert seen(store, day) == [((day,), None), ((day,), {"reads": ["ü"]})]
    failed = ended(RunState.FAILED)
    store.record(other, [traced(failed, day, contents={"reads": []})], now=LATER)
    assert seen(store, day) == [((day,), None), ((day,), {"reads": ["ü"]})]
    again = [
        traced(Move(run_id="r0", state=RunState.PENDING), day),
        traced(submitted(attempt=2), day),
        traced(ended(RunState.SUCCEEDED, attempt=2), day),
    ]
    store.record(other, again[:1], now=LATER)
    store.record(other, again[1:2], now=LATER)
    assert len(seen(store, day)) == 2
    store.record(other, again[2:], now=LATER)
    (trace,) = store.traces(JobRef("n", "daily"), (day,))
    assert (trace.contents, trace.ended_at, trace.backfill_id) == (None, LATER, "b-2")


def test_traces_of_other_sets_of_keys_stay_and_the_newest_comes_first(store: RunStore) -> None:
    lease = create(store, count=3)
    month, week, day = "2024-03-01..2024-03-31", "2024-03-04..2024-03-10", "2024-03-20"
    for number, keys in enumerate((month, week, day)):
        run = f"r{number}"
        done = ended(RunState.SUCCEEDED, run)
        moves = [traced(submitted(run), keys), traced(done, keys, contents={"n": number})]
        store.record(lease, moves, now=NOW)
    assert seen(store, "2024-03-05") == [((week,), {"n": 1}), ((month,), {"n": 0})]
    assert seen(store, "2024-03-19..2024-04-02") == [((day,), {"n": 2}), ((month,), {"n": 0})]
    assert seen(store, "2024-04-02") == []
    numbers = [one.number for one in store.traces(JobRef("n", "daily"), (month,))]
    assert numbers == sorted(numbers, reverse=True)


def test_an_attempt_completes_its_own_trace_only(store: RunStore) -> None:
    lease, other = create(store, "b-1"), create(store, "b-2")
    store.record(lease, [traced(submitted(), "*")], now=NOW)
    store.record(other, [traced(replace(submitted(), token="t"), "*")], now=NOW)
    done = ended(RunState.SUCCEEDED)
    store.record(lease, [traced(done, "*", contents={"n": 1})], now=NOW)
    assert seen(store, "*") == [(("*",), None)]
    store.record(other, [traced(done, "*", contents={"n": 2})], now=NOW)
    assert seen(store, "*") == [(("*",), {"n": 2})]


def test_boxes_of_product_keys_are_traced(store: RunStore) -> None:
    lease = create(store)
    box = {"day": ["2024-03-01..2024-03-03"], "region": ["eu"]}
    store.record(
        lease, [replace(submitted(), trace=Trace(job=JobRef("n", "j"), keys=(box,)))], now=NOW
    )
    wanted = {"day": ["2024-03-02"], "region": ["us"]}
    assert [one.keys for one in store.traces(JobRef("n", "j"), (wanted,))] == [(box,)]


def test_keys_that_were_cut_off_are_kept_with_the_run(store: RunStore) -> None:
    lease = create(store)
    store.record(lease, [replace(submitted(), cut_off=("2024-03-02",))], now=NOW)
    skipped = Move(run_id="r1", state=RunState.SKIPPED, cut_off=("2024-03-01..2024-03-03",))
    store.record(lease, [skipped], now=NOW)
    first, second = store.runs("b-1")
    assert (first.state, first.cut_off) == (RunState.SUBMITTED, ("2024-03-02",))
    assert (second.state, second.cut_off) == (RunState.SKIPPED, ("2024-03-01..2024-03-03",))
    assert store.events("b-1")[-1].detail == {"cut_off": ["2024-03-01..2024-03-03"]}
    store.record(lease, [ended(RunState.PENDING), submitted(attempt=2)], now=NOW)
    assert store.runs("b-1")[0].cut_off == ()


def test_stores_have_names_of_their_own(store: RunStore) -> None:
    assert len(store.id) == 32
    with closing(SqlRunStore(IN_MEMORY)) as other:
        assert store.id != other.id


def test_past_runs_tell_how_long_each_job_took(store: RunStore) -> None:
    """The newest first; a run by its own result, without its wait; no undo; no failure."""

    def ran(backfill_id: str, job: str, ids: str, **record: Any) -> None:
        runs = [planned_run(f"{job}{one}", job=job, keys=("k1", "k2")) for one in ids]
        store.create(backfill_record(backfill_id, **record), PLAN, runs)
        lease = lease_of(store, backfill_id)
        for number, run in enumerate(runs, start=1):
            store.record(lease, [submitted(run.id)], now=NOW)
            end = NOW + timedelta(seconds=number)
            state = RunState.FAILED if run.id == "b2" else RunState.SUCCEEDED
            begin = (end - timedelta(seconds=0.5)).isoformat()
            own = {"started_at": begin, "ended_at": end.isoformat()}
            result = {"outputs": [], **(own if run.id == "a2" else {})}
            store.record(lease, [replace(ended(state, run.id), result=result)], now=end)
        store.release(lease)

    ran("b-1", "a", "123")
    ran("b-2", "b", "12")
    ran("b-3", "b", "9", undo_of="b-2")

    def told(limit: int) -> set[tuple[str, float]]:
        return {(one.job.name, one.seconds) for one in store.past_runs(limit)}

    assert told(2) == {("a", 3.0), ("a", 0.5), ("b", 1.0)}
    assert [one.seconds for one in store.past_runs(9) if one.job.name == "a"] == [3, 0.5, 1]


def test_runs_are_counted_by_state_for_several_backfills_at_once(store: RunStore) -> None:
    lease = create(store, count=3)
    create(store, "b-2", count=1)
    create(store, "b-3", count=1)
    store.record(lease, [submitted(), running(), ended(RunState.SUCCEEDED)], now=NOW)
    assert store.tallies(["b-1", "b-2"]) == {
        "b-1": {RunState.SUCCEEDED: 1, RunState.PENDING: 2},
        "b-2": {RunState.PENDING: 1},
    }
    assert store.tallies([]) == {}


def test_what_has_moved_on_is_read_by_events(store: RunStore) -> None:
    lease = create(store, count=3)
    before = store.last_event("b-1")
    assert before == store.events("b-1")[-1].id
    store.record(lease, [submitted()], now=NOW)
    (event,) = store.events("b-1", after=before)
    assert store.last_event("b-1") == event.id
    every = store.runs("b-1")
    assert store.runs("b-1", only=[every[2].run_id, every[0].run_id]) == (every[0], every[2])
    assert store.runs("b-1", only=[]) == ()
    with pytest.raises(UnknownNameError):
        store.last_event("b-none")


def test_open_claims_are_those_under_way_with_their_leases(store: RunStore) -> None:
    for number, state in enumerate(BackfillState):
        at = NOW + timedelta(minutes=number)
        record = backfill_record(f"b-{state}", state=state, submitted_at=at)
        store.create(record, PLAN, [])
    assert [one.record.id for one in store.open_claims()] == ["b-scheduled", "b-running"]
    assert {(one.holder, one.fence) for one in store.open_claims()} == {(None, 0)}
    lease = store.acquire("b-running", "me", now=NOW, ttl=TTL)
    held = store.claim("b-running")
    assert (held.holder, held.fence) == (Holder(owner="me", until=NOW + TTL), 1)
    assert held.record == store.backfill("b-running")
    store.release(lease)
    assert store.claim("b-running")[1:] == (None, 1)
    store.delete("b-scheduled", now=NOW)
    assert [one.record.id for one in store.open_claims()] == ["b-running"]
    with pytest.raises(UnknownNameError):
        store.claim("b-none")


def test_drivers_announce_themselves_again_and_withdraw(store: RunStore) -> None:
    one = Driver(owner="me", until=NOW, project="shop", target="")
    store.announce(one)
    store.announce(replace(one, until=LATER))
    store.announce(replace(one, owner="other", target="prod"))
    assert {(one.owner, one.until, one.target) for one in store.drivers()} == {
        ("me", LATER, ""),
        ("other", NOW, "prod"),
    }
    for _ in range(2):
        store.withdraw("me")
    assert [one.owner for one in store.drivers()] == ["other"]


def test_an_act_is_kept_once_with_how_it_ended(store: RunStore) -> None:
    one = Act(key="k", at=NOW, who="ann", door="pages", verb="start", plan_id="sha256:1")
    assert store.begin_act(one) is None
    assert store.begin_act(replace(one, who="bob", at=LATER)) == one, "it was begun before"
    store.end_act(replace(one, backfill_id="b-1"))
    refused = Act(key="r", at=LATER, who="bob", door="python", verb="undo", refused="not now")
    store.end_act(refused)  # also without its beginning
    assert store.acts(9) == (refused, replace(one, backfill_id="b-1"))
    assert store.acts(1) == (refused,)
    assert [act.key for act in store.acts(9, backfill_id="b-1")] == ["k"]


def test_a_token_is_kept_until_it_is_revoked(store: RunStore) -> None:
    one = Token(prefix="a", name="ci", hash="h", created_by="ann", created_at=NOW)
    store.put_token(one)
    store.put_token(replace(one, prefix="b", created_at=LATER, expires_at=LATER))
    store.put_token(revoked := replace(one, used_at=NOW, revoked_at=LATER))
    later, first = store.tokens()
    assert first == revoked
    assert not first.holds(NOW)
    assert later.holds(NOW)
    assert not later.holds(LATER)


def test_a_saved_plan_is_changed_by_one_user_at_a_time(store: RunStore) -> None:
    plan: dict[str, Any] = {"jobs": []}
    more = {"title": "x"}
    one = SavedPlan(id="sha256:1", plan=plan, submission=more, author="ann", saved_at=NOW)
    store.save_plan(one)
    with pytest.raises(ConflictError, match="saved before"):
        store.save_plan(one)
    store.save_plan(replace(one, id="sha256:2", saved_at=LATER))
    approved = replace(one, approved_by="bob", approved_at=LATER)
    store.change_plan(one, approved)
    with pytest.raises(ConflictError, match="just now"):
        store.change_plan(one, replace(one, approved_by="eve"))
    assert store.saved_plans()[1] == approved
    store.change_plan(approved, replace(approved, backfill_id="b-1"))
    store.change_plan(store.saved_plans()[0], replace(one, id="sha256:2", discarded=True))
    assert store.saved_plans() == ()


def test_the_jobs_of_each_backfill_are_known(store: RunStore) -> None:
    assert store.jobs() == {}
    create(store)
    assert store.jobs() == {"b-1": {run.job for run in store.runs("b-1")}}
    assert store.jobs("b-1") == store.jobs()
    assert store.jobs("b-2") == {}


def test_a_cursor_is_moved_by_one_process_and_its_hook_goes_on_from_there(
    store: RunStore,
) -> None:
    create(store)
    hooks = ["h", "other"]
    lease = store.acquire("b-1", "me", now=NOW + TTL, ttl=TTL, hooks=hooks)
    before = [one.id for one in store.events("b-1") if one.kind == "leased"][-1]
    (cursor,) = store.hook_cursors("h", now=LATER)
    assert (cursor.hook, cursor.backfill_id, cursor.event) == ("h", "b-1", before - 1)
    assert (cursor.due_at, cursor.tries) == (NOW + TTL, 0)
    assert store.hook_cursors("h", now=NOW) == store.hook_cursors("none", now=LATER) == ()
    moved = replace(cursor, event=before, due_at=LATER, tries=1)
    assert store.move_cursor(cursor, moved)
    assert not store.move_cursor(cursor, moved)  # another process was faster
    assert not store.move_cursor(cursor, None)
    assert store.hook_cursors("h", now=LATER) == (moved,)
    store.acquire("b-1", "me", now=LATER + TTL, ttl=TTL, hooks=hooks)
    again = replace(moved, due_at=LATER + TTL)
    assert store.hook_cursors("h", now=LATER + TTL) == (again,)
    assert not store.move_cursor(moved, None), "a new drive needs it"
    assert store.move_cursor(again, None)
    assert store.hook_cursors("h", now=LATER + TTL) == ()
    assert [one.hook for one in store.hook_cursors("other", now=LATER + TTL)] == ["other"]
    store.delete("b-1", now=LATER + 3 * TTL)
    assert lease.backfill_id == "b-1"
