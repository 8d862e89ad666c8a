"""Documents of checks and settings: `stale`, `doctor`, `config` and `serve`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from lineage_backfill.show.printed.common import Count, DatasetKeys, Keys, Moment, Name
from lineage_backfill.show.printed.plans import PlanTotals


class OlderThan(TypedDict):
    """An input that changed after the keys that read it were written."""

    dataset: Name
    partitions: Keys
    changed_at: Moment
    version: int | None


class StaleJob(TypedDict):
    """The keys of a job that are missing, or older than their inputs."""

    job: Name
    missing: Keys
    older: list[OlderThan]
    running: Keys
    waiting: NotRequired[Keys]
    unjudged: Keys
    why: list[str]
    missing_inputs: NotRequired[
        Annotated[
            list[DatasetKeys],
            "Inputs of stale keys that no job writes, and that are missing.",
        ]
    ]


class SilentDataset(TypedDict):
    """A dataset whose changes are unknown, and why."""

    dataset: Name
    why: str


class Stale(TypedDict):
    """Partitions missing or older than their inputs: what `stale --json` prints."""

    schema_version: Literal[1]
    kind: Literal["stale"]
    now: Moment
    jobs: list[StaleJob]
    silent: list[SilentDataset]
    stale: Count
    to_run: PlanTotals


class StatePartitions(TypedDict):
    """The partitions of a dataset in one state."""

    state: Literal["expired", "running", "missing", "stale", "unknown", "fresh"]
    partitions: Keys
    count: Count


class TableWrite(TypedDict):
    """A write to a table, with the partitions that no later one has written."""

    version: int | None
    at: Moment
    partitions: Keys


class Partitions(TypedDict):
    """The partitions of a dataset by state, as the pages show them."""

    schema_version: Literal[1]
    kind: Literal["partitions"]
    looked_at: Moment
    dataset: Name
    states: list[StatePartitions]
    older: Annotated[list[OlderThan], "Inputs that changed since, with stale partitions."]
    why: Annotated[list[str], "Why partitions are unknown."]
    writes: Annotated[list[TableWrite], "The newest ones first; empty if unknown."]


class Check(TypedDict):
    """A check, and how to fix what it found."""

    name: str
    detail: str
    fix: str
    ok: bool
    checked: Annotated[bool, "False if there was nothing to look into."]


class Doctor(TypedDict):
    """Whether everything that a backfill needs is there: what `doctor --json` prints."""

    schema_version: Literal[1]
    kind: Literal["doctor"]
    checks: list[Check]


class Setting(TypedDict):
    """A setting and where its value comes from."""

    name: str
    value: str
    origin: str


class Config(TypedDict):
    """The settings of a project, secrets masked: what `config show --json` prints."""

    schema_version: Literal[1]
    kind: Literal["config"]
    file: str | None
    settings: list[Setting]


class Finding(TypedDict):
    """A finding about a project file."""

    level: Literal["error", "warning", "note"]
    kind: str
    place: str
    text: str
    hint: str


class InForce(TypedDict):
    """One attribute in force, and the place that states it."""

    edge: Annotated[str, "The input or output that it is of; empty for the job or dataset."]
    name: str
    value: object
    place: str


class ConfigInForce(TypedDict):
    """What is in force of a job or dataset: what `config show NAME --json` prints."""

    schema_version: Literal[1]
    kind: Literal["config_in_force"]
    of: Literal["dataset", "job"]
    namespace: str
    name: str
    attributes: list[InForce]


class ConfigCheck(TypedDict):
    """A project file compared with the lineage: what `config check --json` prints."""

    schema_version: Literal[1]
    kind: Literal["config_check"]
    file: str | None
    ok: bool
    findings: list[Finding]


class Serve(TypedDict):
    """Where pages are served: what `serve --json` prints."""

    schema_version: Literal[1]
    kind: Literal["serve"]
    url: str
    login: Annotated[str | None, "Logs one browser in, so that it can act."]
