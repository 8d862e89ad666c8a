"""Attributes scattered over tables, code, globs and facets do on Delta what one place does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lineage_backfill.lineage.snapshot import DatasetNode, JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import build_plan
from lineage_backfill.plans.request import ChangedDataset, Request
from lineage_backfill.runs.specs import RunSpecs
from lineage_backfill.runspec.parse import parse_spec
from lineage_backfill.workspace.environment import open_project
from spark_runtime.configuration import load_project
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import StartRequest, declare, run_specs
from tests.sampling import a_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_runtime.tables.tables import Tables

pytestmark = pytest.mark.slow

NOW = datetime(2024, 1, 7, tzinfo=UTC)
#: By what they belong to: what is stated together, and a worse statement of it.
ATTRIBUTES: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "dataset": [
        ({"grain": "day", "start": "2024-01-01"}, {"grain": "day", "start": "2024-01-04"}),
        ({"column": "ds"}, {"column": "other"}),
        ({"location": "out"}, {"location": "elsewhere"}),
    ],
    "reads": [({"mapping": "window", "before": 1}, {"mapping": "window", "before": 3})],
    "writes": [
        ({"mode": "merge", "merge_on": ["ds", "id"]}, {"mode": "append"}),
        ({"lookback": 1}, {"lookback": 3}),
        ({"on_empty": "keep"}, {"on_empty": "fail"}),
    ],
}
PLACES = ("exact", "code", "glob", "facet")
#: What a facet can state: the rest is of this project alone.
SENT = {"grain", "start", "column", "mapping", "before", "mode", "lookback", "on_empty"}
JOB = """
from functools import reduce
from spark_runtime import Dataset, RunContext, job, window

@job(inputs={{"src": {src}}}, output={out}, batch="range"{more})
def j(src, run: RunContext):
    days = {{key.key for key in run.keys}}
    rows = [(str(int(k[-2:]) - back), k) for k in sorted(days) for back in (0, 1)]
    made = [(k, row.id, row.n) for day, k in rows for row in src.collect() if row.ds[-1] == day]
    return src.sparkSession.createDataFrame(made, "ds STRING, id STRING, n INT")
"""


def scattered(seed: int, side: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what each place states of each side; a worse place may state something else.

    A scheduled run reads no lineage: for it a facet is only ever a worse place.
    """
    random = Random(seed)
    found = {place: {side: dict[str, Any]() for side in ATTRIBUTES} for place in PLACES}
    for of, attributes in ATTRIBUTES.items():
        for best, worse in attributes:
            places = PLACES if best.keys() <= SENT else PLACES[:-1]
            number = random.randrange(len(places) - (side == "scheduled" and places == PLACES))
            found[places[number]][of] |= best
            rest = PLACES[number + 1 : None if worse.keys() <= SENT else -1]
            if rest and random.random() < 0.6:
                found[random.choice(rest)][of] |= worse
    return found


def whole() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the same with all of it in the exact tables."""
    one = {
        side: {k: v for best, _ in all_ for k, v in best.items()}
        for side, all_ in ATTRIBUTES.items()
    }
    return {"exact": one, **{place: {side: {} for side in ATTRIBUTES} for place in PLACES[1:]}}


def project(folder: Path, name: str, stated: Mapping[str, Mapping[str, Any]]) -> None:
    """Write a project file and its code."""
    text = f'[project]\nnamespace = "w"\njobs = ["{name}"]\n'
    text += '[[dataset]]\nname = "src"\ngrain = "day"\nstart = "2024-01-01"\ncolumn = "ds"\n'
    text += 'location = "../src"\n'
    for place, data, job in (("exact", "out", "j"), ("glob", "o*", "*")):
        said = stated[place]
        text += f'[[dataset]]\nname = "{data}"\n{_toml(said["dataset"])}[[job]]\nname = "{job}"\n'
        text += f'[[job.reads]]\ndataset = "src"\n{_toml(said["reads"])}'
        text += f'[[job.writes]]\ndataset = "out"\n{_toml(said["writes"])}'
    folder.mkdir()
    (folder / "lineage-backfill.toml").write_text(text)
    code = {side: dict(said) for side, said in stated["code"].items()}
    if "location" in code["dataset"]:  # code has it relative to where the job runs
        code["dataset"]["location"] = str(folder / code["dataset"]["location"])
    before = code["reads"].get("before")
    src = f'window("src", before={before})' if before else '"src"'
    given = "".join(f", {key}={value!r}" for key, value in code["dataset"].items())
    out = f'Dataset("out"{given})' if given else '"out"'
    more = "".join(f", {key}={value!r}" for key, value in code["writes"].items())
    (folder / f"{name}.py").write_text(JOB.format(src=src, out=out, more=more))


def _toml(table: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items())


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days of source rows."""
    folder = tmp_path_factory.mktemp("scattered")
    rows = [(f"2024-01-0{day}", f"r{day}", day) for day in range(1, 6)]
    frame = spark.createDataFrame(rows, "ds STRING, id STRING, n INT").coalesce(1)
    frame.write.format("delta").partitionBy("ds").save(str(folder / "src"))
    return folder


