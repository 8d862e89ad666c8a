"""The table [access]: who it names, what it grants them, and what it refuses to be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.project.access import Access, ProxySetting
from lineage_backfill.workspace.environment import open_project

DOCS = Path(__file__).parents[3] / "docs"


def access(folder: Path, text: str) -> Access | None:
    file = folder / "lineage-backfill.toml"
    file.write_text(text, encoding="utf-8")
    return open_project(file).access


def test_without_the_table_nothing_is_granted(tmp_path: Path) -> None:
    assert access(tmp_path, "") is None
    empty = access(tmp_path, "[access]")
    assert empty is not None
    assert str(empty.reach(["user:ada"]).highest) == "public"


def test_the_example_of_the_page_grants_what_it_says(tmp_path: Path) -> None:
    page = (DOCS / "access.md").read_text(encoding="utf-8")
    found = access(tmp_path, page.split("```toml\n")[1].partition("```")[0])
    assert found is not None
    assert found.four_eyes_runs == 50
    orders, other = JobRef("crm", "orders_daily"), DatasetRef("crm", "people")
    for subject, role, on_other in (
        ("token:nightly", "operator", "public"),
        ("group:data", "operator", "public"),
        ("user:ada", "admin", "admin"),
        ("user:eve", "public", "public"),
    ):
        reach = found.reach([subject])
        assert (str(reach.role(orders)), str(reach.role(other))) == (role, on_other)
    assert found.reach(["user:ada"]).is_admin
    assert not found.reach(["group:data"]).sees_all
    both = found.reach(["user:ada", "group:data"])
    assert str(both.role(orders)) == "admin", "the highest role counts"


def test_all_who_log_in_are_not_all(tmp_path: Path) -> None:
    grants = '[[access.grant]]\nto = "*"\nrole = "operator"\n'
    grants += '[[access.grant]]\nto = "anyone"\nrole = "viewer"\non = "open:*"\n'
    found = access(tmp_path, grants)
    assert found is not None
    hidden, shown = DatasetRef("shop", "x"), DatasetRef("open", "x")
    roles = {who: found.reach(who) for who in (None, ("user:ada",))}
    assert [str(one.role(hidden)) for one in roles.values()] == ["public", "operator"]
    assert [str(one.role(shown)) for one in roles.values()] == ["viewer", "operator"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[access]\nx = 1", "unknown key `x`"),
        ("[access]\nfour_eyes_runs = -1", "at least 0"),
        ('[[access.grant]]\nto = "ci"\nrole = "viewer"', "not a subject: 'ci'"),
        ('[[access.grant]]\nto = "token:"\nrole = "viewer"', "not a subject"),
        ('[[access.grant]]\nto = "token:ci"\nrole = "boss"', "must be one of viewer"),
        ('[[access.grant]]\nto = "token:ci"', "needs `to` and `role`"),
        ('[[access.grant]]\nto = "anyone"\nrole = "operator"', "lets anyone be operator"),
        ('[access]\nproxy = { header = "X", from = "here" }', "not an address: 'here'"),
        ('[access]\nproxy = { header = "X" }', "needs `header` and `from`"),
        ('[access]\nproxy = { from = "::1" }', "needs `header` and `from`"),
        ("[target.prod.access]\nx = 1", "unknown key `x`"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        access(tmp_path, text)


@pytest.mark.parametrize(
    ("address", "is_proxy"),
    [
        ("10.1.0.1", True),
        ("::ffff:10.1.0.1", True),
        ("fe80::1%eth0", True),
        ("10.2.0.1", False),
        ("", False),
        ("proxy", False),
    ],
)
def test_a_proxy_has_its_addresses(address: str, is_proxy: bool) -> None:
    proxy = ProxySetting(header="X", addresses=("10.1.0.0/16", "fe80::1"))
    assert proxy.sends(address) is is_proxy
