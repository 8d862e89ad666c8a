"""The pages show what the documents of the command line say, and nothing that is not theirs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from lineage_backfill.model import BackfillState, RunState
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import Act, EngineRun, Origin
from lineage_backfill.store.schema import VERSION_TABLE
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.environment import open_project
from tests.unit.cli.documents import fits
from tests.unit.web.shop import HOSTILE, Shop

NODE = "?namespace=shop&name="


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.of(tmp_path)


@pytest.fixture
def pages(shop: Shop) -> FlaskClient:
    return make_pages(shop.project).test_client()


@pytest.fixture
def runs(shop: Shop) -> list[PlannedRun]:
    """The runs of a backfill under way: 20 hours are right, one failed, one is running."""
    runs = shop.backfill(reason="three <bad> hours", submitted_by="ann")
    shop.drive(runs[:20], RunState.SUCCEEDED)
    shop.drive(runs[20:21], RunState.FAILED, error="ValueError: <i>no</i> such column")
    shop.drive(runs[21:22], RunState.RUNNING)
    shop.drive(runs[24:], RunState.BLOCKED, error="clean 2024-01-02T20 did not succeed")
    return runs


class Text(HTMLParser):
    """What a person reads of a page, its links, and the elements that are there."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag == "a":
            self.links.append(given["href"] or "")

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def __str__(self) -> str:
        return " ".join(self.words)


def read(pages: FlaskClient, address: str, status: int = 200) -> Text:
    answer = pages.get(address)
    assert answer.status_code == status, answer.text
    return Text(answer.text)


def document(pages: FlaskClient, address: str, schema: str) -> Any:
    answer = pages.get(address)
    assert (answer.status_code, answer.mimetype) == (200, "application/json")
    found = json.loads(answer.text)
    assert fits(found, schema)
    return found


def test_an_empty_store_says_how_to_begin_and_is_not_made(shop: Shop, pages: FlaskClient) -> None:
    assert "lineage-backfill run" in str(read(pages, "/"))
    assert not (shop.folder / ".lineage-backfill").exists()


def test_declared_jobs_are_listed_without_any_lineage(tmp_path: Path) -> None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(
        "[[job]]\nname = 'clean'\nreads = [{ dataset = 'raw' }]\nwrites = [{ dataset = 'tidy' }]\n"
    )
    pages = make_pages(open_project(file)).test_client()
    page = str(read(pages, "/lineage"))
    assert "1 job, 2 datasets, from the project file alone" in page
    assert "clean unknown raw tidy" in page
    assert document(pages, "/lineage.json", "lineage")["jobs"][0]["job"]["name"] == "clean"
    assert "Reads raw (declared)" in str(read(pages, "/lineage/job?namespace=default&name=clean"))


def test_pages_of_a_backfill_are_named_by_its_fix(shop: Shop, pages: FlaskClient) -> None:
    run = shop.backfill(title="VAT fix <812>")[0]
    shop.end(BackfillState.CANCELLED)
    for page in ("report", "plan", f"runs/{run.id}"):
        assert "VAT fix <812> b-1" in str(read(pages, f"/backfills/b-1/{page}")), page
    assert "Stopped:" in str(read(pages, "/backfills/b-1/report"))
    assert "lineage-backfill undo" not in str(read(pages, "/backfills/b-1"))  # nothing was begun


def test_backfills_are_listed_the_newest_first_by_pages(shop: Shop, pages: FlaskClient) -> None:
    for number in range(27):
        shop.backfill(f"b-{number}", "2024-01-02T23", submitted_by="ann")
    first, second = str(read(pages, "/")), read(pages, "/?page=2")
    assert re.findall(r"b-\d+", first) == [f"b-{number}" for number in range(26, 1, -1)]
    assert "0 of 2 runs" in first
    assert "Page 1 of 2, 27 backfills" in first
    assert re.findall(r"b-\d+", str(second)) == ["b-1", "b-0"]
    assert "/?page=1" in second.links
    for beyond in ("99", "0", "-1", "x"):
        read(pages, f"/?page={beyond}")
    assert len(document(pages, "/history.json", "history")["backfills"]) == 27


