"""The other forms of a preview: tree, map in time, drawings, Markdown; hostile names stay text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs
from syrupy.assertion import SnapshotAssertion

from lineage_backfill import Plan
from lineage_backfill.cli.main import main
from lineage_backfill.cli.options import ListOptions
from lineage_backfill.cli.output.formats import code, markdown, plain, plan_tree
from lineage_backfill.cli.output.heatmap import heatmap
from lineage_backfill.cli.output.render import first, preview
from lineage_backfill.model import JobRef
from lineage_backfill.planning.lookup import Resolver
from lineage_backfill.planning.timeline import Spans, timeline
from lineage_backfill.show import draw
from lineage_backfill.show.draw import Drawing, Edge, Node
from lineage_backfill.show.plans import SHOWN_JOBS, PlanFacts, drawing
from lineage_backfill.show.text import safe
from tests.unit.cli import plans
from tests.unit.cli.test_render import shown

FACTS = PlanFacts(
    untouched=[plans.job("weather")],
    owners={plans.job("daily"): ("team-a",), plans.job("guarded"): ("fin|ance", "@bob")},
)
HOUR = 3600
ZONE = "America/New_York"


@pytest.mark.parametrize("width", [80, 120])
def test_who_owns_a_job_is_shown(width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(preview(plans.real(), width=width, facts=FACTS), width) == snapshot


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("plan", [plans.real(), plans.odd()], ids=["real", "odd"])
def test_tree(plan: Plan, width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(plan_tree(plan, FACTS, width), width) == snapshot


# --- the map in time ----------------------------------------------------------------------------


def spans() -> Mapping[JobRef, Spans]:
    resolver = Resolver(plans.SNAPSHOT, plans.DECLARATIONS, now=plans.NOW, request=plans.REQUEST)
    return timeline(resolver, plans.real())


def test_keys_lie_where_their_calendar_says() -> None:
    found = spans()
    start = int(datetime.fromisoformat("2013-03-10T00:00-05:00").timestamp())
    day = (start, start + 23 * HOUR)  # clocks were set forward
    assert found[plans.job("daily")] == Spans(planned=(day,))
    assert found[plans.job("guarded")] == Spans(left=(day,))
    ((first, last),) = found[plans.job("weekly")].planned
    assert last - first == (7 * 24 - 1) * HOUR
    assert plans.job("mystery") not in found


@pytest.mark.parametrize("width", [80, 120])
def test_heatmap(width: int, snapshot: SnapshotAssertion) -> None:
    assert shown(heatmap(plans.real(), spans(), zone=ZONE, width=width), width) == snapshot


def test_the_map_takes_the_shortest_periods_that_fit() -> None:
    job = plans.job("clean")
    start = int(datetime.fromisoformat("2013-01-01T00:00-05:00").timestamp())
    for hours, unit in ((20, "hour"), (24 * 30, "day"), (24 * 300, "week"), (24 * 900, "month")):
        found = {job: Spans(planned=((start, start + hours * HOUR),))}
        text = shown(heatmap(plans.real(), found, zone=ZONE, width=80), 80)
        assert f" one {unit} in {ZONE}" in text
    assert "2013-01-01" in text


def test_a_shade_says_how_much_of_a_period_is_covered() -> None:
    job = plans.job("clean")
    day = int(datetime.fromisoformat("2013-02-01T00:00-05:00").timestamp())
    parts = [(day + n * 24 * HOUR, day + (24 * n + hours) * HOUR) for n, hours in COVERED]
    found = {job: Spans(planned=tuple(parts))}
    rows = shown(heatmap(plans.real(), found, zone=ZONE, width=60, plain=True), 60).splitlines()
    (row,) = [row for row in rows if row.startswith("~  clean")]
    assert re.sub(r"(.)\1+", r"\1", row.split()[-1]) == "-+*#.#"
    assert shown(heatmap(plans.real(), {}, zone=ZONE, width=80), 80).endswith("no time partitions.")


#: Days and how many of their hours are covered; the last ones make the axis longer than a day's.
COVERED = [(0, 8), (1, 16), (2, 17), (3, 24), (29, 24)]


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


def test_dot(snapshot: SnapshotAssertion) -> None:
    assert draw.dot(drawing(plans.real())) == snapshot
    text = draw.dot(evil())
    label = re.search(r'n0 \[label=("(?:[^"\\]|\\.)*")', text)
    assert label is not None
    # Graphviz reads \\ as a backslash and \n as a new line, as JSON does.
    assert json.loads(label[1]) == 'a"b<c>|#&`\\\\n\\u202e]\n2024'
    assert "n1 -> n2 [style=dashed]" in text
    assert "n9" not in text


@pytest.mark.parametrize("made", [drawing(plans.real()), drawing(plans.odd()), evil()])
def test_svg_is_whole_and_nothing_overlaps(made: Drawing) -> None:
    root = ET.fromstring(draw.svg(made))  # raises where it is not well-formed
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in root.iter(f"{space}rect")
    ]
    assert len(boxes) == len(made.nodes)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for number, (x, y, wide, high) in enumerate(boxes):
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height
        for x2, y2, wide2, high2 in boxes[:number]:
            assert x + wide <= x2 or x2 + wide2 <= x or y + high <= y2 or y2 + high2 <= y
    labels = [text for text in root.iter(f"{space}text") if text.get("class") == "label"]
    assert len(labels) == sum(bool(edge.label) for edge in made.known_edges())
    for label in labels:
        middle, top = float(label.attrib["x"]), float(label.attrib["y"]) - 9
        half = len(label.text or "") * 5.4 / 2
        for x, y, wide, high in boxes:
            apart = middle + half <= x or x + wide <= middle - half
            assert apart or top + 9 <= y or y + high <= top, label.text
    assert len(list(root.iter(f"{space}path"))) == len(made.known_edges()) + 1  # and the arrow's
    texts = [text.text for text in root.iter(f"{space}text")]
    assert all(line in texts for node in made.nodes for line in map(safe, node.lines))


def test_data_flows_from_left_to_right() -> None:
    text = draw.svg(drawing(plans.real()))
    left = {
        name: float(re.search(rf'<rect x="([\d.]+)"[^>]*/><text[^>]*>{name}</text>', text)[1])  # type: ignore[index]
        for name in ("feed", "daily", "weekly")
    }
    assert left["feed"] < left["daily"] < left["weekly"]


def test_an_empty_drawing_is_drawn() -> None:
    nothing = Drawing(title="nothing", nodes=())
    assert draw.mermaid(nothing) == "flowchart LR\n"
    ET.fromstring(draw.svg(nothing))


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
    assert (": use `--format svg`" in text) == (jobs > 60 and not is_cut)


@pytest.mark.parametrize("every", [False, True])
def test_a_long_tree_or_drawing_says_what_it_leaves_out(every: bool) -> None:
    plan, listing = plans.many(400), ListOptions(every=every)
    text = shown(plan_tree(plan, PlanFacts(), 80, listing), 80)
    assert ("and 200 more jobs; --all shows them" in text) != every
    drawn = draw.dot(drawing(plan, most=first(listing, SHOWN_JOBS)))
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
    "heatmap": "are one day in UTC",
    "markdown": "|1|`daily`|`2024-01-02..04`|3|team-b|",
    "mermaid": "flowchart LR",
    "dot": "digraph lineage {",
    "svg": '<svg xmlns="http://www.w3.org/2000/svg"',
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
    assert main([*ASKED, "--format", "svg", "--json"]) == 64
    assert main([*ASKED, "--format", "svg", "--why", "daily"]) == 64
    assert main([*ASKED, "--format", "nonsense"]) == 64
    assert "'nonsense' is not one of 'table', 'tree'" in capsys.readouterr().err


def test_why_not(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--why-not", "daily@2024-01-09"]) == 0
    assert "is not planned: it reads no changed partition" in capsys.readouterr().out
