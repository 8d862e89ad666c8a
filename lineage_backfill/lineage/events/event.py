"""The members of an OpenLineage event that are read; parsers may skip all others."""

from __future__ import annotations

from typing import Any, TypedDict

# Only objects have types here: other values are checked and reported by their readers.


class _OfBoth(TypedDict, total=False):
    ownership: Any
    tags: Any
    lineageBackfill_partitioning: Any


class JobFacets(_OfBoth, total=False):
    """The facets of a job."""

    jobType: Any
    sql: Any
    dbt_node: Any


class _Named(TypedDict, total=False):
    namespace: Any
    name: Any


class _Job(_Named, total=False):
    facets: JobFacets | None


class _NominalTime(TypedDict, total=False):
    nominalStartTime: Any
    nominalEndTime: Any


class RunFacets(TypedDict, total=False):
    """The facets of a run."""

    nominalTime: _NominalTime | None
    airflow: Any
    airflowDagRun: Any
    airflow_runArgs: Any
    errorMessage: Any
    lineageBackfill_run: Any
    parent: Any
    parentRun: Any
    processing_engine: Any
    spark_version: Any


class _Run(TypedDict, total=False):
    runId: Any
    facets: RunFacets | None


class _Field(TypedDict, total=False):
    name: Any


class _Schema(TypedDict, total=False):
    fields: list[_Field] | None
    _deleted: Any


class DatasetFacets(_OfBoth, total=False):
    """The facets of a dataset."""

    schema: _Schema | None
    symlinks: Any
    lifecycleStateChange: Any
    columnLineage: Any


class InputFacets(TypedDict, total=False):
    """The facets of a dataset as one run reads it."""

    subset: Any


class OutputFacets(TypedDict, total=False):
    """The facets of a dataset as one run writes it."""

    subset: Any


class _Dataset(_Named, total=False):
    facets: DatasetFacets | None
    inputFacets: InputFacets | None
    outputFacets: OutputFacets | None


class Event(TypedDict, total=False):
    """A RunEvent, JobEvent or DatasetEvent."""

    eventType: Any
    eventTime: Any
    run: _Run | None
    job: _Job | None
    dataset: _Dataset | None
    inputs: list[_Dataset] | None
    outputs: list[_Dataset] | None