def test_one_backfill(shop: Shop, pages: FlaskClient, runs: list[PlannedRun]) -> None:
    page = read(pages, "/backfills/b-1")
    text = str(page)
    assert "20 of 25 runs : 2 pending, 1 running, 20 succeeded, 1 failed, 1 blocked" in text
    assert "three <bad> hours" in text
    assert "by ann" in text
    assert "ValueError: <i>no</i> such column" in text
    assert "Stale but not planned: 1 job." in text  # `blind`: its output has no known partitioning
    assert "lineage-backfill pause b-1" in text
    assert "A square is one hour in UTC." in text
    assert ("main", {"id": "main", "data-live": "yes"}) in page.tags
    assert ("meta", {"http-equiv": "refresh", "content": "5"}) in page.tags  # without JavaScript
    cells = [given["class"] for tag, given in page.tags if tag == "g"]
    assert cells == [*["succeeded"] * 20, "failed", "running", *["pending"] * 2, *["blocked"] * 24]
    assert f"/backfills/b-1/runs/{runs[20].id}#log" in page.links
    assert document(pages, "/backfills/b-1.json", "status")["totals"]["succeeded"] == 20


def test_failures_are_grouped_by_their_text_with_the_end_of_a_log(tmp_path: Path) -> None:
    shop = Shop.of(tmp_path, [("one", "feed", "clean_1"), ("two", "feed", "clean_2")])
    runs = shop.backfill()
    failed = [run for run in runs if str(run.partitions[0]) < "2024-01-02T02"]
    shop.drive(failed, RunState.FAILED, error="no column <b>vat</b>")
    shop.drive(runs[10:11], RunState.FAILED, error="the disk is full")
    page = read(make_pages(shop.project).test_client(), "/backfills/b-1")
    text = str(page)
    assert text.count("no column <b>vat</b>") == 1
    one = text.index("no column <b>vat</b>")
    assert "the log of the first" in text[one : text.index("the disk is full")], "most runs first"
    assert f"{len(failed)} one 2024-01-02T00 +1 two 2024-01-02T00 +1" in text
    assert r"line one of 2024-01-02T00 <b>the \x1b[1mend</b>" in text
    assert "b" not in {tag for tag, _ in page.tags}
    (tmp_path / ".lineage-backfill" / "backfills").rename(tmp_path / "elsewhere")
    new = make_pages(shop.project).test_client()
    assert "line one" not in str(read(new, "/backfills/b-1")), "the log is not on this machine"


def test_a_page_says_who_did_what_to_the_backfill(shop: Shop, pages: FlaskClient) -> None:
    for id_ in ("b-1", "b-2"):
        shop.backfill(id_)
    assert "Who did what" not in str(read(pages, "/backfills/b-1"))
    at, why = datetime(2024, 1, 6, tzinfo=UTC), "<i>it is driven</i>"
    with shop.store() as store:
        acts = (("b-1", "pause", ""), ("b-1", "retry", why), ("b-2", "cancel", ""))
        for place, (id_, verb, refused) in enumerate(acts):
            act = Act(key=str(place), at=at, who=HOSTILE, door="pages", verb=verb)
            store.end_act(replace(act, backfill_id=id_, refused=refused))
    page = str(read(pages, "/backfills/b-1"))
    assert "Who did what to it" in page
    assert "retry refused <i>it is driven</i>" in page
    assert "cancel" not in page.partition("Who did what to it")[2]
    found = document(pages, "/backfills/b-1/audit.json", "audit")["acts"]
    assert {one["act"] for one in found} == {"pause", "retry"}


def test_a_command_on_a_page_names_the_target(tmp_path: Path) -> None:
    file = Shop.of(tmp_path).folder / "lineage-backfill.toml"
    shop = Shop(tmp_path, open_project(file, target="prod"))
    shop.backfill()
    text = str(read(make_pages(shop.project).test_client(), "/backfills/b-1"))
    assert "lineage-backfill resume b-1 --target=prod" in text


