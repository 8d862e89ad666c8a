"""The other forms of a preview: tree, Mermaid, Markdown; hostile names stay text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import structs
from syrupy.assertion import SnapshotAssertion

from lineage_backfill import Plan
from lineage_backfill.cli.main import main
from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.formats import code, markdown, plain, plan_tree
from lineage_backfill.cli.output.render import first, preview
from lineage_backfill.show import draw
from lineage_backfill.show.draw import Drawing, Edge, Node
from lineage_backfill.show.plans import SHOWN_JOBS, PlanFacts, drawing
from tests.unit.cli import plans
from tests.unit.cli.test_render import shown

FACTS = PlanFacts(
    untouched=[plans.job("weather")],
    owners={plans.job("daily"): ("team-a",), plans.job("guarded"): ("fin|ance", "@bob")},
)


@pytest.mark.parametrize("width", [80, 120])
def test_who_owns_a_job_is_shown(width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(preview(plans.real(), width=width, facts=FACTS), width) == snapshot


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("plan", [plans.real(), plans.odd()], ids=["real", "odd"])
def test_tree(plan: Plan, width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(plan_tree(plan, FACTS, width), width) == snapshot


# --- drawings -----------------------------------------------------------------------------------

EVIL = 'a"b<c>|#&`\\\n\u202e]'


def evil() -> Drawing:
    nodes = (
        Node(key=1, kind="dataset", lines=(EVIL, "2024"), mark="changed"),
        Node(key=2, kind="job", lines=(EVIL,), mark="planned"),
        Node(key=3, kind="dataset", lines=("c",)),
    )
    edges = (
        Edge(source=1, target=2, label=EVIL),
        Edge(source=2, target=3, faint=True),
        Edge(source=3, target=2),  # a circle
        Edge(source=3, target=9),  # to what is not drawn
    )
    return Drawing(title=EVIL, nodes=nodes, edges=edges)


def test_mermaid(snapshot: SnapshotAssertion) -> None:
    assert draw.mermaid(drawing(plans.real())) == snapshot
    lines = draw.mermaid(evil()).splitlines()
    assert lines[1] == (
        r'  n0(["a#34;b#60;c#62;|#35;#38;#96;#92;#92;n#92;u202e]<br/>2024"]):::changed'
    )
    assert [line.split()[1] for line in lines[4:7]] == [
        '-->|"a#34;b#60;c#62;|#35;#38;#96;#92;#92;n#92;u202e]"|',
        "-.->",
        "-->",
    ]


def test_an_empty_drawing_is_drawn() -> None:
    nothing = Drawing(title="nothing", nodes=())
    assert draw.mermaid(nothing) == "flowchart LR\n"


# --- Markdown -----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", [plans.real(), plans.odd()], ids=["real", "odd"])
def test_markdown(plan: Plan, snapshot: SnapshotAssertion) -> None:
    text = markdown(plan, FACTS)
    assert text == snapshot
    assert "\x1b" not in text
    assert not re.search(r"@\w", re.sub(r"`[^`]*`", "", text))


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("jobs", [40, 400, 5_000])
def test_markdown_fits_a_comment_and_says_what_it_leaves_out(jobs: int, every: bool) -> None:
    text = markdown(plans.many(jobs), PlanFacts(), ListOptions(every=every))
    assert len(text) <= 65_000
    is_cut = every and jobs == 5_000
    assert ("Cut at 65,000 characters" in text) == is_cut
    assert ("jobs in groups; `--all` lists each" in text) != every
    assert (": use `--format mermaid`" in text) == (jobs > 60 and not is_cut)


@pytest.mark.parametrize("every", [False, True])
def test_a_long_tree_or_drawing_says_what_it_leaves_out(every: bool) -> None:
    plan, listing = plans.many(400), ListOptions(every=every)
    text = shown(plan_tree(plan, PlanFacts(), 80, listing), 80)
    assert ("and 200 more jobs; --all shows them" in text) != every
    drawn = draw.mermaid(drawing(plan, most=first(listing, SHOWN_JOBS)))
    assert ("and 200 more jobs; --all draws them" in drawn) != every


def test_deep_guides_leave_names_whole() -> None:
    jobs = list(plans.many(60).jobs)
    path: list[dict[str, object]] = []
    for number, job in enumerate(jobs):
        path.append({"job": {"namespace": "nyc", "name": job.job.name}})
        jobs[number] = structs.replace(job, reason={**job.reason, "path": path[-2:]})
    text = shown(plan_tree(plans.many(60).detailed(jobs=tuple(jobs)), PlanFacts(), 80), 80)
    assert all(job.job.name in text for job in jobs)
    assert "(59) ~ job_report" in text


def test_markdown_of_hostile_names_is_their_text() -> None:
    assert code("a|b") == r"`a\|b`"
    assert code("a``b") == "``` a``b ```"
    assert plain("*x* [y](z) <b> @me | a_b") == (r"\*x\* \[y\](z) \<b\> @<!-- -->me \| a\_b")


# --- the option ---------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2024-01-01T00:00:00Z",
        "run": {"runId": "00000000-0000-4000-8000-000000000001"},
        "job": {
            "namespace": "shop",
            "name": "daily",
            "facets": {"ownership": {"owners": [{"name": "team-b"}]}},
        },
        "inputs": [{"namespace": "shop", "name": "feed"}],
        "outputs": [{"namespace": "shop", "name": "daily"}],
        "producer": "https://example.org/",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }
    (tmp_path / "events.ndjson").write_text(json.dumps(event))
    (tmp_path / "lineage-backfill.toml").write_text(
        '[project]\nnamespace = "shop"\n[lineage]\nevents = ["events.ndjson"]\n'
        '[[dataset]]\nname = "*"\ngrain = "day"\nstart = "2024-01-01"\n'
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASKED = ["impact", "feed", "--from", "2024-01-02", "--to", "2024-01-04"]
ASKED += ["--now", "2024-02-01T00:00:00Z"]
FORMS = {
    "table": "Will run   1 job, 3 partitions, 3 runs",
    "tree": "~ daily  2024-01-02..04  3 runs  team-b",
    "markdown": "|1|`daily`|`2024-01-02..04`|3|team-b|",
    "mermaid": "flowchart LR",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_can_be_asked_for(
    shop: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ASKED, "--format", form]) == 0
    said = capsys.readouterr()
    assert FORMS[form] in said.out
    assert said.err == ""


def test_one_form_at_a_time(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--format", "tree", "--json"]) == 64
    assert main([*ASKED, "--format", "tree", "--why", "daily"]) == 64
    assert main([*ASKED, "--format", "nonsense"]) == 64
    assert "'nonsense' is not one of 'table', 'tree'" in capsys.readouterr().err


def test_why_not(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--why-not", "daily@2024-01-09"]) == 0
    assert "is not planned: it reads no changed partition" in capsys.readouterr().out
