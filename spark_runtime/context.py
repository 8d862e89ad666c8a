"""What a job may ask about the run it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_runtime.spec import RunKey, RunSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_runtime.reader import Inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The run that a job function is called for.

    A job gets it through a parameter annotated `RunContext`.
    """

    spark: SparkSession
    spec: RunSpec
    inputs: Inputs

    @property
    def keys(self) -> tuple[RunKey, ...]:
        """The keys of the run, each with its UTC interval where it has one."""
        return self.spec.keys

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The job's parameters, as the run spec gives them."""
        return self.spec.parameters

    def read(self, dataset: str) -> DataFrame | None:
        """Return the partitions that the run needs of an input, by bare or full name.

        None stands for a table that does not exist and is not needed. Raises EntrypointError for
        a dataset that is no input of the run.
        """
        return self.inputs.read(dataset)
