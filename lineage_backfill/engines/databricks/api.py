"""Client of a Databricks workspace: the vendor's SDK, with errors that say what to do."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TypeVar

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.credentials_provider import CredentialsStrategy
from databricks.sdk.errors import (
    DeadlineExceeded,
    InternalError,
    NotFound,
    PermissionDenied,
    TemporarilyUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.jobs import BaseRun, Job, QueueSettings, Run, SubmitTask

from lineage_backfill.errors import ConfigError, EngineRefusalError, ServiceUnreachableError

_T = TypeVar("_T")
_BUSY = (TooManyRequests, InternalError, TemporarilyUnavailable, DeadlineExceeded)
#: A refusal because of the token, not of what the account may do.
_STALE = re.compile(r"token|credential|expired", re.IGNORECASE)
_REPEATED = 20  # seconds in which the SDK repeats a request to a busy workspace
#: Runs of a job with as many as its `max_concurrent_runs` wait for their turn.
_QUEUE = QueueSettings(enabled=True)


class Workspace:
    """Client of one workspace; without `host`, `profile` and `token`, the SDK finds its own.

    `token` is asked again once its token has expired. Raises EngineRefusalError, and
    ServiceUnreachableError if there is no answer or the token has expired.
    """

    def __init__(
        self,
        *,
        host: str = "",
        profile: str = "",
        token: Callable[[], str] | None = None,
        timeout: float = 30,
    ) -> None:
        self._host, self._profile = host or None, profile or None
        self._token = _Token(token) if token else None
        self._timeout = timeout
        self._made: WorkspaceClient | None = None
        self._making = Lock()
        #: Whether the last request failed because the token has expired.
        self.has_expired = False

    @property
    def _client(self) -> WorkspaceClient:
        with self._making:
            if self._made is None:
                config = Config(
                    host=self._host,
                    profile=self._profile,
                    credentials_strategy=self._token,
                    http_timeout_seconds=self._timeout,
                    retry_timeout_seconds=_REPEATED,
                    disable_experimental_files_api_client=True,  # all files are small
                )
                self._made = WorkspaceClient(config=config)
            return self._made

    def user(self) -> str:
        """Return the name of the account."""
        return self._ask(lambda to: to.current_user.me()).user_name or ""

    def job(self, job_id: int) -> Job | None:
        """Return a job with its parameters and tasks, None if there is none."""
        return self._find(lambda to: to.jobs.get(job_id))

    def jobs(self, name: str) -> Sequence[int]:
        """Return the ids of the jobs with this name."""
        found = self._ask(lambda to: list(to.jobs.list(name=name)))
        # The workspace ignores case.
        return [one.job_id for one in found if one.job_id and _name(one.settings) == name]

    def run(self, run_id: int) -> Run | None:
        """Return a run with its tasks, None if it was deleted."""
        return self._find(lambda to: to.jobs.get_run(run_id))

    def active_runs(self, job_id: int) -> Sequence[BaseRun]:
        """Return the queued and running runs of a job."""
        return self._ask(lambda to: list(to.jobs.list_runs(job_id=job_id, active_only=True)))

    def run_now(
        self, job_id: int, token: str, parameters: Mapping[str, str], only: Sequence[str]
    ) -> int:
        """Start a job and return the id of its run; the same token returns the same run."""
        return self._started(
            lambda to: (
                to.jobs.run_now(
                    job_id,
                    idempotency_token=token,
                    job_parameters=dict(parameters) or None,
                    only=list(only) or None,
                    queue=_QUEUE,
                ).response
            )
        )

    def submit(self, name: str, token: str, task: SubmitTask) -> int:
        """Start a task without a job and return the id of its run, as `run_now`."""
        return self._started(
            lambda to: (
                to.jobs.submit(
                    run_name=name, tasks=[task], idempotency_token=token, queue=_QUEUE
                ).response
            )
        )

    def cancel(self, run_id: int) -> None:
        """Ask a run to end."""
        self._find(lambda to: to.jobs.cancel_run(run_id).response)

    def output(self, run_id: int) -> tuple[list[str], str]:
        """Return the lines that a task run printed, and its error."""
        found = self._find(lambda to: to.jobs.get_run_output(run_id))
        if found is None:
            return [], ""
        notebook = found.notebook_output.result if found.notebook_output else None
        parts = (found.logs, notebook, found.error_trace, found.error)
        return [line for part in parts if part for line in part.splitlines()], found.error or ""

    def prepare(self, folder: str) -> None:
        """Make a folder of a volume; may be repeated."""
        self._ask(lambda to: to.files.create_directory(folder))

    def upload(self, path: str, content: bytes) -> None:
        """Write a file in a volume."""
        self._ask(lambda to: to.files.upload(path, io.BytesIO(content), overwrite=True))

    def download(self, path: str) -> bytes | None:
        """Return a file of a volume, None if there is none."""

        def read(to: WorkspaceClient) -> bytes:
            contents = to.files.download(path).contents
            return contents.read() if contents is not None else b""

        return self._find(read)

    def _started(self, call: Callable[[WorkspaceClient], object]) -> int:
        return int(getattr(self._ask(call), "run_id"))  # noqa: B009 - two classes of answers

    def _find(self, call: Callable[[WorkspaceClient], _T]) -> _T | None:
        try:
            return self._ask(call)
        except EngineRefusalError as error:
            if error.status == 404:
                return None
            raise

    def _ask(self, call: Callable[[WorkspaceClient], _T]) -> _T:
        self.has_expired = False
        try:
            return call(self._client)
        except (Unauthenticated, PermissionDenied) as error:
            if isinstance(error, Unauthenticated) or _STALE.search(str(error)):
                raise self._expired(error) from error
            raise EngineRefusalError(
                f"Databricks refuses the account: {error}",
                403,
                hint="Grant it what docs/databricks.md lists: CAN MANAGE RUN on the jobs, READ and"
                " WRITE VOLUME on `volume`.",
            ) from error
        except NotFound as error:
            raise EngineRefusalError(f"Databricks: {error}", 404) from error
        except DatabricksError as error:
            if isinstance(error, _BUSY) or type(error) is DatabricksError:  # 502, or of a proxy
                raise _unreachable(error) from error
            raise EngineRefusalError(
                f"Databricks refuses the request: {error}",
                400,
                hint="Check the job in Databricks, and the settings of this engine.",
            ) from error
        except (requests.RequestException, TimeoutError) as error:
            raise _unreachable(error) from error
        except ValueError as error:  # how the SDK refuses settings
            raise ConfigError(
                f"no login for Databricks: {_first_line(error)}",
                hint="Give the engine `profile`, or `host` and `token`.",
            ) from error

    def _expired(self, error: Exception) -> ServiceUnreachableError:
        self.has_expired = True
        if self._token is not None:
            self._token.renew()
        return ServiceUnreachableError(
            f"the token for Databricks has expired, or is not valid: {error}",
            hint="Renew it, then `resume`: nothing is lost. A `token` may be read again from a file"
            ' ("file:PATH") or a command; a `profile` with OAuth renews its own.',
        )


class _Token(CredentialsStrategy):
    """Logs in with a token that may change."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self._value = ""

    def auth_type(self) -> str:
        return "pat"

    def renew(self) -> None:
        self._value = ""

    def __call__(self, cfg: Config) -> Callable[[], dict[str, str]]:
        return self._headers

    def _headers(self) -> dict[str, str]:
        self._value = self._value or self._read()
        return {"Authorization": f"Bearer {self._value}"}


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the configuration that the SDK appends."""
    return str(error).partition("\n")[0].partition(". Config:")[0]


def _unreachable(error: Exception) -> ServiceUnreachableError:
    cause = error.__cause__ if isinstance(error, TimeoutError) and error.__cause__ else error
    return ServiceUnreachableError(
        f"Databricks does not answer: {cause}",
        hint="Check `host` of this engine, the network, and the workspace's status page.",
    )


def _name(settings: object) -> str:
    return str(getattr(settings, "name", ""))
