"""`python -m spark_runtime`: run one run spec, serve many from a warm session, or tell changes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from spark_runtime.changes import changes
from spark_runtime.deltalog import DeltaLog
from spark_runtime.errors import RuntimeFailure, SpecError
from spark_runtime.runner import run
from spark_runtime.session import get_session
from spark_runtime.spec import DatasetName, Target, load_spec
from spark_runtime.tables import Tables
from spark_runtime.worker import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    single = commands.add_parser("run", help="run one run spec")
    single.add_argument("--spec", required=True, help="the run spec, a JSON file")
    warm = commands.add_parser("worker", help="keep Spark warm and answer requests on stdin")
    warm.add_argument("--reply-fd", type=int, required=True, help="file descriptor for answers")
    told = commands.add_parser("changes", help="print which partitions of a Delta table changed")
    place = told.add_mutually_exclusive_group(required=True)
    place.add_argument("--location", help="where the table is")
    place.add_argument("--table", help="its name in the catalog, which takes Spark to look up")
    start = told.add_mutually_exclusive_group(required=True)
    start.add_argument("--after", type=int, metavar="VERSION", help="after this version")
    start.add_argument("--since", type=datetime.fromisoformat, help="since this instant")
    for command in (single, warm, told):
        command.add_argument("--project", default=".", help="folder that jobs are imported from")
        command.add_argument(
            "--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting"
        )
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(options.project).resolve()))
    try:
        conf = dict(_setting(text) for text in options.conf)
        if options.command == "changes":
            return _changes(options, conf)
        if options.command == "worker":
            return serve(options.reply_fd, conf)
        spec = load_spec(options.spec)
        spark = get_session(conf)
        result = run(spark, spec, Tables(spark))
        spark.stop()
        return 0 if result.state == "succeeded" else 1
    except RuntimeFailure as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _changes(options: argparse.Namespace, conf: Mapping[str, str]) -> int:
    """Print what changed, or what is wrong, as one JSON document on stdout."""

    def tables() -> Tables:
        return Tables(get_session(conf))

    def read_checkpoint(files: list[str]) -> Iterable[Mapping[str, Any]]:
        # Only where Delta has left no checksum of a version, and only then Spark is started.
        return tables().read_checkpoint(files)

    location = options.location
    try:
        if location is None:
            name = DatasetName("", options.table)
            location = tables().location(
                Target(dataset=name, format="delta", columns=(), table=options.table)
            )
        log = DeltaLog(location, checkpoint_reader=read_checkpoint)
        found = changes(log, after=options.after, since=options.since)
    except RuntimeFailure as error:
        print(json.dumps({"error": {"message": error.message, "hint": error.hint}}))
        return 1
    print(json.dumps(found.to_dict(), ensure_ascii=False))
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SpecError(f"--conf {text}: NAME=VALUE is expected")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
