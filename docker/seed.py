"""Sends a file of OpenLineage events to a Marquez that does not have the last of them yet.

`python seed.py ADDRESS FILE`, where FILE holds a JSON array, packed by gzip.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import requests


def seed(address: str, file: Path) -> str:
    """Send the events in their order; return what was done. Raises requests.RequestException.

    Where an earlier time was cut short, all are sent again: Marquez takes an event twice.
    """
    events = json.loads(gzip.decompress(file.read_bytes()))
    namespace, last = events[0]["job"]["namespace"], events[-1]["run"]["runId"]
    with requests.Session() as session:
        run = session.get(f"{address}/api/v1/jobs/runs/{last}", timeout=30)
        if run.ok and run.json()["state"] == "COMPLETED":
            return f"{namespace} is there already"
        for event in events:
            session.post(f"{address}/api/v1/lineage", json=event, timeout=30).raise_for_status()
    return f"{len(events)} events of {namespace} were sent"


if __name__ == "__main__":
    try:
        sys.stdout.write(seed(sys.argv[1].rstrip("/"), Path(sys.argv[2])) + "\n")
    except requests.RequestException as error:
        sys.exit(f"The events could not be sent: {error}")
