"""Finds the outcome of an attempt whose process died, from its tables' logs, without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from lineage_backfill.runspec.values import OutputResult, OutputSpec, RunResult, RunSpec
from spark_runtime.emit.lineage import Emitter, InputSeen, OutputSeen
from spark_runtime.errors import VerificationError
from spark_runtime.read.reader import Inputs
from spark_runtime.spec import write_result
from spark_runtime.tables.scope import Scope
from spark_runtime.tables.state import Commit, TableLog, undo_token
from spark_runtime.tables.tables import Tables
from spark_runtime.write.outcome import before_commit, is_as_planned, output_result


def reconcile(spec: RunSpec, tables: Tables, since: datetime | None = None) -> RunResult:
    """Complete an attempt that had committed all its outputs before it died.

    Emits its last lineage event and writes its result file. With `since` the attempt may have been
    a scheduled run of the job that wrote the same partitions: one that began no earlier, and that
    has emitted its events itself. Raises a RuntimeFailure unless the logs prove that it did all
    its work.
    """
    ours = spec if since is None else _scheduled(spec, tables, since)
    written, commits = {}, []
    for output in spec.outputs:
        written[output.dataset], commit = _committed(output, ours, tables.log(output))
        commits.append(commit.metadata)
    last = max(commits, key=lambda one: datetime.fromisoformat(one["ended_at"]))
    versions = dict(last["inputs"])
    pinned = tuple(replace(one, version=versions.get(str(one.dataset))) for one in spec.inputs)
    if any(one.version is None for one in pinned):
        raise VerificationError("what was read did not exist then, and may exist now")
    result = RunResult(
        run_id=spec.run_id,
        attempt=spec.attempt,
        token=spec.token,
        state="succeeded",
        outputs=tuple(written.values()),
        inputs=Inputs(None, pinned, tables).results(),
        error=None,
        started_at=datetime.fromisoformat(last["started_at"]),
        ended_at=datetime.fromisoformat(last["ended_at"]),
    )
    if ours is spec:
        Emitter(spec, datetime.fromisoformat(last["started_at"])).complete(
            [InputSeen(spec=one, state=tables.state(one, one.version)) for one in pinned],
            [
                OutputSeen(
                    spec=one,
                    state=tables.state(one, written[one.dataset].version),
                    result=written[one.dataset],
                )
                for one in spec.outputs
            ],
        )
    if spec.result_path is not None:
        write_result(spec.result_path, result)
    return result


def _scheduled(spec: RunSpec, tables: Tables, since: datetime) -> RunSpec:
    """Return an attempt's run spec as that of the scheduled run which did the same.

    It is the attempt's own where its own commit is there, or none of such a run.
    """
    output = spec.outputs[0]
    log = tables.log(output)
    state = log.state()
    if spec.token in state.tokens:
        return spec
    scope = Scope.of(state, output, output.scope).digest
    for version in range(state.version, state.first_read - 1, -1):
        (commit,) = log.commits(version - 1, version)
        told = commit.metadata
        if commit.at is not None and commit.at < since:
            break
        names = [told.get(name) for name in ("job", "scope", "backfill_id")]
        if (
            names == [str(spec.job.name), scope, ""]
            and datetime.fromisoformat(told["started_at"]) >= since
        ):
            return replace(spec, backfill_id="", run_id=told["run_id"], token=told["token"])
    return spec


def _committed(output: OutputSpec, run: RunSpec, log: TableLog) -> tuple[OutputResult, Commit]:
    """Return what this attempt wrote to a table, and its commit.

    Raises VerificationError unless the commit exists, was not reverted or undone, touched only the
    scope, has the counted rows, and followed no other writer's change of the scope.
    """
    state = log.state()
    version = state.tokens.get(run.token)
    if version is None or undo_token(run.token) in state.tokens:
        raise VerificationError(f"the log of {output.dataset} has no commit of {run.token}")
    scope = Scope.of(state, output, output.scope)
    (ours,) = log.commits(version - 1, version)
    before, after = before_commit(log, version), log.state(version)
    if not is_as_planned(ours, log, scope, output, run):
        raise VerificationError(
            f"{ours} of {output.dataset} differs from what the run had to write"
        )
    return output_result(output, scope, log, before, after, tuple(ours.metadata["drift"])), ours
