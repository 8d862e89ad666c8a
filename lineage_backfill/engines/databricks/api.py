"""Client of a Databricks workspace: the vendor's SDK, with errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
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

from lineage_backfill.errors import (
    ConfigError,
    EngineRefusalError,
    ServiceUnreachableError,
    TokenExpiredError,
)

_T = TypeVar("_T")
_BUSY = (TooManyRequests, InternalError, TemporarilyUnavailable, DeadlineExceeded)
#: A refusal because of the token, not of what the account may do.
_STALE = re.compile(r"token|credential|expired", re.IGNORECASE)
_REPEATED = 20  # seconds in which the SDK repeats a request to a busy workspace


class Workspace:
    """Client of one workspace; without `host`, `profile` and `token`, the SDK finds its own.

    `token` is asked again once its token has expired. Raises EngineRefusalError,
    ServiceUnreachableError if there is no answer, and TokenExpiredError.
    """

    def __init__(
        self,
        *,
        host: str = "",
        profile: str = "",
        token: Callable[[], str] | None = None,
        timeout: float = 30,
    ) -> None:
        self._host, self._profile, self._token = host or None, profile or None, token
        self._timeout = timeout
        self._made: WorkspaceClient | None = None
        self._making = Lock()

    @property
    def _client(self) -> WorkspaceClient:
        with self._making:
            if self._made is None:
                config = Config(
                    host=self._host,
                    profile=self._profile,
                    token=self._token() if self._token else None,
                    auth_type="pat" if self._token else None,  # whatever the environment has
                    http_timeout_seconds=self._timeout,
                    retry_timeout_seconds=_REPEATED,
                    disable_experimental_files_api_client=True,  # all files are small
                )
                self._made = WorkspaceClient(config=config)
            return self._made

    def find(self, call: Callable[[WorkspaceClient], _T]) -> _T | None:
        """Like `ask`, and None for what does not exist."""
        try:
            return self.ask(call)
        except EngineRefusalError as error:
            if error.status == 404:
                return None
            raise

    def ask(self, call: Callable[[WorkspaceClient], _T]) -> _T:
        """Return what a call of the SDK answers."""
        try:
            return call(self._client)
        except (Unauthenticated, PermissionDenied) as error:
            message = _first_line(error)
            if isinstance(error, Unauthenticated) or _STALE.search(message):
                raise self._expired(message) from error
            raise EngineRefusalError(
                f"Databricks refuses the account: {message}",
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

    def _expired(self, message: str) -> TokenExpiredError:
        self._made = None
        return TokenExpiredError(
            f"the token for Databricks has expired, or is not valid: {message}",
            hint="Renew it, then `resume`: nothing is lost. A `token` may be read again from a file"
            ' ("file:PATH") or a command; a `profile` with OAuth renews its own.',
        )


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the configuration that the SDK appends."""
    return str(error).partition("\n")[0].partition(". Config:")[0]


def _unreachable(error: Exception) -> ServiceUnreachableError:
    cause = error.__cause__ if isinstance(error, TimeoutError) and error.__cause__ else error
    return ServiceUnreachableError(
        f"Databricks does not answer: {cause}",
        hint="Check `host` of this engine, the network, and the workspace's status page.",
    )
