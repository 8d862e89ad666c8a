"""The one tree of errors: each carries its facts, a code, an exit code and what to do next.

The docstrings are the documentation: `docs/errors.md` is made of them.
"""

from __future__ import annotations

from copy import copy
from typing import Self


def with_hint(message: str, hint: str) -> str:
    """Return a message and its hint as two sentences.

    >>> with_hint("the table is locked", "Retry the run."), with_hint("the table is locked", "")
    ('the table is locked. Retry the run.', 'the table is locked')
    """
    return f"{message.rstrip('.')}. {hint}" if hint else message


class BackfillError(Exception):
    """A bug in lineage-backfill, or an error without a code of its own.

    Run the command again with --debug, and report its output with your command.

    `code` is stable and unique to the class, `exit_code` is that of the command line, `hint` is one
    sentence that says what to do next, `lines` are the lines to add, word for word.
    """

    code = "LB-001"
    exit_code = 1
    transient = False  # whether a retry of the same attempt may succeed

    def __init__(self, message: str, *, hint: str = "", lines: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.lines = lines

    def __str__(self) -> str:
        return self.message

    def within(self, place: str) -> Self:
        """Return this error with a message that begins with where it is."""
        made = copy(self)
        made.message = f"{place}{self.message}"
        made.args = (made.message, *self.args[1:])
        return made

    @property
    def full_text(self) -> str:
        """The message with the hint."""
        return with_hint(self.message, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Pickles completely, for any arguments of a subclass.
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

    Names are matched completely with the lineage and the project file: `lineage-backfill lineage
    show` lists them, `lineage-backfill history` lists the backfills. Similar names are
    suggested. If the name is right, check where the lineage is read from: `lineage-backfill
    config show --sources`.
    """

    code = "LB-101"


class AmbiguousNameError(UsageError):
    """A name of more than one dataset or job.

    Write it as `namespace:name`, or pass `--namespace`. To set the namespace of bare names in this
    project, set `namespace` in `[project]`.
    """

    code = "LB-102"


class KeyFormatError(UsageError):
    """A partition key that does not fit its calendar.

    Each calendar has one form of key: `2024-06-15T14` for an hour, `2024-06-15` for a day,
    `2024-W24` for a week, the first day for a month, quarter or year. The hint shows the expected
    form.
    """

    code = "LB-110"


class AmbiguousKeyError(KeyFormatError):
    """A local time that occurs twice; the message shows both readings.

    When clocks are set back, an hour is repeated. Add its UTC offset, as in `2024-11-03T01-0400`.
    """

    code = "LB-111"


class MissingKeyError(UsageError):
    """A partition key in the right form that does not exist in its calendar.

    It is before `start`, after `end`, in the future, in an hour that the clocks skip, or not among
    the keys of a static dimension. Correct the key, or the calendar in the project file.
    """

    code = "LB-112"


class RangeError(UsageError):
    """A range whose end lies before its start.

    Both ends of a range are included. Swap them.
    """

    code = "LB-113"


class ZoneError(UsageError):
    """A time zone that is not in the IANA database.

    Write it like `Europe/Berlin` or `UTC`.
    """

    code = "LB-114"


class CronError(UsageError):
    """A cron expression that cannot be read.

    Five fields are those of cron: minute, hour, day of month, month, day of week; Sunday is 0.
    Six or seven are those of Quartz: seconds (0) first, a year (*) last, Sunday is 1, and `?` in
    the day field that does not matter: `0 0 6 ? * 2-6`. `@daily` and the like are supported. An
    expression that Quartz refuses, or that other readers interpret differently, is refused; weekday
    names such as `MON-FRI` are unambiguous.
    """

    code = "LB-115"


class DeclarationError(UsageError):
    """Declarations that contradict themselves, each other or the lineage.

    The message names the table of the project file, or the facet sent with the lineage. `lineage-
    backfill config check` lists all of them.
    """

    code = "LB-120"


class ConfigError(UsageError):
    """A project file that cannot be read or has unknown settings.

    The message names file, table and key. `lineage-backfill config show --sources` shows which
    file, variable or flag sets each value.
    """

    code = "LB-121"


class SpecError(UsageError):
    """A run spec that does not fit its schema.

    The message names the member. lineage-backfill writes run specs: install the same version where
    the job runs.
    """

    code = "LB-123"


class AddressError(UsageError):
    """An address that cannot be listened on: in use, or not of this machine.

    Choose another port with `--port`; `--port 0` chooses any free one. `--host` sets an address of
    this machine; by default, only this machine can connect.
    """

    code = "LB-130"


class LineageError(BackfillError):
    """Lineage that cannot be read in full; nothing is planned from a part.

    A plan from partial lineage would silently leave tables wrong. Fix the source, or leave out the
    damaged part by name (an event file, say). `lineage-backfill doctor` checks the source.
    """

    code = "LB-200"


class NoLineageError(LineageError):
    """Nothing is where the lineage is said to be: no file, or no events.

    Correct `--events`, `--snapshot` or `[lineage]`. Jobs may not have sent lineage yet.
    """

    code = "LB-203"
    exit_code = 64


class ServiceUnreachableError(LineageError):
    """A lineage service, run store or engine that does not answer.

    Nothing was changed. Check the address and that the service is up; then continue a backfill
    with `lineage-backfill resume`.
    """

    code = "LB-201"
    exit_code = 7


class TokenExpiredError(ServiceUnreachableError):
    """The token of an engine has expired, or is not valid.

    Nothing is lost. Renew the token, then continue the backfill with `lineage-backfill resume`.
    """

    code = "LB-204"


class HTTPStatusError(LineageError):
    """A lineage service that answers with an error.

    401 and 403: the service wants a key or a header, `api_key` or `headers` in `[lineage]`; the
    exit code is 4 then. 404: the address is wrong. 5xx, after retries: the service has
    failed.

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
    """The log of a table does not show which of its partitions changed.

    An incomplete list of changes would silently leave tables wrong. Only Delta tables have such a
    log; it is cleaned up after some time (`delta.logRetentionDuration`). Name the partitions
    instead, with --from and --to or --partitions.
    """

    code = "LB-210"


class StalePlanError(BackfillError):
    """A plan whose lineage or declarations have changed since it was made.

    Make it again with the same arguments and `--out`, compare both files with `diff`, and run the
    new one.
    """

    code = "LB-300"
    exit_code = 5


class ConflictError(BackfillError):
    """Another backfill or a live run holds partitions that this one needs.

    Wait for the one that is named, or stop it with `lineage-backfill cancel`. Two backfills never
    write one partition at the same time.
    """

    code = "LB-301"
    exit_code = 6


class DoneBeforeError(ConflictError):
    """A request with this `Idempotency-Key` was done, is being done, or was refused.

    The audit of the pages shows it. Send another key to ask for it once more.
    """

    code = "LB-303"

    def __init__(self, message: str, *, backfill: str = "") -> None:
        super().__init__(message, hint="The audit shows it; another key asks for it once more.")
        self.backfill = backfill  # what it came to; empty if that is not known yet


class OtherRequestError(UsageError):
    """An `Idempotency-Key` of another request.

    A key is that of one request; sent again, it has the same body. Send another key.
    """

    code = "LB-304"


class ForbiddenError(BackfillError):
    """The table `[access]` of the project file does not let you do this.

    The message names the role that is missing, and for what. A user who may edit the project file
    can add a `[[access.grant]]`. An address that others can reach is served with `[access]` only.
    """

    code = "LB-305"
    exit_code = 9


class GuardRailError(BackfillError):
    """A guard rail refused; the hint names its override.

    Check what it protects before you override it. Each override is a separate option, stored with
    the plan.
    """

    code = "LB-302"
    exit_code = 9


class EngineError(BackfillError):
    """A job could not be handed to its engine.

    The message contains the engine's answer. Fix the cause, then `lineage-backfill retry` re-runs
    what failed and nothing else.
    """

    code = "LB-400"


class UnfitRunError(EngineError):
    """A run that its engine cannot run as it is declared.

    The message names what its engine has otherwise: no such DAG or task, a paused DAG, keys of
    another form. Correct the job or the engine, and run the command again.
    """

    code = "LB-403"
    exit_code = 64


class EngineRefusalError(EngineError):
    """The service of an engine refused a request.

    401 and 403: the account of the engine is wrong, or lacks rights; the exit code is 4 then. 404
    and 409: the object does not exist, or exists already. The message contains the service's
    answer.

    `status` is the status code of the answer.
    """

    code = "LB-402"
    exit_code = 64

    def __init__(self, message: str, status: int, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        if status in (401, 403):
            self.exit_code = 4


class EnvironmentMissingError(BackfillError):
    """Java, Spark, the Delta jars or another part of the environment is missing.

    `lineage-backfill doctor` lists what is missing and how to install it.
    """

    code = "LB-401"


class MissingInputError(BackfillError):
    """A run needs partitions that were never written, so it was not submitted.

    Write them first; where none is as good as no rows, declare `on_missing = "read"` in the
    `[[job.reads]]` of that input. Then `retry` the backfill.
    """

    code = "LB-404"


class StoreError(BackfillError):
    """The run store refused a state change or cannot be opened.

    Check its address in `[store]`, that its folder is writable, and that no newer version of
    lineage-backfill has upgraded it. Earlier records are kept.
    """

    code = "LB-500"


class StoreUnreachableError(StoreError):
    """The database of the run store does not answer.

    Records are kept, and running jobs continue. Check that the database is up and its address in
    `[store]` is right, then `lineage-backfill resume`.
    """

    code = "LB-501"
    exit_code = 7
