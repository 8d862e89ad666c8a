"""The one tree of errors inside a Spark job: each says what happened and what to do next."""

from __future__ import annotations

from lineage_backfill.errors import BackfillError, EnvironmentMissingError


class RuntimeFailure(BackfillError):
    """A failure or refusal of the runtime itself; its text includes the hint.

    `stands` is True if a wrong commit could not be reverted.
    """

    stands = False

    def __str__(self) -> str:
        return self.full_text


class NothingToRunError(RuntimeFailure):
    """A run whose keys are not complete yet; not a failure."""


class SparkMissingError(RuntimeFailure, EnvironmentMissingError):
    """PySpark or its Delta package is not installed."""


class JavaMissingError(RuntimeFailure, EnvironmentMissingError):
    """No Java is found, or one that this Spark cannot run on."""


class JarsMissingError(RuntimeFailure, EnvironmentMissingError):
    """The Delta jars are not where they are expected."""


class SessionError(RuntimeFailure, EnvironmentMissingError):
    """A session whose settings would let a write touch other partitions than its own."""


class EntrypointError(RuntimeFailure):
    """An entrypoint that cannot be imported, or does not fit the run spec."""


class InputMissingError(RuntimeFailure):
    """An input that was never written, or no longer has what the run needs."""


class InputChangedError(RuntimeFailure):
    """An input that changed after the run started, and whose old rows are gone."""

    transient = True


class TableError(RuntimeFailure):
    """A table whose kind or partitioning does not allow what the run spec asks for."""

    is_missing = False  # whether there is no table

    @classmethod
    def missing(cls, message: str, *, hint: str) -> TableError:
        """Return the error for a table that is not there."""
        error = cls(message, hint=hint)
        error.is_missing = True
        return error


class PartitionValueError(RuntimeFailure):
    """A partition value that does not fit the type of its column."""


class UnexpectedPartitionError(RuntimeFailure):
    """Rows outside the partitions of the run; nothing was written."""


class UnstampedRowsError(RuntimeFailure, ValueError):
    """Rows of several keys without a key column; nothing was written."""


class SchemaMismatchError(RuntimeFailure):
    """Rows whose columns or types are not those of the table; nothing was written."""


class EmptyPartitionError(RuntimeFailure):
    """A partition without rows where the run spec does not allow one; nothing was written."""


class AppendedBeforeError(RuntimeFailure):
    """Another run of the job has appended to the same keys; nothing was written."""


class CheckFailedError(RuntimeFailure):
    """A check given with the job failed; nothing was written."""


class ConstraintError(RuntimeFailure):
    """Rows that break a constraint of the table; nothing was written."""


class WriteConflictError(RuntimeFailure):
    """Another writer changed partitions of this run meanwhile; the message names the commit."""


class TableLockedError(WriteConflictError):
    """Another process held the table's lock for too long; the message names it."""

    transient = True


class StaleAttemptError(RuntimeFailure):
    """A later attempt of the same run has written already; this one must not."""


class VerificationError(RuntimeFailure):
    """A commit is not as planned; it was reverted, unless others had built on it."""


class UndoRefusedError(RuntimeFailure):
    """Partitions that cannot be restored without harm; nothing was changed."""


class EndpointError(RuntimeFailure):
    """A lineage endpoint that does not accept events now; they stay in the outbox."""

    transient = True


class Stopped(SystemExit):
    """Raised when a signal ends the process; its run is recorded as aborted."""

    transient = False

    def __str__(self) -> str:
        return f"stopped by signal {int(self.code or 0) - 128}"


def first_line(error: Exception) -> str:
    """Return what Spark says is wrong, without the plan that it adds."""
    return str(error).strip().splitlines()[0].rstrip(";")
