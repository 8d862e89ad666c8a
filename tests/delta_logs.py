"""Delta logs written by hand: the actions that tests are about, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def schema(column: str = "day") -> dict[str, Any]:
    """The schema of a table with this partition column, a text, and a number `n`."""
    names = {column: "string", "n": "integer"}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in names.items()
    ]
    return {"type": "struct", "fields": fields}


def metadata(column: str = "day") -> dict[str, Any]:
    """What says what the table looks like."""
    text = json.dumps(schema(column))
    return {"metaData": {"schemaString": text, "partitionColumns": [column], "configuration": {}}}


PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
SCHEMA = schema()
METADATA = metadata()


def add(
    path: str, day: str | None, rows: int | None = 1, *, column: str = "day", **more: Any
) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    return {"add": {"path": path, "partitionValues": {column: day}, **stats, **more}}


def remove(path: str, day: str | None, *, column: str = "day", **more: Any) -> dict[str, Any]:
    # As Delta writes it: a NULL key is left out.
    values = {} if day is None else {column: day}
    return {"remove": {"path": path, "partitionValues": values, **more}}


def ours(token: str, *partitions: Any, **more: Any) -> dict[str, Any]:
    said = {"lineage_backfill": {"token": token, "partitions": list(partitions), **more}}
    return {"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps(said)}}


class Log:
    """Writes commits by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "_delta_log").mkdir(parents=True)
        self.version = -1

    def commit(self, *actions: dict[str, Any]) -> None:
        self.version += 1
        if self.version == 0:
            actions = (*actions, PROTOCOL)
        lines = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
        self.path(self.version).write_text(lines, encoding="utf-8")

    def path(self, version: int) -> Path:
        return self.root / "_delta_log" / f"{version:020}.json"

    def checksum(self, *, column: str = "day", **more: Any) -> None:
        """Leave the checksum file of the newest version, as Delta does."""
        text = json.dumps({"metadata": metadata(column)["metaData"], **more})
        self.path(self.version).with_suffix(".crc").write_text(text)
