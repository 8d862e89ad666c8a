"""No output shows a secret, wherever one stands; the job is given each as it is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lineage_backfill import redaction
from lineage_backfill.web.pages import make_pages
from lineage_backfill.workspace.environment import open_project
from tests.e2e.test_cli import PROJECT, Shop
from tests.events import event
from tests.fake_marquez import FakeMarquez

pytestmark = pytest.mark.e2e

#: One secret for each place, so that a leak names its place.
PLACES = (
    *("user_info", "query", "bearer", "header", "variable", "file", "engine", "spark"),
    *("parameter", "declared", "environment"),
)
CANARIES = {place: f'canary&<{place.replace("_", "-")}-9>"7' for place in PLACES}
FIX = ("feed", "--from", "2024-01-02T00", "--to", "2024-01-02T02", "--now", "2024-01-05T00:00:00Z")

PROGRAM = """
import json, os, sys
from pathlib import Path
spec = json.loads(Path(sys.argv[1]).read_text())
given = [*spec["parameters"].values(), os.environ["ENGINE_PASSWORD"], os.environ["DB_PASSWORD"]]
Path("given.json").write_text(json.dumps(given))
print("begins with", *given)
print("cannot log in as", *given, spec.get("lineage"))
sys.exit(spec["job"]["name"] == "daily")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "header").write_text(CANARIES["header"] + "\n")
    (tmp_path / "given").write_text(CANARIES["file"])
    fake = FakeMarquez([event("clean", ["feed"], ["clean"]), event("daily", ["clean"], ["daily"])])
    with fake.serve() as address:
        user = f"//me:{quoted('user_info')}@"
        lineage = f"""
marquez = "{address.replace("//", user)}"
api_key = "env:MARQUEZ_KEY"
[lineage.headers]
X-Key = "file:header"
[spark]
hadoop.fs.s3a.secret.key = '{CANARIES["spark"]}'
"""
        text = PROJECT.replace('events = ["events.ndjson"]', lineage)
        env = f"env = {{ ENGINE_PASSWORD = '{CANARIES['engine']}' }}\n{{TABLES}}"
        assert "[[dataset]]" in text
        text = text.replace("[[dataset]]", env.replace("{TABLES}", "[[dataset]]"), 1)
        tell = "import sys; open('told', 'a').write(sys.stdin.read())"
        hook = f"""
[[notify]]
on = ["started", "failed", "finished"]
command = {json.dumps([sys.executable, "-c", tell])}
"""
        (tmp_path / "lineage-backfill.toml").write_text(text + hook)
        yield shop


def quoted(place: str) -> str:
    return re.sub(r"\W", lambda found: f"%{ord(found[0]):02X}", CANARIES[place])


def variables() -> Mapping[str, str]:
    return {
        "MARQUEZ_KEY": CANARIES["bearer"],
        "GIVEN": CANARIES["variable"],
        "DB_PASSWORD": CANARIES["environment"],
    }


def call(shop: Shop, *arguments: str, code: int | None = 0, **more: str) -> str:
    """Return all that a command prints, which holds no secret."""
    process = shop.start(*arguments, env=shop.surroundings()["env"] | variables() | more)
    out, err = process.communicate(timeout=120)
    assert code in (None, process.returncode), (out, err)
    check(f"`{' '.join(arguments)}`", out + err)
    return str(out + err)


def check(what: str, text: str) -> None:
    for place, canary in CANARIES.items():
        for sign in (canary, place.replace("_", "-") + "-9", quoted(place)):
            assert sign not in text, (what, place, text)


PARAMETERS = (
    f"password={CANARIES['parameter']}",
    f"where=secret:{CANARIES['declared']}",
    "login=secret:env:GIVEN",
    "api_key=file:given",
)


