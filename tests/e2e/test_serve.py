"""The pages in a real browser, beside a backfill that a real process drives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pytest
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser import browsing, needs_browser
from tests.e2e.test_cli import FIX, Shop, shop, wait_for
from tests.processes import Command
from tests.unit.cli.documents import fits

__all__ = ["shop"]

pytestmark = pytest.mark.e2e

HOSTILE = "<script>document.title = 'broken'</script>"


@contextmanager
def serving(shop: Shop, *options: str) -> Iterator[tuple[str, Command]]:
    """Serve the shop; give what it prints at once and the process, which ends in the end."""
    process = shop.start("serve", "--port", "0", *options)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        while said.startswith("{") and not said.endswith("}\n"):
            said += process.stdout.readline()
        yield said.strip(), process
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert process.returncode in (0, -signal.SIGKILL), err
        assert out == ""
        assert "Traceback" not in err


def resize(browser: webdriver.Chrome, width: int, height: int = 800) -> None:
    """Make the window so many pixels wide; a real one does not get narrower than 500."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def sees(browser: webdriver.Chrome, text: str) -> Callable[[object], bool]:
    """Return whether the page shows a text; its parts are exchanged, so nothing is held on to."""
    shown = "return document.querySelector('main').innerText"
    return lambda _: text in str(browser.execute_script(shown))


@needs_browser
def test_a_running_backfill_is_seen_to_go_on(shop: Shop, tmp_path: Path) -> None:
    jobs = ("clean", "feed", "clean"), ("daily", "clean", "daily"), (HOSTILE, "clean", "daily_x")
    shop.lineage(*jobs)
    shop.does({"daily": "wait", HOSTILE: "fail"})
    running = shop.start("run", *FIX, "--yes", "--reason", "three bad hours")
    with serving(shop) as (address, _), browsing(tmp_path / "browser") as browser:
        wait_for(lambda: "daily 2024-01-02" in shop.journal())
        wait = WebDriverWait(browser, 30)
        browser.get(address)
        wait.until(sees(browser, "three bad hours"))
        browser.find_element(By.CSS_SELECTOR, "a.id").click()
        wait.until(sees(browser, "1 running"))
        wait.until(sees(browser, "1 failed"))

        # It goes on without being loaded again, and the reader stays where they are.
        resize(browser, 400, height=500)  # low enough for the runs to reach its top
        browser.execute_script("window.mark = 'the same page'")
        browser.find_element(By.TAG_NAME, "summary").click()
        asked = (
            "return performance.getEntriesByType('resource')"
            ".filter((one) => one.initiatorType === 'fetch').length"
        )
        times = browser.execute_script(asked)
        wait.until(lambda _: browser.execute_script(asked) > times + 1)
        assert sees(browser, "lineage-backfill pause")(None)  # what was opened stays open
        browser.execute_script("document.getElementById('runs').scrollIntoView()")
        place = "return document.getElementById('runs').getBoundingClientRect().top"
        before = browser.execute_script(place)
        assert abs(before) <= 1
        shop.go()
        wait.until(sees(browser, "2 of 3 runs: 2 succeeded, 1 failed"))
        assert browser.execute_script("return window.mark") == "the same page"
        assert abs(browser.execute_script(place) - before) <= 1
        live = "return document.querySelector('main').dataset.live"
        wait.until(lambda _: browser.execute_script(live) == "no")
        assert browser.title.startswith("failed feed 2024-01-02T00..T02 · ")

        # Every page can be reached, fits a narrow window and a wide one, and says who is who.
        seen = pages_from(browser, browser.current_url)
        assert {"Lineage", "Settings", "Plan", "Report"} <= {heading for heading, _ in seen}
        assert any(HOSTILE in text for _, text in seen)

        # Who has no mouse gets to the content with the first key.
        browser.get(address)
        browser.switch_to.active_element.send_keys(Keys.TAB)
        assert browser.switch_to.active_element.text == "Skip to the content"
    running.communicate(timeout=60)


