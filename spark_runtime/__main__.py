"""`python -m spark_runtime`: run or reconcile a run, serve from a warm session, read logs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

if not __package__:
    # spark-submit runs this file by its path, and puts its folder on sys.path: one module there has
    # the name of Delta's own package.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from lineage_backfill.errors import BackfillError, SpecError
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import JobPartitioning
from lineage_backfill.project.locations import is_remote
from lineage_backfill.runspec.instants import read_instant
from lineage_backfill.runspec.strict_json import read_parameters
from lineage_backfill.runspec.values import RunSpec, Target
from spark_runtime.configuration import address_of, load_project, outbox_of
from spark_runtime.connect import end_sessions
from spark_runtime.emit.outbox import default_folder, replay
from spark_runtime.errors import (
    NothingToRunError,
    Stopped,
    TableError,
)
from spark_runtime.job.arguments import add_arguments, read_request
from spark_runtime.job.declared import write_declared
from spark_runtime.job.decorator import load_job
from spark_runtime.job.runner import run
from spark_runtime.job.scheduled import declare, find_job, run_specs
from spark_runtime.logs.changes import changes
from spark_runtime.logs.history import History, history, parquet_history
from spark_runtime.logs.rehearsal import rehearse
from spark_runtime.logs.rows import RowsRequest, difference
from spark_runtime.session import find_jars, get_session
from spark_runtime.spec import load_spec, load_specs
from spark_runtime.tables.by_value import ByValue
from spark_runtime.tables.delta.log import DeltaLog
from spark_runtime.tables.parquet.log import ParquetFolder
from spark_runtime.tables.places import place
from spark_runtime.tables.tables import Tables
from spark_runtime.worker import Worker, serve
from spark_runtime.write.reconcile import reconcile


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "jars":
            print(*find_jars(), sep="\n")
            return 0
        if options.command == "end-sessions":
            end_sessions(options.master, options.token)
            return 0
        if options.command == "reconcile":
            reconcile(load_spec(options.spec), Tables(), _since(options))
            return 0
        project = str(Path(options.project).resolve())
        sys.path.insert(0, project)
        conf = dict(_setting(text) for text in options.conf)
        if options.command == "declared":
            with contextlib.redirect_stdout(sys.stderr):
                return write_declared(options.entries, Path(project), options.result)
        if options.command == "changes":
            return _changes(options, conf)
        if look := _looks(options, conf).get(options.command):
            return _answer(look)
        if options.command == "replay":
            return _replay(options)
        signal.signal(signal.SIGTERM, _stop)
        if options.command == "worker":
            return _serve(options, conf)
        return _run(options, conf)
    except NothingToRunError as nothing:
        print(nothing, file=sys.stderr)
        return 0
    except BackfillError as error:
        hint = f"\n  {error.hint}" if error.hint else ""
        print(f"{type(error).__name__}: {error.message}{hint}", file=sys.stderr)
        return 1


def _since(options: argparse.Namespace) -> datetime | None:
    return None if options.since is None else read_instant(options.since)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark_runtime", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    single = commands.add_parser("run", help="run one run spec, or one job as its schedule does")
    what = single.add_mutually_exclusive_group(required=True)
    what.add_argument("--spec", help="the run spec, a JSON file")
    what.add_argument(
        "--job", help="a job of the project file, or an entrypoint such as pipeline.jobs:daily"
    )
    add_arguments(single)
    single.add_argument(
        "--parameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter for the job; the value is JSON, or else a string",
    )
    single.add_argument("--result", metavar="FILE", help="where to write the result file")
    single.add_argument(
        "--config", type=Path, metavar="FILE", help="the project file, by default searched upward"
    )
    dead = commands.add_parser(
        "reconcile", help="write the result of a run whose process died after it had committed"
    )
    dead.add_argument("--spec", required=True, help="the run spec, a JSON file")
    dead.add_argument(
        "--since",
        metavar="INSTANT",
        help="also a scheduled run of the same partitions that began no earlier",
    )
    over = commands.add_parser(
        "end-sessions", help="end what an attempt still does on a Spark Connect server"
    )
    over.add_argument("--master", required=True, help="the address of the server")
    over.add_argument("--token", required=True, help="the token of the attempt")
    commands.add_parser("jars", help="print where Delta's jars are")
    code = commands.add_parser(
        "declared", help="write what modules, packages and SQL files declare to a file of JSON"
    )
    code.add_argument("entries", nargs="+", metavar="ENTRY", help="pipeline.jobs, or sql/")
    code.add_argument("--result", type=Path, required=True, help="the file to write")
    warm = commands.add_parser("worker", help="keep Spark warm and answer requests on stdin")
    warm.add_argument("--reply-fd", type=int, required=True, help="file descriptor for replies")
    warm.add_argument("--memory", type=int, metavar="BYTES", help="memory limit of each process")
    changed = commands.add_parser("changes", help="print which partitions of a Delta table changed")
    place = changed.add_mutually_exclusive_group(required=True)
    place.add_argument("--location", help="where the table is")
    place.add_argument("--table", help="its name in the catalog; needs Spark")
    start = changed.add_mutually_exclusive_group(required=True)
    start.add_argument("--after", type=int, metavar="VERSION", help="after this version")
    start.add_argument("--since", metavar="INSTANT", help="since this instant")
    changed.add_argument(
        "--by",
        default="null",
        metavar="JSON",
        help="the column whose value says which key a row has: its name, time or key, its format",
    )
    again = commands.add_parser(
        "replay", help="send the lineage events that have not been sent yet"
    )
    again.add_argument(
        "--outbox", type=Path, help="their folder, by default that of the project file"
    )
    again.add_argument("--url", help="the address, by default that of the project file")
    again.add_argument("--config", type=Path, metavar="FILE", help="the project file")
    past = commands.add_parser(
        "history",
        help="print when each partition of Delta tables changed last, one table on a line; a JSON"
        " list on stdin names them by location or table",
    )
    past.add_argument(
        "--spans", action="store_true", help="also how much time a file spans, in a table by time"
    )
    rows = commands.add_parser(
        "rows",
        help="print which rows of a partition differ between two versions of Delta tables; a JSON"
        " list on stdin holds what RowsRequest takes",
    )
    trial = commands.add_parser(
        "rehearse",
        help="print which rows runs would change, which they write to clones of their tables; a"
        " JSON list on stdin holds their run specs",
    )
    for command in (single, code, warm, changed, past, again, rows, trial):
        command.add_argument("--project", default=".", help="folder that jobs are imported from")
        command.add_argument(
            "--conf", action="append", default=[], metavar="NAME=VALUE", help="a Spark setting"
        )
    return parser


def _serve(options: argparse.Namespace, conf: Mapping[str, str]) -> int:
    if options.memory is not None:
        # Spark's processes inherit it. It does not limit the address space: a JVM reserves far more
        # than it uses.
        resource.setrlimit(resource.RLIMIT_DATA, (options.memory, options.memory))
    return serve(options.reply_fd, conf)


def _run(options: argparse.Namespace, conf: Mapping[str, str]) -> int:
    if options.spec is not None:
        specs = load_specs(options.spec)
    else:
        specs, project_conf = _scheduled(options)
        conf = {**project_conf, **conf}
    spark = get_session(conf)
    tables = Tables(spark)
    is_ours = "DATABRICKS_RUNTIME_VERSION" not in os.environ  # else its sessions are not
    if options.spec is not None and len(specs) > 1:  # a list: no run waits for another
        one = Worker(spark, conf).run if is_ours else lambda spec: run(spark, spec, tables)
        succeeded = [one(spec).state for spec in specs].count("succeeded") == len(specs)
    else:
        succeeded = all(run(spark, spec, tables).state == "succeeded" for spec in specs)
    if is_ours:
        spark.stop()
    return 0 if succeeded else 1


def _scheduled(options: argparse.Namespace) -> tuple[list[RunSpec], dict[str, str]]:
    """Return the runs of an unplanned job, and its project's Spark settings."""
    project = load_project(Path(options.project), options.config)
    sys.path.insert(0, str(project.code))
    _, table = find_job(project, options.job)
    entrypoint = (table and table.entrypoint) or options.job
    job = load_job(entrypoint)
    declared = declare(
        project,
        options.job,
        entrypoint=entrypoint,
        reads=job.reads,
        writes=job.writes,
        calendar=job.calendar,
        runs=JobPartitioning(batch=job.batch, depends_on_past=job.depends_on_past),
    )
    parameters = read_parameters(options.parameter)
    wanted = read_request(options, parameters=parameters, result_path=options.result)
    specs = run_specs(declared, project, wanted, datetime.now(UTC), batch=job.batch)
    return specs, dict(project.spark)


