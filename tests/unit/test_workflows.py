"""The workflows and the action: pinned, without secrets, and their scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*WORKFLOWS, ROOT / "action.yml"]
SHOP = ROOT / "docs" / "examples" / "shop" / "lineage-backfill.toml"
ASKED = f"raw_orders --from 2024-03-10T22 --to 2024-03-11T00\n--config {SHOP}"
#: The commits of the releases of these actions, as their repositories tag them.
ACTIONS = {
    "actions/attest": ("1e69f48acb82d1966a394da916b4c1698aa569d6", "v4.2.2"),
    "actions/checkout": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    "actions/download-artifact": ("3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "v8.0.1"),
    "actions/setup-python": ("5fda3b95a4ea91299a34e894583c3862153e4b97", "v7.0.0"),
    "actions/upload-artifact": ("bbbca2ddaa5d8feaa63e36b76fdaad77386f024f", "v7.0.0"),
}


def read(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def steps(file: Path) -> Iterator[dict[str, Any]]:
    document = read(file)
    jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
    for job in jobs:
        yield from job["steps"]


SCRIPTS = [
    pytest.param(step["run"], id=f"{file.stem}-{step['name']}")
    for file in FILES
    for step in steps(file)
    if "run" in step
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_actions_are_pinned_by_the_commit_of_a_release(file: Path) -> None:
    for line in file.read_text(encoding="utf-8").splitlines():
        used = re.match(r"\s*(?:- )?uses: (\S+)(?: # (\S+))?$", line)
        if used and used[1] != "./":
            name, _, commit = used[1].partition("@")
            assert ACTIONS[name] == (commit, used[2])
            assert re.fullmatch(r"[0-9a-f]{40}", commit)


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_job_may_do_no_more_than_it_needs(file: Path) -> None:
    document = read(file)
    assert document["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in document[True]  # YAML reads `on` as a truth
    for job in document["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_secret_is_named_and_no_value_becomes_part_of_a_script(file: Path) -> None:
    assert "secrets." not in file.read_text(encoding="utf-8")
    for step in steps(file):
        script = step.get("run", "")
        assert "${{" not in script
        assert not re.search(r"set -x|echo .*TOKEN|printenv", script)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_bash(script: str) -> None:
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def script_of(file: Path, name: str) -> str:
    (found,) = (step["run"] for step in steps(file) if step.get("name") == name)
    return str(found)


class Runner:
    """Runs the scripts of steps as GitHub's shell does, with what they find there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output, self.summary = folder / "output", folder / "summary.md"
        programs = folder / "lineage-backfill" / "bin"
        programs.mkdir(parents=True)
        self.program(
            programs / "lineage-backfill",
            f'cd {folder}\nexec {sys.executable} -m lineage_backfill "$@"',
        )

    @staticmethod
    def program(file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/usr/bin/env bash\n{text}\n")
        file.chmod(0o755)

    def run(self, script: str, **given: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_REPOSITORY": "Shop/Orders",
            **given,
        }
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


ACTION = ROOT / "action.yml"


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (ASKED, "2", "4 jobs, 15 partitions"),
        ("no_such_table --config " + str(SHOP), "64", ""),
    ],
)
def test_the_action_previews(runner: Runner, asked: str, code: str, said: str) -> None:
    ended = runner.run(script_of(ACTION, "Preview"), ARGUMENTS=asked)
    assert ended.returncode == 0, ended.stderr
    assert runner.output.read_text() == f"exit-code={code}\n"
    assert said in runner.summary.read_text()


def test_words_of_its_arguments_are_no_commands(runner: Runner) -> None:
    ended = runner.run(
        script_of(ACTION, "Preview"), ARGUMENTS="$(touch bad) `touch bad` ; touch bad"
    )
    assert ended.returncode == 0, ended.stderr
    assert not list(ROOT.glob("bad"))
    assert not list(runner.folder.glob("bad"))