def lineage(facets: Mapping[str, Mapping[str, Any]]) -> LineageSnapshot:
    """Return the lineage of the job, with what its facets state."""
    src, out = DatasetRef("w", "src"), DatasetRef("w", "out")
    sent = {
        side: [{"dataset": {"namespace": "w", "name": name}, **facets[side]}]
        for side, name in (("reads", "src"), ("writes", "out"))
        if facets[side]
    }
    job = JobNode(ref=JobRef("w", "j"), reads=(src,), writes=(out,), partitioning=sent or None)
    data = DatasetNode(ref=out, partitioning=dict(facets["dataset"]) or None)
    return LineageSnapshot.of([job], [data], source="events")


def left(
    spark: SparkSession,
    tables: Tables,
    folder: Path,
    stated: Mapping[str, Mapping[str, Any]],
    side: str,
) -> tuple[list[Any], list[Any]]:
    """Return the planned keys, and the table after a run of them as `side` starts it."""
    name = folder.name
    project(folder, name, stated)
    held = spark.createDataFrame([("2024-01-03", "old", 0)], "ds STRING, id STRING, n INT")
    held.coalesce(1).write.format("delta").partitionBy("ds").save(str(folder / "out"))
    opened = open_project(folder / "lineage-backfill.toml").declarations
    known = lineage(stated["facet"])
    changed = ChangedDataset(dataset=DatasetRef("w", "src"), keys=("2024-01-03",))
    plan = build_plan(Request(changed=(changed,)), known, opened, now=NOW)
    (made,) = plan.runs or ()
    if side == "planned":
        specs = RunSpecs(Resolver(known, opened, now=NOW), backfill_id="b", root=folder)
        spec = parse_spec(specs(made, 1, "t", folder / "result.json"))
    else:
        read, job = load_project(folder), load_job(f"{name}:j")
        point = f"{name}:j"
        declared = declare(read, point, entrypoint=point, reads=job.reads, writes=job.writes)
        keys = [str(key) for key in made.partitions]
        (spec,) = run_specs(declared, read, StartRequest(keys=keys, exact=True), NOW)
    assert run(spark, spec, tables).error is None
    rows = spark.read.format("delta").load(str(folder / "out")).collect()
    return list(made.partitions), sorted(map(tuple, rows))


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, tables: Tables, shared: Path
) -> Iterator[tuple[list[Any], list[Any]]]:
    """What the declaration in one place does: the planned keys, and the table."""
    folder = shared / "stated_whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield left(spark, tables, folder, whole(), "planned")


@pytest.mark.parametrize("seed", a_part([1, 2, 3, 4, 5, 6, 7, 8], every=4))
def test_what_is_scattered_does_what_one_place_states(
    spark: SparkSession,
    tables: Tables,
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: tuple[list[Any], list[Any]],
    seed: int,
) -> None:
    # The change, the day after it by the window, and the day before by lookback.
    days = [f"2024-01-0{day}" for day in (2, 3, 4)]
    read = [(day, number) for day in days for number in (int(day[-1]) - 1, int(day[-1]))]
    rows = [("2024-01-03", "old", 0), *((day, f"r{number}", number) for day, number in read)]
    assert expected == ([f"{days[0]}..{days[-1]}"], sorted(rows))
    for side in ("planned", "scheduled"):
        folder = shared / f"scattered_{seed}_{side}"
        monkeypatch.syspath_prepend(str(folder))
        assert left(spark, tables, folder, scattered(seed, side), side) == expected
