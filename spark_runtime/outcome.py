"""What became of one output, by the log of its table."""

from __future__ import annotations

from collections.abc import Mapping

from spark_runtime.spec import Key, OutputResult, OutputSpec, PartitionResult
from spark_runtime.state import TableState
from spark_runtime.values import Values


def output_result(
    output: OutputSpec,
    scope: Mapping[Values, Key],
    before: TableState,
    after: TableState,
    drift: tuple[str, ...] = (),
) -> OutputResult:
    """Return the partitions of the scope as they were and as they are, with their keys.

    `after` is `before` where nothing was done.
    """
    parts = []
    for values, key in scope.items():
        old, new = before.contents(values), after.contents(values)
        parts.append(
            PartitionResult(
                key=key,
                rows_before=old.rows,
                rows=new.rows,
                fingerprint_before=old.fingerprint,
                fingerprint=new.fingerprint,
                emptied=new.rows == 0 and old.rows != 0,
            )
        )
    return OutputResult(
        dataset=output.dataset,
        version_before=before.version,
        version=after.version if after is not before else None,
        partitions=tuple(parts),
        drift=drift,
    )