def test_no_verb_shows_a_secret_and_the_job_gets_them_all(shop: Shop) -> None:
    given = [text for one in PARAMETERS for text in ("--parameter", one)]
    said = call(shop, "run", *FIX, "--yes", "-v", *given, code=3)
    assert "cannot log in as ***" in said
    told = (shop.folder / "told").read_text()
    check("the hook", told)
    assert "cannot log in as ***" in told
    assert json.loads((shop.folder / "given.json").read_text()) == [
        CANARIES[place]
        for place in ("parameter", "declared", "variable", "file", "engine", "environment")
    ]
    for verb in ("status", "report", "history", "config show", "doctor", "stale"):
        for more in ((), ("--json",), ("-v",)):
            call(shop, *verb.split(), *more, code=None)
    for form in ("markdown", "tree", "mermaid"):
        call(shop, "impact", *FIX, "--format", form)
    for verb in (
        "lineage show",
        "lineage show --json",
        "graph",
        "config check",
        "retry -v",
    ):
        call(shop, *verb.split(), code=None)
    call(shop, "impact", *FIX, "--out", "plan.json")
    check("the plan", (shop.folder / "sub" / "plan.json").read_text())
    assert "password = " in call(shop, "status")
    state = shop.folder / ".lineage-backfill"
    assert state.stat().st_mode & 0o777 == 0o700
    ends = ("spec.json", "log.txt", "zip", "runs.db*")
    kept = [file for end in ends for file in state.rglob(f"*{end}")]
    assert len(kept) >= 5
    assert not [file for file in kept if file.stat().st_mode & 0o077]
    look_at_the_pages(shop)


def look_at_the_pages(shop: Shop) -> None:
    """Follow every link of the pages, as another process than that of the driver shows them."""
    redaction.forget()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables().items():
            patch.setenv(name, value)
        project = open_project(shop.folder / "lineage-backfill.toml")
    client = make_pages(project).test_client()
    todo, seen = ["/", "/settings", "/settings.json", "/history.json"], set()
    while todo:
        address = todo.pop()
        if address not in seen:
            seen.add(address)
            text = client.get(address).get_data(as_text=True)
            check(address, text)
            links = re.findall(r'href="(/[^"#]*)', text)
            todo += [
                one.replace("&amp;", "&") for one in links if not re.match("/(lineage|static)", one)
            ]
    assert any(one.endswith(".txt") for one in seen)
    assert any("/runs/" in one for one in seen)


@pytest.mark.parametrize(
    "arguments",
    [
        ("impact", *FIX, "--marquez", "http://me:{user_info}@127.0.0.1:9?api_key={query}"),
        ("doctor", "--marquez", "http://127.0.0.1:9/?api_key={query}"),
        ("run", *FIX, "--yes", "--debug", "--marquez", "http://me:{user_info}@127.0.0.1:9"),
        ("lineage", "show", "-v", "--marquez", "htp://me:{user_info}@127.0.0.1"),
        ("run", *FIX, "--yes", "--parameter", "{parameter}"),
        ("run", *FIX, "--yes", "--parameter", "password=env:NONE"),
    ],
)
def test_no_error_shows_a_secret(shop: Shop, arguments: tuple[str, ...]) -> None:
    said = call(
        shop,
        *(one.format(**{place: quoted(place) for place in PLACES}) for one in arguments),
        code=None,
    )
    assert "error[LB-" in said or "cannot be reached" in said or "Error: " in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:{canary}@127.0.0.1:9/db",
        "postgresql+psycopg://me@127.0.0.1:9/db?password={canary}",
        "mysql://me:{canary}@127.0.0.1:9/db",
        "nonsense://me:p/{canary}@x@127.0.0.1:port",
    ],
)
@pytest.mark.parametrize("verb", ["history", "doctor", "config show"])
def test_no_store_shows_its_password(shop: Shop, url: str, verb: str) -> None:
    address = url.format(canary=quoted("user_info"))
    assert call(shop, *verb.split(), code=None, LINEAGE_BACKFILL_STORE_URL=address)
