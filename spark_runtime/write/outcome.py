"""The outcome of one output, from the log of its table."""

from __future__ import annotations

from dataclasses import replace

from lineage_backfill.runspec.values import OutputResult, OutputSpec, PartitionResult, RunSpec
from spark_runtime.errors import TableError
from spark_runtime.tables.commits import foreign_change, miscounted
from spark_runtime.tables.scope import Scope
from spark_runtime.tables.state import Commit, Since, TableLog, TableState


def is_as_planned(
    ours: Commit, log: TableLog, scope: Scope, output: OutputSpec, run: RunSpec
) -> bool:
    """Whether a commit of a run is as planned, from the log alone, at any time.

    It touched only the scope, has the counted rows, and no other writer changed the scope between
    the start of the run and the commit.
    """
    adds, after = output.mode == "append", log.state(ours.version)
    is_whole = adds or not miscounted(ours, after)
    since = Since(ours.metadata["since"], ours.metadata.get("table_id"))
    is_alone = foreign_change(log, since, after, scope, run, ours.version - 1, adds) is None
    return is_whole and is_alone and all(values in scope for values in ours.touched)


def before_commit(log: TableLog, version: int) -> TableState:
    """Return the table before a commit; its contents are unknown if the log begins with that."""
    try:
        return log.state(version - 1)
    except TableError:
        unknown = log.state(version)
        return replace(unknown, version=version - 1, complete=False, partitions={})


def output_result(
    output: OutputSpec,
    scope: Scope,
    log: TableLog,
    before: TableState,
    after: TableState,
    drift: tuple[str, ...] = (),
) -> OutputResult:
    """Return the partitions of the scope before and after, with their keys.

    `after` is `before` if nothing was done. Of partitions that match an open pattern, only those
    touched in between are included.
    """
    commits = [] if after is before else list(log.commits(before.version, after.version))
    touched = [values for commit in commits for values in commit.touched]
    parts = []
    for values, member in scope.members(also=touched).items():
        old, new = before.contents(values), after.contents(values)
        parts.append(
            PartitionResult(
                key=member.key,
                rows_before=old.rows,
                rows=new.rows,
                fingerprint_before=old.fingerprint,
                fingerprint=new.fingerprint,
                emptied=new.rows == 0 and old.rows != 0,
                values=member.values,
                within=member.within,
            )
        )
    return OutputResult(
        dataset=output.dataset,
        version_before=before.version,
        version=after.version if after is not before else None,
        partitions=tuple(parts),
        drift=drift,
        types=scope.types,
        merged=commits[-1].merged if commits else None,
    )