def test_runs_are_chosen_by_state_and_job(pages: FlaskClient, runs: list[PlannedRun]) -> None:
    def shown(address: str) -> list[str]:
        links = read(pages, address).links
        found = (link.rpartition("/")[2] for link in links if "/runs/" in link and "#" not in link)
        return list(dict.fromkeys(found))

    def chosen(query: str) -> set[str]:
        troubles = {runs[20].id, runs[24].id}
        return set(shown(f"/backfills/b-1?{query}")) - troubles

    assert len(shown("/backfills/b-1")) == 25
    assert chosen("state=running") == {runs[21].id}
    assert chosen("state=nonsense") == set()
    assert len(chosen("job=clean&namespace=shop")) == 23
    assert chosen("job=nobody&namespace=shop&_scheme=x&endpoint=y") == set()


def test_an_ended_backfill_says_whether_touched_is_planned(shop: Shop, pages: FlaskClient) -> None:
    shop.drive(shop.backfill(first="2024-01-02T20"), RunState.SUCCEEDED)
    shop.end(BackfillState.SUCCEEDED)
    page = read(pages, "/backfills/b-1")
    assert "exactly as planned" in str(page)
    assert "lineage-backfill undo b-1" in str(page)
    assert "Rows before and after" in str(page)
    assert "✓ clean 4 4 4 4 8" in str(page)
    assert ("main", {"id": "main", "data-live": "no"}) in page.tags
    assert "http-equiv" not in {name for _, given in page.tags for name in given}
    report = read(pages, "/backfills/b-1/report")
    assert "clean 4 4 4 4 8" in str(report)
    assert "the partitioning of shop:unknown_table is unknown" in str(report)
    assert document(pages, "/backfills/b-1/report.json", "report")["touched_is_planned"]


def test_one_run(shop: Shop, pages: FlaskClient, runs: list[PlannedRun]) -> None:
    log = shop.log(runs[20]).read_text()
    page = str(read(pages, f"/backfills/b-1/runs/{runs[20].id}"))
    assert "ValueError: <i>no</i> such column" in page
    assert r"<b>the \x1b[1mend</b>" in page
    assert "Reads Dataset Partitions feed 2024-01-02T20" in page
    assert "me:***@marquez" in page
    assert "secret" not in page
    text = pages.get(f"/backfills/b-1/runs/{runs[20].id}/1.txt")
    assert (text.mimetype, text.text) == ("text/plain", log)
    daily = document(pages, f"/backfills/b-1/runs/{runs[24].id}.json", "run")
    assert [one["id"] for one in daily["upstream"]] == [run.id for run in runs[:24]]
    assert "No attempts yet." in str(read(pages, f"/backfills/b-1/runs/{runs[23].id}"))
    for unknown in ("runs/none", f"runs/{runs[0].id}?attempt=9", "runs/..%2f..%2fb-1"):
        read(pages, f"/backfills/b-1/{unknown}", 404)
    read(pages, "/backfills/b-9", 404)


def test_pages_say_who_started_what_runs_in_the_engine(shop: Shop, pages: FlaskClient) -> None:
    first, second, third, *_ = shop.backfill("b-2", "2024-01-02T20")
    for run, found in (
        (first, EngineRun(origin=Origin.CREATED, id="dag/lb__1")),
        (second, EngineRun(origin=Origin.ADOPTED, id="dag/theirs")),
        (third, EngineRun(origin=Origin.RERUN, id="dag/scheduled")),
    ):
        shop.drive([run], RunState.SUCCEEDED, backfill_id="b-2", engine_run=found)
    page = str(read(pages, f"/backfills/b-2/runs/{second.id}"))
    assert "In the engine started by someone else: dag/theirs" in page
    page = str(read(pages, f"/backfills/b-2/runs/{third.id}"))
    assert "In the engine started again by this backfill: dag/scheduled" in page
    run = document(pages, f"/backfills/b-2/runs/{first.id}.json", "run")
    for one in (run, *run["attempts"]):
        assert (one["origin"], one["engine_run"]) == ("created", "dag/lb__1")
    report = str(read(pages, "/backfills/b-2/report"))
    assert "Started by someone else Job Partitions State Name in the engine clean" in report
    assert "succeeded dag/theirs" in report
    assert report.count("dag/theirs") == 1


