"""The one tree of errors: each carries its facts, a code, an exit code and what to do next.

The docstrings are the documentation: `lineage-backfill errors CODE` prints one, and
`docs/errors.md` is made of them.
"""

from __future__ import annotations


class BackfillError(Exception):
    """A fault of lineage-backfill itself, or something that none of the other codes is for.

    Run the command again with --debug, and report what it prints, with the command that you typed.

    `code` is stable and the class's own, `exit_code` is what the command line ends with, `hint` one
    sentence that says what to do next, `lines` is what it says to write, word for word.
    """

    code = "LB-001"
    exit_code = 1
    transient = False  # whether the same attempt may succeed when it is made again

    def __init__(self, message: str, *, hint: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.lines = lines

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Kept whole across process borders, whatever arguments a subclass takes.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(
    cls: type[BackfillError], args: tuple[object, ...], state: dict[str, object]
) -> BackfillError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(BackfillError):
    """The request, the project file or a declaration is wrong; nothing was done.

    The message says what was given and what was expected. Correct it and run the command again;
    `--help` lists what a command takes.
    """

    code = "LB-100"
    exit_code = 64


class UnknownNameError(UsageError):
    """A dataset, job or backfill that does not exist.

    Names are matched against the lineage and the project file, whole: `lineage-backfill lineage
    show` lists them, `lineage-backfill history` lists the backfills. A near miss is offered where
    there is one. If the name is right, look where the lineage is read from: `lineage-backfill
    config show --sources`.
    """

    code = "LB-101"


class PrunedError(UnknownNameError):
    """A backfill that `prune` has removed: its runs, its attempts and its files are gone.

    It can be neither shown nor undone. The data that it wrote stays; to repair that again, `run`
    the same request.
    """

    code = "LB-103"


class AmbiguousNameError(UsageError):
    """A name that more than one dataset or job bears.

    Write it as `namespace:name`, or say `--namespace`. To give bare names a meaning in this
    project, set `namespace` in `[project]`.
    """

    code = "LB-102"


class KeyFormatError(UsageError):
    """A partition key that does not fit its calendar.

    Each calendar has one form of key: `2024-06-15T14` for an hour, `2024-06-15` for a day,
    `2024-W24` for a week, the first day for a month, quarter or year. The hint shows the form that
    is expected here.
    """

    code = "LB-110"


class AmbiguousKeyError(KeyFormatError):
    """A local time that happens twice; the message offers both readings.

    When clocks are set back, an hour is repeated. Say which one is meant by its offset from UTC, as
    in `2024-11-03T01-0400`.
    """

    code = "LB-111"


class MissingKeyError(UsageError):
    """A partition key that fits its calendar and yet does not exist in it.

    It lies before `start`, after `end`, in the future, in an hour that the clocks skip, or is no
    key of a static dimension. Correct the key, or the calendar in the project file.
    """

    code = "LB-112"


class RangeError(UsageError):
    """A range whose end lies before its start.

    Both ends of a range are included. Exchange them.
    """

    code = "LB-113"


class ZoneError(UsageError):
    """A time zone that the IANA database does not hold.

    Write it as in `Europe/Berlin` or `UTC`.
    """

    code = "LB-114"


class CronError(UsageError):
    """A cron expression that cannot be read.

    Five fields are those of cron: minute, hour, day of month, month, day of week; Sunday is 0.
    Six or seven are those of Quartz: seconds (0) first, a year (*) last, Sunday is 1, and `?` in
    the day field that does not matter: `0 0 6 ? * 2-6`. `@daily` and its kin are read too. An
    expression that Quartz refuses, or that other readers take differently, is refused; weekdays
    written by name, as in `MON-FRI`, mean the same to all.
    """

    code = "LB-115"


class DeclarationError(UsageError):
    """Declarations that contradict themselves, each other or the lineage.

    The message names the table of the project file, or the facet sent with the lineage. `lineage-
    backfill config check` finds all of them at once.
    """

    code = "LB-120"


class UndeclaredPartitionsError(DeclarationError):
    """Datasets whose names look like the partitions of one, which is not declared.

    Where a job writes `orders_2021_06_04` today and `orders_2021_06_05` tomorrow, its lineage shows
    the names of its last run alone: what reads an older one would be missing from the plan. Add the
    lines that the message proposes to the project file: its `pattern` makes them one dataset.
    If they are datasets of their own, declare each by its exact name, or all with a glob and
    `grain = "none"`.
    """

    code = "LB-122"


class ConfigError(UsageError):
    """A project file that cannot be read or has unknown settings.

    The message names file, table and key. `lineage-backfill config show --sources` says which value
    comes from which file, variable or flag.
    """

    code = "LB-121"


class SpecError(UsageError):
    """A run spec that does not fit its schema.

    The message names the place. Run specs are written by the tool: install the same release of
    lineage-backfill where the job runs.
    """

    code = "LB-123"


class AddressError(UsageError):
    """An address at which pages cannot be served: it is taken, or none of this machine.

    Take another port with `--port`; `--port 0` takes any that is free. `--host` names an address of
    this machine; without it, pages are served to this machine alone.
    """

    code = "LB-130"


class LineageError(BackfillError):
    """Lineage that cannot be read in full; nothing is planned from a part.

    A plan from half of the lineage would leave tables silently wrong. Fix the source, or
    leave the part out by name (an event file that is damaged, say). `lineage-backfill doctor` tries
    the source.
    """

    code = "LB-200"


class ServiceUnreachableError(LineageError):
    """A lineage service, run store or engine that does not answer.

    Nothing was changed. See that the address is right and the service is up; a running backfill
    goes on with `lineage-backfill resume` once it is.
    """

    code = "LB-201"
    exit_code = 7


class HTTPStatusError(LineageError):
    """A lineage service that answers, and not with what was asked for.

    401 and 403: the service wants a key or a header, `api_key` or `headers` in `[lineage]`; the
    exit code is 4 then. 404: the address leads elsewhere. 5xx, after retries: the service itself
    is in trouble.

    `status` is the status code of the answer.
    """

    code = "LB-202"
    exit_code = 7

    def __init__(self, message: str, status: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        if status in (401, 403):
            self.exit_code = 4


class TableLogError(BackfillError):
    """The log of a table does not tell which of its partitions changed, or no longer can.

    A part of the changes would leave tables silently wrong. Only Delta tables keep such a
    log; it is cleaned up after a while (`delta.logRetentionDuration`). Name the partitions
    instead, with --from and --to or --partitions.
    """

    code = "LB-210"


class StalePlanError(BackfillError):
    """A plan whose lineage or declarations have moved since it was made.

    Make it again with the same arguments and `--out`, look at what differs with `lineage-backfill
    plan diff OLD NEW`, and run the new one.
    """

    code = "LB-300"
    exit_code = 5


class ConflictError(BackfillError):
    """Another backfill or a live run holds partitions that this one needs.

    Wait for the one that is named, or give it up with `lineage-backfill cancel`. Two backfills
    never write one partition at once.
    """

    code = "LB-301"
    exit_code = 6


class GuardRailError(BackfillError):
    """A guard rail refused; the hint names its override.

    Look at what it protects before you override it: each override is an option of its own, and is
    kept with the plan.
    """

    code = "LB-302"
    exit_code = 9


class EngineError(BackfillError):
    """A job could not be handed to its engine.

    The message holds what the engine said. Once its cause is mended, `lineage-backfill retry` runs
    what failed and nothing else.
    """

    code = "LB-400"


class EngineRefusalError(EngineError):
    """The service of an engine answers, and does not do what it was asked for.

    401 and 403: the account of the engine is wrong, or lacks rights. 404 and 409: what is asked
    for is not there, or is there already. The message holds what the service said.

    `status` is the status code of the answer.
    """

    code = "LB-402"

    def __init__(self, message: str, status: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


class EnvironmentMissingError(BackfillError):
    """Java, Spark, the Delta jars or another part of the environment is missing.

    `lineage-backfill doctor` says what is there, what is not, and how to get it.
    """

    code = "LB-401"


class StoreError(BackfillError):
    """The run store refused a move or cannot be opened.

    See that its address in `[store]` is right, that its folder can be written, and that no newer
    version of lineage-backfill has upgraded it. What was recorded before is kept.
    """

    code = "LB-500"


class StoreUnreachableError(StoreError):
    """The database of the run store does not answer.

    What was recorded is kept, and jobs that run go on. See that the database is up and that its
    address in `[store]` is right, then `lineage-backfill resume`.
    """

    code = "LB-501"
    exit_code = 7
