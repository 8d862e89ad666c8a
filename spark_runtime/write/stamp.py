"""Adds the column `backfill_key` to the rows of a run with one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lineage_backfill.runspec.values import KEY_COLUMN, OutputSpec
from spark_runtime.errors import UnstampedRowsError

if TYPE_CHECKING:
    from spark_runtime.tables.state import TableState


def stamped(frame: DataFrame, output: OutputSpec, state: TableState | None) -> DataFrame:
    """Return the rows with their key in the column `backfill_key`, if the output has it.

    Rows that have the column are unchanged. Raises UnstampedRowsError if the run writes several
    keys, as only the job knows the key of each row. `state` is that of the table.
    """
    name = next((column for column in output.columns if column.lower() == KEY_COLUMN), None)
    if name is None or KEY_COLUMN in (column.lower() for column in frame.columns):
        return frame
    keys = {partition.values.get(name, "*") for partition in output.scope}
    is_open = any(name not in partition.values for partition in output.scope)
    if len(keys) > 1 or is_open:
        raise UnstampedRowsError(
            f"the run writes {'any key' if is_open else f'{len(keys)} keys'} of {output.dataset}, "
            f"and its rows do not have the key in {name} which is whose",
            hint=f'Add the column {name} in the job, or let it run key by key: batch = "key".',
        )
    types = {column.name.lower(): column.type for column in state.columns} if state else {}
    return frame.withColumn(name, F.lit(keys.pop()).cast(types.get(KEY_COLUMN, "string")))
