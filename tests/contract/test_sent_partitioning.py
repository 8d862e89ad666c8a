"""What jobs declare of themselves reaches the planner with their lineage: nobody else has to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lineage_backfill.model import DatasetRef
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.project.declarations import Declarations, JobPartitioning
from lineage_backfill.sources.events import EventSource
from spark_runtime.configuration import load_project
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.job.datasets import Dataset, Dimension, Read, Write, window
from spark_runtime.job.scheduled import Batch, StartRequest, declare, run_specs
from tests.unit.planning.world import NOW, find, plan, shown

ORDERS = Dataset(
    "orders", grain="hour", start="2024-03-01T00", columns={"h": "%Y-%m-%dT%H"}, location="/orders"
)
DAILY = Dataset(
    "daily",
    grain="day",
    zone="America/New_York",
    start="2024-03-01",
    column="day",
    location="/daily",
)
ROLLING = Dataset(
    "rolling",
    dimensions=(
        Dimension("day", grain="day", zone="America/New_York", start="2024-03-01", column="day"),
        Dimension("region", keys=("eu", "us"), column="region"),
    ),
    location="/rolling",
)
JOBS = {
    "sum_up": ([Read(ORDERS)], [Write(DAILY, lookback=1)]),
    "roll": ([window(DAILY, before=6)], [Write(ROLLING)]),
}


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The events of one ordinary run of each job, in a project without a file."""
    monkeypatch.setenv("LINEAGE_BACKFILL_LINEAGE_OUTBOX", str(tmp_path / "outbox"))
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    project = load_project(tmp_path)
    for name, (reads, writes) in JOBS.items():
        batch: Batch = "range" if name == "sum_up" else "key"
        job = declare(project, name, reads=reads, writes=writes, runs=JobPartitioning(batch=batch))
        (spec,) = run_specs(
            job, project, StartRequest(exact=True), datetime(2024, 3, 20, 12, tzinfo=UTC)
        )
        emitter = Emitter(spec, NOW)
        inputs = [InputSeen(spec=one, state=None) for one in spec.inputs]
        outputs = [OutputSeen(spec=one, state=None) for one in spec.outputs]
        emitter.start(inputs, outputs)
        emitter.complete(inputs, outputs)
    return tmp_path / "outbox"


def test_a_plan_needs_no_declarations_where_jobs_send_theirs(outbox: Path) -> None:
    lineage = EventSource([outbox]).read()
    changed = ChangedDataset(dataset=DatasetRef("default", "orders"), keys=("2024-03-10T05",))
    made = plan(Request(changed=(changed,)), lineage, Declarations())
    # 05:00 in UTC is the midnight after which the 10th of March begins in New York; it is also in
    # the deliveries that correct the 9th, and in the seven days up to each of these.
    assert shown(find(made, "sum_up").partitions) == "2024-03-09..2024-03-10"
    assert shown(find(made, "roll").partitions) == "day=2024-03-09..2024-03-16/region=eu+us"
    assert [job.status for job in made.jobs] == ["planned", "planned"]
    # `sum_up` computes any number of days at once, and says so in its code.
    runs = [(run.job.name, run.count) for run in made.runs or ()]
    assert (runs.count(("sum_up", 2)), runs.count(("roll", 1))) == (1, 16)