def pages_from(browser: webdriver.Chrome, address: str) -> list[tuple[str, str]]:
    """Follow the links of the pages; return the heading and the text of each."""
    todo, seen = [address], list[tuple[str, str]]()
    done: set[str] = set()
    while todo and len(done) < 25:
        page = todo.pop(0).partition("#")[0]
        if page in done or page.partition("?")[0].endswith((".json", ".txt")):
            continue
        done.add(page)
        browser.get(page)
        for width in (400, 1600):
            resize(browser, width)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            assert wide <= width, page
        heading = browser.find_element(By.TAG_NAME, "h1").text.split()[0]
        seen.append((heading, browser.find_element(By.TAG_NAME, "main").text))
        assert not browser.title.startswith("broken")
        images = "return [...document.images].every((one) => one.naturalWidth > 0)"
        assert browser.execute_script(images), page
        todo += browser.execute_script("return [...document.links].map((one) => one.href)")
    return seen


@needs_browser
def test_the_lineage_is_zoomed_moved_and_searched_in_a_browser(shop: Shop, tmp_path: Path) -> None:
    chain = [(f"job_{n}", f"table_{n}", f"table_{n + 1}") for n in range(12)]
    shop.lineage(*chain, (HOSTILE, "table_3", HOSTILE))
    width = "return document.querySelector('[data-graph] svg').width.baseVal.value"
    left = "return document.querySelector('[data-graph]').scrollLeft"
    with serving(shop) as (address, _), browsing(tmp_path / "browser") as browser:
        for wide in (400, 1600):
            resize(browser, wide)
            browser.get(f"{address}lineage")
            frame = browser.find_element(By.CSS_SELECTOR, "[data-graph]")
            fitted = browser.execute_script(width)
            browser.find_element(By.CSS_SELECTOR, "[data-zoom=one]").click()
            natural = browser.execute_script(width)
            assert natural > fitted
            browser.find_element(By.CSS_SELECTOR, "[data-zoom=in]").click()
            assert browser.execute_script(width) == pytest.approx(1.25 * natural)
            assert browser.execute_script(left) > 0, "the middle stays in the middle"

            # What is typed is marked and shown; to drag over a link does not follow it.
            browser.find_element(By.ID, "q").send_keys("table_12")
            found = browser.find_elements(By.CSS_SELECTOR, ".graph .found")
            assert [one.text.split()[-1] for one in found] == ["table_12"]
            before = browser.execute_script(left)
            assert before > natural / 2
            drag = ActionChains(browser).click_and_hold(found[0]).move_by_offset(60, 0)
            drag.release().perform()
            assert browser.execute_script(left) == pytest.approx(before - 60, abs=3)
            assert browser.current_url.endswith("/lineage")
            frame.send_keys("0")
            assert browser.execute_script(width) < natural

            # Links are followed, also that of a hostile name.
            hostile = f"//*[name()='svg']//*[name()='a'][contains(., \"{HOSTILE}\")]"
            browser.execute_script("arguments[0].focus()", browser.find_element(By.XPATH, hostile))
            browser.switch_to.active_element.send_keys(Keys.ENTER)
            assert HOSTILE in browser.find_element(By.TAG_NAME, "h1").text
            assert not browser.title.startswith("broken")


def test_serving_is_told_in_one_line_and_ends_when_it_is_asked_to(shop: Shop) -> None:
    with serving(shop) as (address, process):
        with urllib.request.urlopen(address) as answer:
            assert "No backfills yet" in answer.read().decode()
            assert "waitress" not in str(answer.headers)
        with pytest.raises(HTTPError, match="403"):
            urllib.request.urlopen(address, data=b"")
        port = address.rstrip("/").rpartition(":")[2]
        taken = shop("serve", "--port", port, code=64)
        assert "error[LB-130]" in taken.stderr
        assert "--port 0" in taken.stderr
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    assert not (shop.folder / ".lineage-backfill").exists()


