"""The documentation says what the code does: what is made from it is as it would be made now."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hatchling.builders.wheel import WheelBuilder

import lineage_backfill
import spark_runtime
from lineage_backfill.cli.main import main
from lineage_backfill.workspace.configuration import load_project

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("how-to/*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def made() -> Any:
    return runpy.run_path(str(ROOT / "scripts" / "docs"))["pages"]()


def test_what_is_made_from_the_code_is_up_to_date(made: dict[Path, str]) -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `python scripts/docs`"


def test_every_picture_is_drawn_and_shown(made: dict[Path, str]) -> None:
    recorded = {DOCS / "pictures" / name for name in ("heatmap.png", "session.svg")}
    drawn = {path for path in made if path.suffix == ".svg"} | recorded
    assert drawn == set((DOCS / "pictures").iterdir())
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [path.name for path in drawn if f"pictures/{path.name}" not in text] == []


BLOCK = re.compile(r"([^\n]*)\n+^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CAPTION = re.compile(r"(File|In) \*\*[\w./-]+\*\*(, [^:]+)?:")


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(body, id=f"{page.stem}-{number}")
        for page in PAGES
        for number, (_, kind, body) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")))
        if kind == language
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_name_of_a_file_stands_above_its_text(page: Path) -> None:
    for above, language, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language not in ("console", "pycon", "sh"):
            assert CAPTION.fullmatch(above), f"{above!r} above {body[:60]!r}"


@pytest.mark.parametrize("text", blocks("toml"))
def test_project_files_are_read(text: str, tmp_path: Path) -> None:
    file = tmp_path / "lineage-backfill.toml"
    file.write_text(text)
    (tmp_path / "fiscal.csv").write_text("key,start,end\nP01,2024-01-29,2024-02-26\n")
    load_project(file=file, environ={}, user_file=tmp_path / "none")


@pytest.mark.parametrize("text", blocks("python"))
def test_python_is_python(text: str) -> None:
    compile(text, "example", "exec")


def test_events_are_made_from_the_edges_of_another_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    found = {kind: body for _, kind, body in BLOCK.findall(page)}
    monkeypatch.chdir(tmp_path)
    made = subprocess.run(
        [sys.executable, "-c", found["python"]],
        input=found["text"],
        capture_output=True,
        text=True,
        check=True,
    )
    Path("lineage.ndjson").write_text(made.stdout)
    assert main(["impact", "raw_orders", "--events", "lineage.ndjson", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [job["job"]["name"] for job in plan["jobs"]] == ["orders_daily"]


def test_commands_are_tried_and_not_only_shown() -> None:
    # What is not run here is installing, and what needs a service.
    shown = "".join(param.values[0] for param in blocks("sh")).replace("\\\n", "")
    words = {line.split()[0] for line in shown.splitlines() if line and line[0] != "#"}
    assert words <= {
        "pip",
        "python",
        "scripts/demo",
        "scripts/test",
        "lineage-backfill",
        "cd",
        "git",
        "docker",
        "docker/up",
        "rm",
    }


def test_the_architecture_answers_with_files_that_exist() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    answers = re.findall(r"^\| [^|]+\? \| `([^`]+)`", page, re.MULTILINE)
    assert len(answers) == 3
    assert [path for path in answers if not (ROOT / path).is_file()] == []
    folders = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    named = [name for group in folders for name in re.findall(r"`(\w+)`", group)]
    missing = [
        name
        for name in named
        if not any((ROOT / p).is_dir() for p in (name, f"lineage_backfill/{name}"))
    ]
    assert (missing, len(named)) == ([], 14)


def test_the_template_of_an_engine_installs_and_passes_the_contract_suite(tmp_path: Path) -> None:
    page = (DOCS / "engines.md").read_text(encoding="utf-8")
    found = {kind: body for _, kind, body in reversed(BLOCK.findall(page))}
    proof = BLOCK.findall(page)[-1][2]
    shipped = (ROOT / "tests" / "third_party" / "acme_engines.py").read_text(encoding="utf-8")
    assert shipped.endswith(f'"""\n\n{found["python"]}')
    package, fresh = tmp_path / "package", tmp_path / "fresh"
    package.mkdir()
    (package / "acme_engines.py").write_text(found["python"])
    (package / "pyproject.toml").write_text(found["ini"])
    (tmp_path / "test_acme_engines.py").write_text(proof)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
    (site,) = fresh.glob("lib/python*/site-packages")
    wheels = [
        path
        for place in (ROOT, package)
        for path in WheelBuilder(str(place)).build(directory=str(tmp_path), versions=["standard"])
    ]
    pip = [sys.executable, "-m", "pip", "--python", str(fresh), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", *wheels], check=True)
    # Its dependencies, and those of `testing`, are those of this environment.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    hidden = ("PYTEST_CURRENT_TEST", "PYTHONPATH")
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    script = f"import pytest, lineage_backfill as it; assert {str(site)!r} in it.__file__; "
    script += "raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', '-n', '0']))"
    done = subprocess.run(
        [fresh / "bin" / "python", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"^\d\d passed in", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_the_template_of_a_source_gives_lineage_and_calendars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    found = {kind: body for _, kind, body in BLOCK.findall(page)}
    monkeypatch.chdir(tmp_path)
    Path("query_log.py").write_text(found["python"])
    runs = [
        {
            "id": f"r{day}",
            "state": "COMPLETE",
            "started_at": f"2024-06-0{day + 1}T03:00:00Z",
            "ended_at": f"2024-06-0{day + 1}T03:10:00Z",
            "nominal_start": f"2024-06-0{day}T00:00:00Z",
            "nominal_end": f"2024-06-0{day + 1}T00:00:00Z",
        }
        for day in (1, 2, 3)
    ]
    log = [
        {"name": "load", "reads": [], "writes": ["orders"], "runs": runs},
        {"name": "sales", "reads": ["orders"], "writes": ["daily"], "runs": runs},
    ]
    Path("log.ndjson").write_text("".join(json.dumps(job) + "\n" for job in log))
    Path("lineage-backfill.toml").write_text(found["toml"])
    asked = ["impact", "orders", "--partitions", "2024-06-02", "--json"]
    assert main([*asked, "--now", "2024-06-20T00:00:00Z"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"]["name"], job["partitions"]) == ("sales", ["2024-06-02"])
    Path("log.ndjson").write_text("{")
    assert main(asked) == 1
    assert "source 1 of [lineage] (query_log.py): " in capsys.readouterr().err


def test_each_page_stands_in_one_of_the_four_sections_of_the_site() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    home, *sections = site["nav"]
    assert home == {"Home": "README.md"}
    assert [next(iter(one)) for one in sections] == [
        "Tutorial",
        "How-to",
        "Reference",
        "Explanation",
    ]
    entries = [entry for one in sections for entry in one[next(iter(one))]]
    named = [page for entry in entries for page in entry.values()]
    (pipelines,) = (group for group in named if isinstance(group, list))
    pages = [page for page in named if isinstance(page, str)]
    pages += [page for entry in pipelines for page in entry.values()]
    assert sorted([*pages, "README.md"]) == sorted(
        str(page.relative_to(DOCS)) for page in PAGES[1:]
    )
    assert (site["strict"], site["theme"]["font"]) == (True, False)


def test_the_api_page_names_what_is_public() -> None:
    named = re.findall(r"members: \[(.*)\]", (DOCS / "api.md").read_text(encoding="utf-8"))
    members = {name for line in named for name in line.split(", ")}
    assert set(lineage_backfill.__all__) <= members
    beside = {"NothingToRunError", "RunKey", "RunSpec", "RuntimeFailure", "load_spec", "parse_spec"}
    assert set(spark_runtime.__all__) - beside <= members


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ('<a href="b.html#here">', "b.html#here leads nowhere"),
        ('<a href="#none">', "has no such place"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//fonts.example/x">', "loads //fonts.example/x"),
        ('<a href="https://example.org" id="x"></a><a href="#x">', ""),
    ],
)
def test_a_site_with_dead_links_or_strange_hosts_is_refused(
    page: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text(page)
    found = list(runpy.run_path(str(ROOT / "scripts" / "site_links.py"))["faults"](tmp_path))
    assert [fault in one for one in found] == ([True] if fault else [])


def anchors(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if ":" in target:
            continue
        workflow = re.fullmatch(r"\.\./\.\./actions/workflows/(\w+\.yml)(/badge\.svg)?", target)
        aim = (page.parent / target).resolve() if target else page
        aim = ROOT / ".github" / "workflows" / workflow[1] if workflow else aim
        assert aim.exists(), target
        assert not anchor or anchor in anchors(aim), f"{target}#{anchor}"
