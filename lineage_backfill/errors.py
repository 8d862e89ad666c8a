"""The one tree of errors: each carries its facts, an exit code and what to do next."""

from __future__ import annotations


class BackfillError(Exception):
    """Anything that lineage-backfill itself refuses or fails at.

    `exit_code` is what the command line ends with, `hint` one sentence that says what to do next.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

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
    """The request, the project file or a declaration is wrong; nothing was done."""

    exit_code = 64


class UnknownNameError(UsageError):
    """A dataset, job or backfill that nobody knows."""


class AmbiguousNameError(UsageError):
    """A name that more than one dataset or job bears."""


class KeyFormatError(UsageError):
    """A partition key that does not fit its calendar."""


class AmbiguousKeyError(KeyFormatError):
    """A local time that happens twice; the message offers both readings."""


class MissingKeyError(UsageError):
    """A partition key that fits its calendar and yet does not exist in it."""


class RangeError(UsageError):
    """A range whose end lies before its start."""


class ZoneError(UsageError):
    """A time zone that the IANA database does not hold."""


class CronError(UsageError):
    """A cron expression that cannot be read."""


class DeclarationError(UsageError):
    """Declarations that contradict themselves, each other or the lineage."""


class ConfigError(UsageError):
    """A project file that cannot be read or has unknown settings."""


class LineageError(BackfillError):
    """Lineage that cannot be read in full; nothing is planned from a part."""

    exit_code = 1


class ServiceUnreachableError(LineageError):
    """A lineage service, run store or engine that does not answer."""

    exit_code = 7


class StalePlanError(BackfillError):
    """A plan whose lineage or declarations have moved since it was made."""

    exit_code = 5


class ConflictError(BackfillError):
    """Another backfill or a live run holds partitions that this one needs."""

    exit_code = 6


class GuardRailError(BackfillError):
    """A guard rail refused; the hint names its override."""

    exit_code = 9


class EngineError(BackfillError):
    """A job could not be handed to its engine."""


class EnvironmentMissingError(BackfillError):
    """Java, Spark, the Delta jars or another part of the environment is missing."""


class StoreError(BackfillError):
    """The run store refused a move or cannot be opened."""