@pytest.mark.parametrize("earlier", ["", "17"])
def test_the_action_comments_once_on_a_pull_request(runner: Runner, earlier: str) -> None:
    runner.program(
        runner.folder / "bin" / "gh",
        f'echo "$*" >>{runner.folder}/asked\n[[ $* != *--jq* ]] || echo {earlier}',
    )
    (runner.folder / "impact.md").write_text("4 jobs\n")
    script = script_of(ACTION, "Comment")
    ended = runner.run(script, CODE="2", NUMBER="5", GH_TOKEN="t")
    assert ended.returncode == 0, ended.stderr
    assert (runner.folder / "comment.md").read_text() == "<!-- lineage-backfill -->\n4 jobs\n"
    sent = (runner.folder / "asked").read_text().splitlines()[-1]
    comments = "repos/Shop/Orders/issues/comments/17" if earlier else "issues/5/comments"
    assert ("PATCH" if earlier else "POST") in sent
    assert comments in sent
    assert "t" not in (ended.stdout + ended.stderr).split()

    # An error replaces the preview of an earlier push, and is no comment of its own.
    (runner.folder / "asked").unlink()
    assert runner.run(script, CODE="64", NUMBER="5").returncode == 0
    sent = (runner.folder / "asked").read_text()
    assert ("PATCH" in sent, "POST" in sent) == (bool(earlier), False)
    assert "exit code 64" in (runner.folder / "comment.md").read_text()


@pytest.mark.parametrize("refuses", ["--jq", "--method"])
def test_a_token_that_may_not_comment_leaves_the_gate_to_decide(
    runner: Runner, refuses: str
) -> None:
    runner.program(runner.folder / "bin" / "gh", f"[[ $* != *{refuses}* ]]")
    (runner.folder / "impact.md").write_text("4 jobs\n")
    ended = runner.run(script_of(ACTION, "Comment"), CODE="2", NUMBER="5", GH_TOKEN="t")
    assert ended.returncode == 0, ended.stderr
    assert "::warning" in ended.stdout


@pytest.mark.parametrize(
    ("code", "gate", "ends"),
    [("0", "error", 0), ("0", "work", 0), ("2", "error", 0), ("2", "work", 2), ("64", "error", 64)],
)
def test_the_action_gates(runner: Runner, code: str, gate: str, ends: int) -> None:
    assert runner.run(script_of(ACTION, "Gate"), CODE=code, GATE=gate).returncode == ends


def test_only_the_tag_of_the_version_is_released(runner: Runner) -> None:
    script = script_of(
        ROOT / ".github" / "workflows" / "release.yml", "Refuse a tag that is not the version"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runner.program(runner.folder / "bin" / "python", f'exec {sys.executable} "$@"')
    assert runner.run(script, TAG=f"v{project['version']}").returncode == 0
    refused = runner.run(script, TAG="v9.9.9")
    assert (refused.returncode, "tag v9.9.9, version" in refused.stderr) == (1, True)


def test_the_image_has_a_name_that_registries_take(runner: Runner) -> None:
    script = script_of(ROOT / ".github" / "workflows" / "image.yml", "Name it")
    named = runner.folder / "environment"
    assert runner.run(script, GITHUB_ENV=str(named), GITHUB_REF_NAME="5/merge").returncode == 0
    assert named.read_text() == "IMAGE=ghcr.io/shop/orders\nTAG=5-merge\n"


def test_the_hook_checks_the_project_file(runner: Runner) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert re.search(hook["files"], "shop/lineage-backfill.toml")
    command = hook["entry"].split()
    assert command[0] in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    checked = [sys.executable, "-m", "lineage_backfill", *command[1:], "--json"]
    ended = subprocess.run(checked, cwd=SHOP.parent, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["kind"] == "config_check"


@pytest.mark.parametrize(
    "file", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda file: file.name
)
def test_a_form_asks_for_what_github_knows(file: Path) -> None:
    form = read(file)
    if file.name == "config.yml":
        assert form == {"blank_issues_enabled": False}
        return
    assert form.keys() == {"name", "description", "labels", "body"}
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)
    for part in form["body"]:
        assert part["type"] in ("dropdown", "input", "textarea")
        assert part["attributes"]["label"]
        assert (part["type"] == "dropdown") == ("options" in part["attributes"])
