"""Errors: each has a code of its own, says what to do, and stays whole across processes."""

from __future__ import annotations

import ast
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lineage_backfill
from lineage_backfill.cli.main import main
from lineage_backfill.errors import BackfillError, HTTPStatusError, UsageError
from scripts.docs.reference import all_errors, explained

ERRORS = list(all_errors())
#: The codes are printed, searched for and linked to: none ever means something else.
CODES = {
    "LB-001": "BackfillError",
    "LB-100": "UsageError",
    "LB-101": "UnknownNameError",
    "LB-102": "AmbiguousNameError",
    "LB-110": "KeyFormatError",
    "LB-111": "AmbiguousKeyError",
    "LB-112": "MissingKeyError",
    "LB-113": "RangeError",
    "LB-114": "ZoneError",
    "LB-115": "CronError",
    "LB-120": "DeclarationError",
    "LB-121": "ConfigError",
    "LB-200": "LineageError",
    "LB-201": "ServiceUnreachableError",
    "LB-202": "HTTPStatusError",
    "LB-300": "StalePlanError",
    "LB-301": "ConflictError",
    "LB-302": "GuardRailError",
    "LB-400": "EngineError",
    "LB-401": "EnvironmentMissingError",
    "LB-500": "StoreError",
}


def test_codes_are_stable() -> None:
    assert CODES.items() <= {one.code: one.__name__ for one in ERRORS}.items()


@pytest.mark.parametrize("error", ERRORS, ids=lambda one: one.__name__)
def test_each_error_has_a_code_of_its_own_and_says_what_to_do(error: type[BackfillError]) -> None:
    assert re.fullmatch(r"LB-\d{3}", vars(error)["code"])
    assert [one for one in ERRORS if one.code == error.code] == [error]
    meaning, to_do = explained(error)
    assert meaning.endswith(".")
    assert to_do.endswith(".")


def test_no_error_is_defined_elsewhere() -> None:
    # Else a code could be used twice, and a page be missing.
    names = {one.__name__ for one in ERRORS}
    home = Path(lineage_backfill.__file__).parent
    elsewhere = {
        node.name
        for file in home.rglob("*.py")
        if file != home / "errors.py"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in names for base in node.bases)
    }
    assert elsewhere == set()


def test_an_error_stays_whole_across_processes() -> None:
    error = pickle.loads(pickle.dumps(HTTPStatusError("no", 403, hint="look")))
    assert (type(error), str(error), error.hint, error.status, error.exit_code) == (
        *(HTTPStatusError, "no", "look"),
        403,
        4,
    )


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 7), (500, 7)])
def test_a_service_that_refuses_is_told_from_one_in_trouble(status: int, code: int) -> None:
    assert HTTPStatusError("no", status).exit_code == code


def test_an_error_is_told_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["impact", "--nonsense"]) == 64
    assert capsys.readouterr().err.startswith("error[LB-100]: No such option")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["impact", "x", "--format", "bogus"], "'bogus' is not one of 'table', 'tree'"),
        (["impact", "x", "--depth", "1.5"], "it must be a whole number."),
        (["run", "x", "--max-parallel", "0"], "it must be greater than or equal to 1."),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == UsageError.exit_code
    option = next(one for one in arguments if one.startswith("--"))
    said = capsys.readouterr().err
    assert said.startswith(f"error[LB-100]: Invalid value for '{option}': {message}"), said


def test_a_time_that_is_none_is_refused_with_both_ways_to_write_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["stale", "--since", "yesterday"]) == UsageError.exit_code
    assert "Z, or as a length: 7d or 12h." in capsys.readouterr().err


BROKEN = """
from lineage_backfill.cli.commands import status
from lineage_backfill.cli import main
def fails(workspace):
    raise KeyError("sur[prise]")
status.Backfills = fails
raise SystemExit(main.main())
"""


@pytest.mark.parametrize("debug", [False, True])
def test_a_fault_of_our_own_is_no_traceback_without_debug(debug: bool) -> None:
    command = [sys.executable, "-c", BROKEN, "history", *(["--debug"] if debug else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) is debug
    assert debug or done.stderr.startswith("error[LB-001]: KeyError: 'sur[prise]'")
