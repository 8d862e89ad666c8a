"""`python -m spark_runtime`: run one run spec, or serve many from a warm session."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from spark_runtime.errors import RuntimeFailure, SpecError
from spark_runtime.runner import run
from spark_runtime.session import get_session
from spark_runtime.spec import load_spec
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
    for command in (single, warm):
        command.add_argument("--project", default=".", help="folder that jobs are imported from")
        command.add_argument(
            "--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting"
        )
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(Path(options.project).resolve()))
    try:
        conf = dict(_setting(text) for text in options.conf)
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


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SpecError(f"--conf {text}: NAME=VALUE is expected")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
