"""`[[notify]]` tables: what they hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage_backfill.errors import UsageError
from lineage_backfill.project.settings import Project
from lineage_backfill.workspace.configuration import load_project


def load(folder: Path, text: str) -> Project:
    (folder / "lineage-backfill.toml").write_text(text)
    return load_project(folder, environ={}, user_file=folder / "none.toml")


def test_hooks_are_read(tmp_path: Path) -> None:
    text = """
[run]
notify_hosts = ["hooks.slack.com"]
[[notify]]
on = ["failed", "finished"]
webhook = "https://hooks.slack.com/services/x"
format = "slack"
[[notify]]
on = "finished"
command = ["./tell", "us"]
[[notify]]
on = "started"
webhook = "env:HOOK"
"""
    slack, command, other = load(tmp_path, text).notify
    assert (slack.on, slack.shape) == (("failed", "finished"), "slack")
    assert command.command == ("./tell", "us")
    assert other.webhook == "env:HOOK"  # is looked up where it is used
    assert len({slack.id, command.id, other.id}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command = 'x'", "`on` is missing"),
        ("on = ['fail']\ncommand = 'x'", "`on` is 'fail', but must be one of started"),
        ("on = 'failed'", "needs a `command` or a `webhook`"),
        ("on = 'failed'\ncommand = 'x'\nwebhook = 'env:X'", "and not both"),
        ("on = 'failed'\ncommand = 'x'\nformat = 'slack'", "`format` applies to webhooks only"),
        ("on = 'failed'\nwebhook = 'https://b/x'", "goes to b, which is not among `notify_hosts`"),
        ("on = 'failed'\nwebhook = 'http://a/x'", "is not https"),
        ("on = 'failed'\nwebhook = 'a/x'", "is not an https address"),
        ("on = 'failed'\nwebhook = 'https://a/x'\nformat = 'xml'", "`format` is 'xml'"),
        ("on = 'failed'\ncommand = 'x'\nwhen = 1", "unknown key `when`"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, f"[run]\nnotify_hosts = ['a']\n[[notify]]\n{text}\n")
    assert said in str(caught.value)
    assert "[[notify]]" in str(caught.value)