def test_a_log_or_spec_that_lies_elsewhere_is_not_served(
    shop: Shop, pages: FlaskClient, runs: list[PlannedRun], tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("home") / "secret"
    secret.write_text('{"password": "hunter2"}')
    address = f"/backfills/b-1/runs/{runs[0].id}"
    log, spec = shop.log(runs[0]), shop.spec(runs[0])
    for file in (log, spec):
        file.unlink()
        file.symlink_to(secret)
    claim = spec.with_name(spec.name.removesuffix("spec.json") + "claim.json")
    page = str(read(pages, address))
    log.unlink()
    claim.write_text(json.dumps({"log": str(secret), "log_start": 0}))  # as if of a worker
    for said in (page, str(read(pages, address))):
        assert "hunter2" not in said
        assert "Its log is not stored on this machine." in said
        assert "Its run spec is not stored on this machine." in said
    read(pages, f"{address}/1.txt", 404)


def test_a_link_in_the_place_of_a_file_is_not_followed(
    shop: Shop, pages: FlaskClient, runs: list[PlannedRun], tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = tmp_path_factory.mktemp("home") / "secret"
    secret.write_text('{"password": "hunter2"}')
    for file in (shop.log(runs[0]), shop.spec(runs[0])):
        file.unlink()
        file.symlink_to(secret)
    page = str(read(pages, f"/backfills/b-1/runs/{runs[0].id}"))
    assert "hunter2" not in page
    assert "Its log is not stored on this machine." in page
    assert "Its run spec is not stored on this machine." in page


def test_the_plan_tells_what_runs_and_why(pages: FlaskClient, runs: list[PlannedRun]) -> None:
    page = read(pages, "/backfills/b-1/plan")
    assert "2 jobs, 25 partitions, 25 runs in 2 waves" in str(page)
    assert "reads feed (the same keys)" in str(page)
    assert "the partitioning of shop:unknown_table is unknown" in str(page)
    assert document(pages, "/backfills/b-1/plan.json", "plan")["totals"]["runs"] == 25
    drawn = pages.get("/backfills/b-1/plan.svg")
    assert drawn.mimetype == "image/svg+xml"
    assert "<script" not in drawn.text
    assert "default-src 'none'" in drawn.headers["Content-Security-Policy"]
    read(pages, "/backfills/b-1/plan?part=2", 404)


def test_the_lineage_is_listed_searched_and_followed(pages: FlaskClient) -> None:
    page = read(pages, "/lineage")
    assert "hour in UTC from 2024-01-01T00 to" in str(page)
    assert "3 jobs, 4 datasets, from events" in str(page)
    assert f"/lineage/job{NODE}clean" in [link.replace("&amp;", "&") for link in page.links]
    assert "No matches." in str(read(pages, "/lineage?q=zzz"))
    found = str(read(pages, "/lineage?kind=dataset&q=DAILY"))
    assert "daily day in UTC" in found
    assert "unknown_table" not in found.partition(" Written by ")[2], "of the table"
    daily = str(read(pages, f"/lineage/dataset{NODE}daily"))
    assert "declared in the project file" in daily
    assert 'In force Of Attribute Value From dataset grain day [[dataset]] "daily*"' in daily
    blind = str(read(pages, f"/lineage/job{NODE}blind"))
    assert "Run keys unknown" in blind
    assert "the partitioning of shop:unknown_table is unknown" in blind
    read(pages, f"/lineage/job{NODE}nobody", 404)
    assert len(document(pages, "/lineage.json", "lineage")["jobs"]) == 3
    assert len(document(pages, f"/lineage/dataset.json{NODE}clean", "lineage")["jobs"]) == 3
    assert len(document(pages, "/graph.json", "graph")["nodes"]) == 7
    assert "clean" in pages.get("/graph.svg").text
    assert "feed" not in pages.get(f"/graph.svg{NODE}daily&kind=dataset").text


def test_settings_are_masked_as_config_show_masks_them(tmp_path: Path) -> None:
    shop = Shop.of(tmp_path)
    with (tmp_path / "lineage-backfill.toml").open("a") as file:
        file.write('\n[store]\nurl = "postgresql+psycopg://me:hunter2@db/runs"\n')
    pages = make_pages(open_project(shop.project.file)).test_client()
    assert "me:***@db" in str(read(pages, "/settings"))
    assert "hunter2" not in pages.get("/settings").text + pages.get("/settings.json").text
    assert document(pages, "/settings.json", "config")["file"] == str(shop.project.file)


def every_page(runs: list[PlannedRun]) -> Iterator[str]:
    yield from ("/", "/lineage", "/lineage?kind=dataset", "/settings", "/nowhere")
    for below in ("", "/report", "/plan", f"/runs/{runs[24].id}", f"/runs/{runs[20].id}"):
        yield f"/backfills/b-1{below}"
    for kind, name in (("job", HOSTILE), ("job", "clean"), ("dataset", "daily")):
        yield f"/lineage/{kind}{NODE}{quote(name)}"
    yield f"/lineage/job{NODE}{quote(HOSTILE)}-not"
    yield f"/lineage?q={quote(HOSTILE)}"
    yield f"/backfills/b-1?job={quote(HOSTILE)}&namespace=shop"


def test_names_are_shown_and_never_obeyed(pages: FlaskClient, runs: list[PlannedRun]) -> None:
    shown = safe_names = 0
    for address in every_page(runs):
        page = Text(pages.get(address).text)
        scripts = [given for tag, given in page.tags if tag == "script"]
        own = ["/static/graph.js"] * address.partition("?")[0].endswith("/lineage")
        assert [one.get("src") for one in scripts] == ["/static/live.js", *own]
        names = {name for _, given in page.tags for name in given}
        assert not any(name.startswith("on") or name == "style" for name in names)
        assert not {"\x1b", "\u202e"} & set(str(page))
        shown += "<script>alert('x')</script>" in str(page)
        safe_names += r"\u202edlog" in str(page)
    assert shown > 8
    assert safe_names == shown


def test_every_link_leads_somewhere_and_stays_here(
    pages: FlaskClient, runs: list[PlannedRun]
) -> None:
    seen: set[str] = set()
    todo = ["/"]
    while todo:
        address = todo.pop(0).partition("#")[0]
        if address in seen or len(seen) > 150:
            continue
        seen.add(address)
        assert address.startswith("/"), address
        answer = pages.get(address, buffered=True)
        assert answer.status_code == 200, address
        if answer.mimetype == "text/html":
            page = Text(answer.text)
            todo += [link for link in page.links if link != "#main"]
            todo += [
                given[name] or ""
                for _, given in page.tags
                for name in ("src", "href")
                if given.get(name) and given[name] != "#main"
            ]
    assert {"/settings", "/lineage", "/backfills/b-1/plan", "/static/pages.css"} <= seen


def test_pages_do_without_the_lineage(shop: Shop, pages: FlaskClient, runs: Any) -> None:
    (shop.folder / "events.ndjson").write_text("no event\n")
    page = str(read(pages, "/backfills/b-1"))
    assert "20 of 25 runs" in page
    assert "No heatmap:" in page
    assert "LB-200" in str(read(pages, "/lineage", 503))
    assert json.loads(pages.get("/lineage.json").text)["error"]["code"] == "LB-200"


def test_a_store_of_an_older_version_is_left_as_it_is(shop: Shop, pages: FlaskClient) -> None:
    shop.backfill()
    with shop.store() as store, store._write() as connection:  # as if it had made this
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '0004'")
    page = str(read(pages, "/", 503))
    assert "another version" in page
    assert "LB-500" in page


def test_long_lists_are_sent_by_pages(tmp_path: Path) -> None:
    jobs = [(f"copy_{n}", "feed", f"clean_{n}") for n in range(300)]
    shop = Shop.of(tmp_path, jobs)
    runs = shop.backfill(first="2024-01-02T14")
    assert len(runs) == 3_000
    pages = make_pages(shop.project).test_client()
    answer = pages.get("/backfills/b-1")
    page = Text(answer.text)
    assert len([1 for tag, _ in page.tags if tag == "tr"]) < 170
    assert len(answer.data) < 300_000
    assert "Page 1 of 30, 3,000 runs" in str(page)
    assert "Page 1 of 6, 300 jobs" in str(page)
    assert "/backfills/b-1?jobs=2&page=3" in read(pages, "/backfills/b-1?jobs=2&page=2").links
    assert len(pages.get("/lineage").data) < 200_000
    assert pages.get("/graph.svg").status_code == 404