def test_what_opens_the_login_is_gone_when_the_server_ends(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opener = tmp_path / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(f'#!/bin/sh\ncp "$1" {tmp_path}/shown\necho "$1" > {tmp_path}/opened\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", f"{opener.parent}:{os.environ['PATH']}")
    opened = tmp_path / "opened"
    with serving(shop, "--open") as (address, _):
        wait_for(lambda: opened.exists() and opened.read_text().strip())
        page = Path(opened.read_text().strip().removeprefix("file://"))
        assert page.exists()
        assert f"{address}login?code=" in (tmp_path / "shown").read_text()
    assert not page.exists()


def test_others_are_served_only_with_a_login(shop: Shop) -> None:
    refused = shop("serve", "--port", "0", "--host", "0.0.0.0", code=9)
    assert "error[LB-305]" in refused.stderr
    assert "[[access.grant]]" in refused.stderr
    file = shop.folder / "lineage-backfill.toml"
    grant = '[[access.grant]]\nto = "token:ci"\nrole = "operator"\n'
    file.write_text(f"{file.read_text()}\n{grant}")
    token = shop("token", "create", "ci").stdout.strip()
    with serving(shop, "--host", "0.0.0.0", "--json") as (said, _):
        document = json.loads(said)
        assert fits(document, "serve")
        assert document["login"] is None
        url = document["url"]
        assert url.startswith("http://127.0.0.1:")
        with pytest.raises(HTTPError, match="401"):
            urllib.request.urlopen(f"{url}history.json")
        asked = urllib.request.Request(
            f"{url}api/v1/backfills", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["backfills"] == []
        shop("token", "revoke", "ci")
        with pytest.raises(HTTPError, match="401"):
            urllib.request.urlopen(asked)
    assert "revoked" in shop("token", "list").stdout


def press_in(browser: webdriver.Chrome, label: str) -> None:
    """Press the button whose text begins so, once it is there."""
    found = f"//button[starts-with(normalize-space(), '{label}')]"
    # What changes meanwhile is exchanged, buttons too.
    gone = StaleElementReferenceException, NoSuchElementException
    waiting = WebDriverWait(browser, 90, ignored_exceptions=gone)
    waiting.until(lambda _: clicked(browser.find_element(By.XPATH, found)))


ACCESS = """
[access]
four_eyes_runs = 1

[[access.grant]]
to = "token:ada"
role = "operator"

[[access.grant]]
to = "token:ben"
role = "approver"
"""


@needs_browser
def test_a_plan_that_one_has_saved_runs_once_another_has_approved_it(
    shop: Shop, tmp_path: Path
) -> None:
    file = shop.folder / "lineage-backfill.toml"
    file.write_text(file.read_text() + ACCESS)
    tokens = {name: shop("token", "create", name).stdout.strip() for name in ("ada", "ben")}
    with serving(shop, "--json") as (said, _), browsing(tmp_path / "browser") as browser:
        wait = WebDriverWait(browser, 90)
        press = partial(press_in, browser)

        def log_in(name: str) -> None:
            browser.get(json.loads(said)["url"])
            wait.until(lambda _: browser.current_url.endswith("/login"))
            browser.find_element(By.ID, "token").send_keys(tokens[name])
            press("Log in")
            wait.until(lambda _: name in browser.find_element(By.TAG_NAME, "footer").text)

        def buttons() -> set[str]:
            found = browser.find_elements(By.CSS_SELECTOR, "main button")
            return {one.text.partition(" ")[0] for one in found}

        log_in("ada")
        browser.find_element(By.LINK_TEXT, "New backfill").click()
        browser.find_element(By.ID, "changed").send_keys("feed")
        browser.find_element(By.ID, "keys").send_keys("2024-01-02T00..2024-01-02T02")
        press("Save plan")
        wait.until(sees(browser, "not yet: an approver, not its author, has to"))
        assert buttons() == {"Discard"}
        plan = browser.current_url.rpartition(":")[2][:12]
        press("Log out")

        log_in("ben")
        browser.find_element(By.LINK_TEXT, "Plans").click()
        browser.find_element(By.CSS_SELECTOR, "main table a").click()
        assert buttons() == {"Approve", "Discard"}
        press("Approve")
        press("Run 2 runs")
        wait.until(sees(browser, "2 of 2 runs: 2 succeeded"))
        assert shop.started() == ["clean", "daily"]
        browser.find_element(By.LINK_TEXT, "Audit").click()
        rows = browser.find_elements(By.CSS_SELECTOR, "main tbody tr")
        told = [one.text for one in rows[:3]]
        for row, did in zip(told, ("ben run plan", "ben approve", "ada save plan"), strict=True):
            who, act = did.split(maxsplit=1)
            assert f"{who} pages 127.0.0.1 {act} plan {plan}" in row


@needs_browser
def test_a_backfill_is_begun_retried_and_seen_through_in_a_browser(
    shop: Shop, tmp_path: Path
) -> None:
    shop.does({"daily": "fail"})
    with serving(shop, "--json") as (said, _), browsing(tmp_path / "browser") as browser:
        wait = WebDriverWait(browser, 90)  # processes start meanwhile

        press = partial(press_in, browser)
        browser.get(json.loads(said)["login"])
        browser.find_element(By.LINK_TEXT, "New backfill").click()

        # While it is typed, the page shows what would run, and writes nothing.
        browser.find_element(By.ID, "changed").send_keys("feed")
        browser.find_element(By.ID, "keys").send_keys("2024-01-02T00..2024-01-02T02")
        wait.until(sees(browser, "2 jobs, 4 partitions, 2 runs in 2 waves"))
        browser.find_element(By.ID, "reason").send_keys("three bad hours")
        assert not (shop.folder / ".lineage-backfill").exists()
        press("Start 2 runs")

        # A process of its own drives it: one run fails, its log says why, and it is run again.
        wait.until(sees(browser, "1 failed"))
        wait.until(lambda _: browser.title.startswith("failed"))
        assert "no [such] column" in browser.find_element(By.ID, "troubles").text
        shop.does({})
        press("Retry")
        wait.until(sees(browser, "2 of 2 runs: 2 succeeded"))
        assert shop.started() == ["clean", "daily", "daily"]
        browser.find_element(By.LINK_TEXT, "Audit").click()
        audit = browser.find_element(By.TAG_NAME, "main").text
        assert "three bad hours" in audit
        assert audit.index(" retry ") < audit.index(" start ")
        assert "command line" not in audit, "the process that drives is no act of its own"

        # What a log-out leaves can be read, and no more.
        press("Log out")
        browser.find_element(By.CSS_SELECTOR, "a.id").click()
        assert not browser.find_elements(By.TAG_NAME, "button")


def test_what_a_program_begins_goes_on_without_the_server(shop: Shop) -> None:
    shop.does({"daily": "wait"})
    token = shop.folder / "token"
    token.write_text("t0" * 16)
    refused = shop("serve", "--token-file", str(token), code=64).stderr
    assert "can be read by others" in refused
    token.chmod(0o600)
    with serving(shop, "--json", "--token-file", str(token)) as (said, process):
        page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
        program = page.partition("```python\n")[2].partition("```")[0]
        address = json.loads(said)["url"].rstrip("/")
        code = program.replace("http://127.0.0.1:8085", address)  # it sends twice
        printed = subprocess.run(
            [sys.executable, "-c", code],
            cwd=shop.folder,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert printed.stdout.startswith("b-")
        wait_for(lambda: "daily 2024-01-02" in shop.journal())
        process.kill()
        process.wait()
    shop.go()
    shop("watch", "--timeout", "60s")
    assert shop.started() == ["clean", "daily"]


def clicked(element: WebElement) -> bool:
    element.click()
    return True
