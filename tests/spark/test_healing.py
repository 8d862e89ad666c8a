"""The example of ingestion that heals itself does what its page says, whatever goes wrong."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.cli.main import main
from lineage_backfill.runspec.values import RunResult
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from spark_runtime.tables.tables import Tables
from spark_runtime.undo import undo_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "healing"
NOW = datetime(2024, 6, 8, 1, tzinfo=UTC)
COLUMNS = "id INT, day STRING, amount INT, updated_at STRING"
#: Its id, its day, its amount, and when it was changed.
Order = tuple[int, str, int, str]


class Shop:
    """The example at work, with a model of what its tables should hold."""

    def __init__(self, spark: SparkSession, feed: Any) -> None:
        self.spark = spark
        self.feed = feed
        self.loads: list[Order] = []

    def send(self, day: str, *orders: Order, more: dict[str, str] | None = None) -> None:
        """Let the shop send a slice, in place of what it sent for that day before."""
        columns = {"extracted": f"'{day}'", **(more or {})}
        frame = self.spark.createDataFrame(list(orders), COLUMNS).selectExpr(
            *[f"{value} AS {name}" for name, value in columns.items()], "*"
        )
        self.feed.write(frame, [day], run_id=f"feed-{len(self.loads)}-{day}", on_drift="relax")
        self.loads += orders

    def start(self, name: str, *keys: str) -> RunResult:
        """Run a job, once or once for each key."""
        project, job = load_project(Path()), load_job(f"healing:{name}")
        declared = declare(
            project, name, entrypoint=f"healing:{name}", reads=job.reads, writes=job.writes
        )
        request = StartRequest(keys=keys)
        for spec in run_specs(declared, project, request, NOW, batch=job.batch):
            result = run(self.spark, spec, Tables(self.spark))
            assert result.error is None
        return result

    def heal(self, *days: str) -> dict[str, int]:
        """Take slices in, and bring the other tables up to date; return what silver counts."""
        self.start("to_bronze", *days)
        (silver,) = self.start("to_silver").outputs
        self.start("to_gold", "2024-06-01..2024-06-07")
        assert silver.merged is not None
        return dict(silver.merged)

    def stale(self, capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
        """Return which keys of which jobs `stale` names, whatever the reason."""
        events = [text for path in Path().rglob("*.ndjson") for text in ("--events", str(path))]
        now = NOW.isoformat().replace("+00:00", "Z")
        assert main(["stale", "--json", "--now", now, *events]) == 0
        jobs = json.loads(capsys.readouterr().out)["jobs"]
        assert not [job for job in jobs if job["unjudged"]]
        found = {
            job["job"]["name"]: [
                *job["missing"],
                *(key for one in job["older"] for key in one["partitions"]),
            ]
            for job in jobs
        }
        return {name: keys for name, keys in found.items() if keys}

    def held(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.format("delta").load(str(Path("data", name).absolute()))
        texts = [f"CAST({column} AS STRING)" for column in columns]
        return sorted(tuple(row) for row in frame.selectExpr(*texts).collect())

    def check(self) -> None:
        """Compare silver and gold, row by row, with what all slices together say."""
        newest: dict[int, Order] = {}
        for order in self.loads:  # of two with one time of change the later load counts
            known = newest.get(order[0])
            if known is None or order[3] >= known[3]:
                newest[order[0]] = order
        expected = sorted((str(o[0]), o[1], str(o[2])) for o in newest.values())
        assert self.held("silver", "id", "day", "amount") == expected
        sums: dict[str, int] = {}
        for _, day, amount, _ in newest.values():
            sums[day] = sums.get(day, 0) + amount
        assert self.held("gold", "day", "amount") == sorted((d, str(n)) for d, n in sums.items())


@pytest.fixture
def shop(
    spark: SparkSession,
    make_table: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Shop(spark, make_table(tmp_path / "data" / "feed", ["extracted"]))
    sys.modules.pop("healing", None)


def day(number: int) -> str:
    return f"2024-06-0{number}"


def at(number: int, hour: int = 8) -> str:
    return f"2024-06-0{number} 0{hour}:00:00"


def test_whatever_comes_late_twice_or_again_is_corrected(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.send(day(1), (1, day(1), 10, at(1)), (2, day(1), 20, at(1)))
    assert shop.heal(day(1)) == {"inserted": 2, "updated": 0, "deleted": 0}
    shop.check()

    # Nothing runs on three days; the next one takes them in, with a late correction of the first.
    shop.send(day(2), (3, day(2), 5, at(2)))
    shop.send(day(3), (4, day(3), 40, at(3)), (4, day(3), 40, at(3)), (4, day(3), 41, at(3, 9)))
    shop.send(day(4), (5, day(4), 50, at(4)), (2, day(1), 21, at(4)))
    shop.send(day(5), (6, day(1), 60, at(5)), (2, day(1), 22, at(5)), (7, day(5), 9, at(5)))
    assert shop.stale(capsys) == {"to_bronze": [f"{day(2)}..{day(7)}"]}
    assert shop.heal(f"{day(2)}..{day(5)}") == {"inserted": 5, "updated": 1, "deleted": 0}
    shop.check()
    assert shop.stale(capsys) == {"to_bronze": [f"{day(6)}..{day(7)}"]}

    # An old slice is extracted again: an amount was wrong, and its time of change is the same.
    shop.send(day(2), (3, day(2), 500, at(2)))
    assert shop.stale(capsys) == {"to_bronze": [f"{day(6)}..{day(7)}", day(2)]}
    assert shop.heal(day(2)) == {"inserted": 0, "updated": 1, "deleted": 0}
    shop.check()

    # The first slice once more, unchanged: what was corrected since stays.
    shop.send(day(1), (1, day(1), 10, at(1)), (2, day(1), 20, at(1)))
    assert shop.heal(day(1)) == {"inserted": 0, "updated": 1, "deleted": 0}
    shop.check()

    shop.send(day(6), (8, day(6), 1, at(6)), more={"note": "'new'"})
    assert shop.heal(day(6)) == {"inserted": 1, "updated": 0, "deleted": 0}
    shop.check()
    frame = shop.spark.read.format("delta").load(str(Path("data/silver").absolute()))
    assert [row["id"] for row in frame.where("note = 'new'").collect()] == [8]
    shop.send(day(7), (9, day(7), 1, at(7)))
    shop.heal(day(7))
    assert shop.stale(capsys) == {}


def test_an_undone_run_leaves_its_slices_new(shop: Shop) -> None:
    shop.send(day(1), (1, day(1), 10, at(1)))
    shop.heal(day(1))
    shop.send(day(2), (2, day(2), 20, at(2)))
    shop.start("to_bronze", day(2))
    wrong = shop.start("to_silver")
    undo_runs(shop.spark, tokens=[wrong.token], location=str(Path("data/silver").absolute()))
    assert shop.held("silver", "id") == [("1",)]
    assert shop.heal(day(2)) == {"inserted": 1, "updated": 0, "deleted": 0}
    shop.check()
    # Nothing is new: nothing is read.
    (read,) = [one.merged for one in shop.start("to_silver").outputs]
    assert read == {"inserted": 0, "updated": 0, "deleted": 0}


def test_all_of_a_table_that_was_made_again_is_new(shop: Shop) -> None:
    for number in (1, 2):
        shop.send(day(number), (number, day(number), number, at(number)))
        shop.heal(day(number))
    shutil.rmtree(Path("data/bronze"))
    for number in (1, 2, 3):
        shop.send(day(number), (10 + number, day(number), number, at(number)))
        shop.start("to_bronze", day(number))
    counts = shop.start("to_silver").outputs[0].merged
    assert counts == {"inserted": 3, "updated": 0, "deleted": 0}
