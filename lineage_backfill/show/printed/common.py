"""Parts that several printed documents share."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, TypedDict

from lineage_backfill.typed import Bounds, Form

Count: TypeAlias = Annotated[int, Bounds(0)]
OneOrMore: TypeAlias = Annotated[int, Bounds(1)]
Hash: TypeAlias = Annotated[str, Form(str, {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"})]
Moment: TypeAlias = Annotated[
    str, Form(str, {"type": "string", "format": "date-time", "pattern": "Z$"})
]
Keys: TypeAlias = Annotated[
    list[str | dict[str, list[str]]],
    "Keys and A..B ranges (both ends included), sorted, in maximal ranges; boxes"
    ' for product keys; ["*"] for unpartitioned data.',
]
RunState: TypeAlias = Literal[
    "pending", "submitted", "running", "succeeded", "skipped", "failed", "blocked", "cancelled"
]
Origin: TypeAlias = Annotated[
    Literal["created", "re-run", "adopted"] | None,
    "Who started what runs in the engine: this backfill (created), this backfill"
    " again (re-run), or someone else (adopted). Null if unknown.",
]
EngineRun: TypeAlias = Annotated[
    str | None,
    "Its name in the engine, such as DAG/RUN in Airflow; null if unknown.",
]


Instant: TypeAlias = Annotated[str, Form(str, {"type": "string", "format": "date-time"})]


class Name(TypedDict):
    """A job or a dataset."""

    namespace: str
    name: str


class JobKeys(TypedDict):
    """Keys of a job."""

    job: Name
    partitions: Keys
    count: OneOrMore


class DatasetKeys(TypedDict):
    """Partitions of a dataset."""

    dataset: Name
    partitions: Keys


class Part(TypedDict):
    """Partitions of a dataset that a run reads or writes; `*` is all of it."""

    dataset: Name
    partitions: Keys | Literal["*"]


class LineageOrigin(TypedDict):
    """The lineage that a document rests on; `taken_at` is null if it was read just now."""

    source: str
    hash: Hash
    taken_at: Instant | None
