"""What a run leaves behind that is stopped from outside, and one whose process is told to end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lineage_backfill.runspec.parse import parse_spec
from spark_runtime.errors import Stopped
from spark_runtime.job.decorator import job
from spark_runtime.job.runner import run


@job(output="days")
def stopped() -> Any:
    raise Stopped(143)


@job(output="days")
def broken() -> Any:
    raise ValueError("no such luck")


@pytest.mark.parametrize(
    ("name", "event", "said"),
    [("stopped", "ABORT", "stopped by signal 15"), ("broken", "FAIL", "no such luck")],
)
def test_a_run_that_does_not_end_well_says_how(
    document: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    name: str,
    event: str,
    said: str,
) -> None:
    sys.modules["runs_under_test"] = sys.modules[__name__]
    document["job"]["entrypoint"] = f"runs_under_test:{name}"
    document["inputs"] = []
    nothing: Any = SimpleNamespace(latest_version=lambda target: None, state=lambda *args: None)
    spark: Any = None
    if event == "ABORT":
        with pytest.raises(Stopped):
            run(spark, parse_spec(document), nothing)
    else:
        assert run(spark, parse_spec(document), nothing).state == "failed"
        first, second, *_ = capsys.readouterr().err.splitlines()
        assert first == "n:days failed: ValueError: no such luck"
        assert second.startswith("Traceback")
    result = json.loads(Path(document["result_path"]).read_text())
    assert (result["state"], result["error"]["message"]) == ("failed", said)
    (file,) = Path(document["lineage"]["outbox"]).glob("*.ndjson")
    start, end = map(json.loads, file.read_text().splitlines())
    assert (start["eventType"], end["eventType"]) == ("START", event)
    assert [dataset["name"] for dataset in end["outputs"]] == ["days"]
