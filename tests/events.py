"""OpenLineage events for tests, in a line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

#: When the runs ended.
ENDED = "2023-12-31T00:00:00Z"


def event(
    job: str, reads: Iterable[str], writes: Iterable[str] = (), *, namespace: str = "shop"
) -> dict[str, Any]:
    """Return the event of a completed run of a job; all names lie in one namespace."""

    def named(names: Iterable[str]) -> list[dict[str, str]]:
        return [{"namespace": namespace, "name": name} for name in names]

    return {
        "eventType": "COMPLETE",
        "eventTime": ENDED,
        "run": {"runId": f"00000000-0000-4000-8000-{sum(map(ord, job)):012}"},
        "job": {"namespace": namespace, "name": job},
        "inputs": named(reads),
        "outputs": named(writes),
        "producer": "https://example.org/",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def write_events(file: Path, *events: dict[str, Any]) -> None:
    """Write the events to a file, one a line."""
    file.write_text("".join(f"{json.dumps(one)}\n" for one in events))