def _replay(options: argparse.Namespace) -> int:
    project = load_project(Path(options.project), options.config)
    folder = options.outbox or outbox_of(project) or default_folder()
    url = options.url or address_of(project)
    if url is None:
        raise SpecError("no address for lineage", hint="Name it: --url URL")
    sent = replay(folder, url)
    print(f"{sent.now} events sent to {url}, {sent.refused} refused, {sent.before} sent before")
    return 1 if sent.refused else 0


def _stop(number: int, _frame: object) -> NoReturn:
    """Let a terminated process send its lineage first."""
    raise Stopped(128 + number)


def _changes(options: argparse.Namespace, conf: Mapping[str, str]) -> int:
    """Print the changes, or the error, as one JSON document on stdout."""
    try:
        log = _open(options.location, options.table, conf, json.loads(options.by))
        found = changes(log, after=options.after, since=_since(options))
    except BackfillError as error:
        print(json.dumps(_wrong(error)))
        return 1
    print(json.dumps(found.to_dict(), ensure_ascii=False))
    return 0


def _looks(
    options: argparse.Namespace, conf: Mapping[str, str]
) -> dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Return the function of each command that answers one document from stdin."""
    return {
        "history": lambda named: _history(named, conf, spans=options.spans).to_dict(),
        "rows": lambda asked: difference(get_session(conf), RowsRequest(**asked)),
        "rehearse": lambda asked: rehearse(get_session(conf), asked),
    }


def _answer(look: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> int:
    """Answer each document from stdin with one line of JSON: the result or the error."""
    wrong = 0
    for named in json.load(sys.stdin):
        try:
            document = look(named)
        except BackfillError as error:
            document, wrong = _wrong(error), 1
        print(json.dumps(document, ensure_ascii=False), flush=True)
    return wrong


def _history(named: Mapping[str, Any], conf: Mapping[str, str], *, spans: bool) -> History:
    if named.get("format") == "parquet":
        location = named.get("location")
        if location is None:
            raise TableError(
                f"where the Parquet table {named.get('table')} is, is unknown",
                hint="Declare its location: only a path shows how others changed its files.",
            )
        spark = get_session(conf) if is_remote(location) else None
        return parquet_history(ParquetFolder(location, place(location, spark)))
    log = _open(named.get("location"), named.get("table"), conf, named.get("by"))
    return history(log, spans=spans)


def _open(
    location: str | None, table: str | None, conf: Mapping[str, str], by: Sequence[Any] | None
) -> DeltaLog:
    """Return the log of a table; Spark is started only if it is needed."""
    column = None if by is None else ByValue(name=by[0], by=by[1], form=by[2])

    def tables() -> Tables:
        return Tables(get_session(conf))

    def read_checkpoint(files: list[str]) -> Iterable[Mapping[str, Any]]:
        # Needed, and Spark started, only if Delta wrote no checksum of a version.
        return tables().read_checkpoint(files)

    if location is None:
        name = DatasetRef("", table or "")
        location = tables().location(Target(dataset=name, format="delta", columns=(), table=table))
    root = place(location, get_session(conf) if is_remote(location) else None)
    return DeltaLog(location, checkpoint_reader=read_checkpoint, root=root, by=column)


def _wrong(error: BackfillError) -> dict[str, Any]:
    return {"error": {"message": error.message, "hint": error.hint}}


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise SpecError(f"--conf {text}: NAME=VALUE is expected")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
