"""What a person sees, pinned at 80 and at 120 columns."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console, RenderableType
from syrupy.assertion import SnapshotAssertion

from lineage_backfill import (
    JobDeclaration,
    JobNode,
    LineageSnapshot,
    Plan,
    ReadDeclaration,
)
from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.progress import LiveProgress, PlainProgress, progress
from lineage_backfill.cli.output.render import preview
from lineage_backfill.cli.output.tables import (
    history_table,
    report_table,
    rows_table,
    status_table,
)
from lineage_backfill.cli.output.why import explained
from lineage_backfill.critic.explain import Explanation, Hop, explain
from lineage_backfill.model import BackfillState, DatasetRef, JobRef, RunState
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.planner import Planner, Planning
from lineage_backfill.plans.plan import changed_in_short
from lineage_backfill.show.backfills import names_in, outcome, outputs, verdict
from lineage_backfill.show.names import Names, keys_in_words
from lineage_backfill.show.plans import PlanFacts, decisions, summary, tree
from lineage_backfill.show.text import UNKNOWN
from lineage_backfill.show.words import in_short, mapping_in_words
from tests.unit.cli import plans, reports_of
from tests.unit.cli.documents import fits
from tests.unit.planning.world import plan, request


def shown(renderable: RenderableType, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert not any("\x1b" in line for line in lines)
    assert all(len(line) <= width for line in lines)
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("plan", [plans.real, plans.odd])
def test_preview(plan: Callable[[], Plan], width: int, snapshot: SnapshotAssertion) -> None:
    facts = PlanFacts(untouched=[plans.job("weather")])
    assert shown(preview(plan(), width=width, facts=facts), width) == snapshot


def test_only_a_job_in_reach_is_listed_as_unaffected() -> None:
    dag = JobNode(ref=plans.job("dag"), reads=(), writes=())
    declared = replace(
        plans.DECLARATIONS,
        jobs=(
            *plans.DECLARATIONS.jobs,
            JobDeclaration(name="told", reads=(ReadDeclaration(dataset="weather"),)),
        ),
    )
    told = JobNode(ref=plans.job("told"), reads=(), writes=())
    nodes = [*plans.SNAPSHOT.jobs.values(), dag, told]
    resolver = Resolver(LineageSnapshot.of(nodes), declared, now=plans.NOW)
    assert PlanFacts.of(plans.real(), resolver).untouched == []


def test_nothing_to_run(snapshot: SnapshotAssertion) -> None:
    totals = {"jobs": 0, "runs": 0, "partitions": 0}
    plan = replace(plans.real().detailed(jobs=(), runs=()), totals=totals)
    assert shown(preview(plan, width=80), 80) == snapshot


def test_a_job_stands_below_the_one_it_follows() -> None:
    rows = [(guide, job.job.name) for guide, job in tree(plans.real().jobs)]
    assert rows[0] == ("", "clean")
    assert rows[1] == ("└ ", "daily")
    assert {guide for guide, name in rows[2:]} == {"  ├ ", "  └ "}


WIDTHS = (40, 80, 120, 200)
SIZES = (10, 40, 400, 5_000)


@pytest.mark.parametrize("jobs", SIZES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_preview_of_many_jobs(jobs: int, width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(preview(plans.many(jobs), width=width), width) == snapshot


@pytest.mark.parametrize("jobs", SIZES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_screen_says_what_changed_how_much_runs_and_what_needs_a_decision(
    jobs: int, width: int
) -> None:
    plan = plans.many(jobs)
    lines = shown(preview(plan, width=width), width).splitlines()
    brief = " ".join(" ".join(lines[: lines.index("")]).split())
    assert brief.startswith("Changed raw_orders: 2024-03-10T10..T12 Will run ")
    assert f"Will run {plan.totals['jobs']:,} jobs, {plan.totals['partitions']:,} part" in brief
    assert "Needs you" in brief
    assert "protected (run with --allow-protected)" in brief
    assert len(lines) <= (60 if width >= 80 else 90)
    assert ("in groups; --all lists each" in " ".join(" ".join(lines).split())) == (jobs > 30)


@pytest.mark.parametrize("width", WIDTHS)
def test_all_names_every_job_whole(width: int) -> None:
    plan = plans.many(400)
    text = shown(preview(plan, width=width, listing=ListOptions(every=True)), width)
    planned = [job.job.name for job in plan.jobs if job.status == "planned"]
    assert all(name in "".join(text.split()) for name in planned)
    assert all(name in text for name in planned if width >= 80)
    assert all(job.job.name in text for job in plan.jobs if width >= 120)
    assert "--all " not in text


def test_short_keys_and_reasons() -> None:
    assert keys_in_words(tuple("abcdefgh"), most=3) == "a\nb\nc\nand 5 more"
    short = {job.job.name: in_short(job.reason, Names(())) for job in plans.real().jobs}
    assert short["rolling"] == "reads daily and 6 before"
    assert short["total"] == "reads daily, continues"
    (odd,) = plans.odd().jobs
    assert in_short(odd.reason, Names(())) == "requested, reads in0 +3, inferred"


def test_mappings_in_words() -> None:
    names = ("offset(1)", "offset(-2)", "window(1, 2)", "window(0, 0)", "mine:f")
    assert [mapping_in_words(name, "day") for name in names] == [
        "the day after",
        "2 days before",
        "this day and the 1 before it and the 2 after it",
        "this day",
        "mine:f",
    ]


def planning() -> Planning:
    return Planner(plans.SNAPSHOT, plans.DECLARATIONS, now=plans.NOW).session(plans.REQUEST)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["weekly", "rolling", "total", "guarded", "mystery", "weather"])
def test_why(name: str, width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(explained(explain(planning(), plans.job(name))), width) == snapshot


def test_why_of_a_key_that_only_its_own_earlier_ones_make_stale() -> None:
    said = explain(planning(), plans.job("total"), ("2013-03-20",))
    lines = shown(explained(said), 80).splitlines()
    assert lines[0].startswith("total 2013-03-20 is planned")
    assert "total  2013-03-20     its own output, made stale by an earlier key" in lines
    assert "total  2013-03-10     daily 2013-03-10" in lines


def test_why_of_what_was_asked_for_and_of_a_hostile_name() -> None:
    evil = JobRef("a[b]", "evil[red]\x1b[31m")
    hop = Hop(job=evil, keys=("k\x07",), dataset=None, mapping="asked", stale=())
    said = Explanation(
        job=evil, keys=("k\x07",), verdict="planned", sentence="so\x1b", hops=(hop,) * 30
    )
    text = shown(explained(said), 80)
    assert r"evil[red]\x1b[31m k\x07 is planned: so\x1b." in text
    assert "named in the request" in text
    assert "and 6 steps more; --json has all" in text


TABLES: list[tuple[str, Callable[[Any], RenderableType], Callable[[], dict[str, Any]]]] = [
    ("history", partial(history_table, now=reports_of.NOW), reports_of.history),
    ("no history", history_table, lambda: {"backfills": [], "hidden": 0}),
    ("hidden history", history_table, lambda: {"backfills": [], "hidden": 2}),
    (
        "partly hidden",
        partial(history_table, now=reports_of.NOW),
        lambda: {**reports_of.history(), "hidden": 1},
    ),
    ("status", status_table, reports_of.status),
    ("report", report_table, reports_of.report),
    ("report of a success", report_table, reports_of.report_of_success),
    ("status in Airflow", status_table, reports_of.status_in_airflow),
    ("report in Airflow", report_table, reports_of.report_in_airflow),
]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("what", "make", "document"), TABLES, ids=[one[0] for one in TABLES])
def test_tables(
    what: str,
    make: Callable[[Any], RenderableType],
    document: Callable[[], dict[str, Any]],
    width: int,
    snapshot: SnapshotAssertion,
) -> None:
    assert shown(make(document()), width) == snapshot


def ended(state: BackfillState, **states: int) -> dict[str, Any]:
    """The status of a backfill whose runs of two partitions each ended in these states."""
    runs = [
        {"job": {"namespace": "n", "name": f"{one}{number}"}, "state": one, "count": 2}
        for one, many in states.items()
        for number in range(many)
    ]
    totals = {"runs": len(runs), **states}
    return {"state": state, "totals": totals, "runs": runs}


def rewritten(*changed: int, exact: bool | None = True, **more: Any) -> dict[str, Any]:
    """The report on tables with 5 rewritten partitions each (-1: not needed)."""
    outputs = [
        {
            "job": {"namespace": "n", "name": f"{number}"},
            "touched": {"count": 0 if one < 0 else 5},
            "changed": {"count": max(one, 0)},
            "cut_off": {"count": 5 if one < 0 else 0},
        }
        for number, one in enumerate(changed)
    ]
    state = BackfillState.SUCCEEDED
    document = {"state": state, "touched_is_planned": exact, "outputs": outputs, "undo_of": None}
    return {**document, **more}


def test_what_was_not_needed_is_not_called_rewritten() -> None:
    assert verdict(rewritten(1, 1)) == "Every planned partition was rewritten, and no other."
    assert "rewritten or not needed; no other" in verdict(rewritten(1, -1))


DONE = ended(BackfillState.SUCCEEDED, succeeded=2)
OUTCOMES: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    (DONE, rewritten(1, 0), "Repaired: 2 tables, 10 partitions rewritten exactly as planned."),
    (
        DONE,
        rewritten(5, undo_of="b-1"),
        "Restored: 1 table, 5 partitions rewritten exactly as planned.",
    ),
    (
        ended(BackfillState.SUCCEEDED, succeeded=1, skipped=4),
        rewritten(0, -1, -1, -1, -1),
        (
            "Your fix changed nothing: what was rewritten came out as before;"
            " 4 downstream jobs were not needed."
        ),
    ),
    (
        ended(BackfillState.FAILED, succeeded=24, failed=2, blocked=3),
        None,
        "Stopped: 2 of 29 runs failed; 10 partitions are still stale.",
    ),
    (
        ended(BackfillState.PAUSED, succeeded=3, pending=1),
        None,
        "Stopped: 3 of 4 runs done; 2 partitions are still stale.",
    ),
    (DONE, None, "Done: 2 runs succeeded or were not needed."),
    (
        DONE,
        rewritten(5, exact=False),
        "The rewritten partitions differ from those planned.",
    ),
]


@pytest.mark.parametrize(("status", "report", "sentence"), OUTCOMES)
def test_the_outcome_is_one_sentence(
    status: dict[str, Any], report: dict[str, Any] | None, sentence: str
) -> None:
    assert outcome(status, report) == sentence


def test_a_summary_names_what_run_refuses() -> None:
    plan = plans.many(12)
    runs = tuple(structs.replace(run, engine=None) for run in plan.runs or ())
    jobs = len({run.job for run in runs})
    assert (
        decisions(plan.detailed(runs=runs))[-1] == f"{jobs} jobs without an engine (`run` refuses)"
    )
    counted_only = replace(plan.detailed(runs=None), limits={"max_runs": 3})
    assert decisions(counted_only)[-1].startswith("more runs than max_runs = 3 (--allow-max-runs")
    assert not any("engine" in one or "max_runs" in one for one in decisions(plan))


def test_a_backfill_names_what_changed_beside_a_title_of_its_own() -> None:
    document = reports_of.status()
    made = document["changed"]
    assert made.startswith("feed 2013-03-10T05")
    assert f"changed {made}" in shown(status_table({**document, "title": "VAT fix"}), 80)
    assert "changed " not in shown(status_table({**document, "title": made}), 80)


def test_a_status_without_a_run_of_the_asked_state_says_so() -> None:
    text = shown(status_table({**reports_of.status(), "runs": []}), 80)
    assert text.splitlines()[-1] == "No run matches."
    assert "Partitions" not in text


def test_a_catch_up_counts_its_jobs() -> None:
    asked = [
        {"job": {"namespace": "n", "name": name}, "partitions": ["2024-06-15"]} for name in "ab"
    ]
    assert changed_in_short({"changed": [], "request": {"jobs": asked}}) == "2 jobs"
    assert changed_in_short({"changed": [], "request": {"jobs": asked[:1]}}) == "job a 2024-06-15"


def test_rows_of_what_was_not_rewritten_are_unknown_not_0() -> None:
    document = reports_of.report()
    cells = {name: row for _, name, row in outputs(document, names_in(document))}
    assert cells["clean"][3:5] == ("30", "22")
    assert cells["daily"][3:5] == (UNKNOWN, UNKNOWN)


def test_a_report_names_what_others_started() -> None:
    document = reports_of.report_in_airflow()
    assert fits(document, "report")
    (adopted,) = document["adopted"]
    assert adopted["engine_run"].startswith("daily/asset__1")
    assert adopted["state"] == "succeeded"
    (also,) = document["also_written"]
    assert also["datasets"] == [{"namespace": "nyc", "name": "audit"}]
    assert document["touched_is_planned"] is not True
    assert "Also written, outside the plan" in shown(report_table(document), 120)
    assert fits(reports_of.status_in_airflow(), "status")
    runs = reports_of.status_in_airflow()["runs"]
    assert [(run["origin"], run["engine_run"]) for run in runs[:3]] == [
        ("created", "clean/lb__t"),
        ("adopted", "daily/asset__1\x1b[31m"),
        ("re-run", "total/scheduled__1"),
    ]
    none = {"origin": None, "engine_run": None}
    assert reports_of.status()["runs"][0].items() >= none.items()


def told(reporter: PlainProgress) -> str:
    """Let everything happen that may, and return what was printed; times are left out."""
    plan = plans.real()
    clean, *others = plan.runs or ()
    with reporter.showing():
        reporter.backfill_started("b-1", plan, "")
        reporter.run_started(clean, 1)
        reporter.run_delayed(clean, timedelta(seconds=2), "no\x1b[2Jroute")
        reporter.run_started(clean, 2)
        reporter._started.clear()
        reporter.run_finished(clean, RunState.FAILED, "ValueError: [bad]\x07")
        for run in others:
            reporter.run_finished(run, RunState.BLOCKED, "nyc:clean did not succeed")
        reporter.stopping(1, hard=False)
        reporter.stopping(2, hard=True)
        reporter.backfill_finished("b-1", BackfillState.FAILED)
    assert isinstance(reporter.console.file, io.StringIO)
    return reporter.console.file.getvalue()


def test_progress_off_a_terminal(snapshot: SnapshotAssertion) -> None:
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    reporter = progress(console)
    assert type(reporter) is PlainProgress
    assert told(reporter) == snapshot


def test_progress_on_a_terminal_shows_bars_and_keeps_the_ends() -> None:
    console = Console(
        file=io.StringIO(), width=80, markup=False, highlight=False, force_terminal=True
    )
    reporter = progress(console)
    assert isinstance(reporter, LiveProgress)
    text = told(reporter)
    assert "clean" in text
    assert r"ValueError: [bad]\x07" in text
    assert "\x07" not in text
    assert "blocked daily: 1 run" in text
    assert reporter._tasks == {}


def test_a_narrow_preview_breaks_no_name(snapshot: SnapshotAssertion) -> None:
    text = shown(
        preview(plans.real(), width=40, facts=PlanFacts(untouched=[plans.job("weather")])), 40
    )
    assert max(map(len, text.splitlines())) <= 40
    assert text == snapshot


def test_names_are_bare_where_that_says_which() -> None:
    mine, other = DatasetRef("mine", "orders"), DatasetRef("s3://other", "orders")
    job, alone = JobRef("airflow", "orders"), DatasetRef("s3://other", "prices")
    names = Names([mine, other, job, alone])
    assert [names(one) for one in (mine, other)] == ["mine:orders", "s3://other:orders"]
    assert [names(one) for one in (job, alone)] == ["orders", "prices"]
    assert names(DatasetRef("third", "orders")) == "third:orders"


ROWS: dict[str, Any] = {
    "dataset": {"namespace": "n", "name": "orders"},
    "partitions": ["2024-03-10"],
    "version_before": 3,
    "version": 4,
    "rows_before": 30,
    "rows_after": 1_030,
    "row_key": ["id"],
    "key_is_unique": True,
    "added": {"count": 1_001, "rows": [{"id": "4", "email": "***"}]},
    "removed": {"count": 1, "rows": [{"id": "3"}]},
    "changed": {"count": 2, "rows": [{"id": "2", "price": {"before": "20", "after": None}}]},
    "sums": [{"column": "price", "before": "60", "after": None}],
    "new_columns": [],
    "lost_columns": [],
    "masked": ["email"],
}


def rows_document(output: dict[str, Any], **more: Any) -> dict[str, Any]:
    head = {"schema_version": 1, "kind": "rows", "backfill": None, "dry_run": None}
    return {**head, **more, "outputs": [output]}


def test_rows_before_and_after() -> None:
    document = rows_document(ROWS, backfill="b-1")
    assert fits(document, "rows")
    text = shown(rows_table(document), 80)
    assert "orders 2024-03-10  version 3 to 4" in text
    assert "30 rows before, 1,030 after: 1,001 added, 1 removed, 2 changed (matched by id)" in text
    assert "+  id: 4  email: ***" in text
    assert f"~  id: 2  price: 20 → {UNKNOWN}" in text
    assert "and 1,001 more" in text
    whole = {**ROWS, "row_key": [], "key_is_unique": False, "version_before": None}
    text = shown(rows_table(rows_document(whole, backfill="b-1")), 80)
    assert f"version {UNKNOWN} to 4" in text
    assert "1 removed (compared whole: the declared row_key is not unique)" in " ".join(
        text.split()
    )


def test_rows_that_a_run_would_change() -> None:
    run = {
        "job": {"namespace": "n", "name": "daily"},
        "partitions": ["2024-03-10"],
        "rewritten_first": [{"namespace": "n", "name": "hours"}],
    }
    document = rows_document({**ROWS, "version_before": None, "version": None}, dry_run=run)
    assert fits(document, "rows")
    text = shown(rows_table(document), 100)
    assert "daily 2024-03-10  ran on clones of its tables; the tables are unchanged." in text
    assert "The plan rewrites hours first; here they were read as they are now." in text
    assert "orders 2024-03-10\n30 rows before, 1,030 after: 1,001 added" in text
    assert "+  id: 4  email: ***" in text


def test_a_job_without_a_partition_to_run_is_shown_without_keys() -> None:
    daily = plans.job("daily")
    request = {"jobs": [{"job": {"namespace": daily.namespace, "name": "daily"}, "partitions": []}]}
    nothing = replace(plans.real(), changed=(), request=request)
    lines = summary(nothing, PlanFacts(counts={daily: 0}), Names.of(nothing, ()))
    assert lines["Changed"] == "job daily: no partitions"


def test_the_summary_counts_the_declarations_that_would_lift_the_blocks() -> None:
    edges = "raw > j > one\none > k > a\nraw > l > two"
    days = "[[dataset]]\nname = 'raw'\ngrain = 'day'\n[[dataset]]\nname = 'a'\ngrain = 'day'\n"
    made = plan(request({"raw": "2024-03-10"}), edges, days)
    wanted = "3 jobs blocked: 2 declarations are missing"
    assert decisions(made) == [wanted]
    known = days.partition("[[dataset]]\nname = 'a'")[0]
    alone = plan(request({"raw": "2024-03-10"}), "raw > j > one", known)
    assert decisions(alone) == ["1 job blocked: a declaration is missing"]
