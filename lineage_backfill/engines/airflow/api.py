"""Client of Airflow 3's REST API v2: logs in, renews its token, and explains refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from urllib.parse import quote

from lineage_backfill.engines.seconds import check_seconds
from lineage_backfill.errors import (
    ConfigError,
    EngineRefusalError,
    ServiceUnreachableError,
    TokenExpiredError,
    UnfitRunError,
)
from lineage_backfill.http import BUSY, Answer, HttpClient, HttpSettings
from lineage_backfill.typed import check_members

_PAGE = 100  # Airflow's own maximum
#: A server may send an older date, in whole seconds, with many answers.
_LATE = 5.0
#: The text of a 403 for an expired token; any other 403 is about permissions.
_STALE = "Invalid JWT token"


@dataclass(frozen=True, slots=True, kw_only=True)
class AirflowSettings:
    """The settings of the engine in the project file.

    `url` is that of the api-server. The engine logs in as `username` with `password`, or with what
    `token` returns. It polls all running attempts together every `poll` seconds; `timeout` is that
    of one request, `wait` that of a run which an asset starts, in seconds. `undo` states that tasks
    use the run spec in the conf of their run, as `spark_runtime` does with `--airflow-run`.
    """

    url: str
    username: str = ""
    password: str = ""
    token: Any = None
    poll: float = 5
    timeout: float = 30
    wait: float = 3600
    undo: bool = False

    def __post_init__(self) -> None:
        check_members(self)
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"`url` is {self.url!r}, and must begin with http:// or https://")
        if not (self.token or (self.username and self.password)):
            raise ConfigError(
                "the engine airflow needs `username` and `password`, or `token`",
                hint='Add a reference to its table, for example password = "env:AIRFLOW_PASSWORD".',
            )
        for name in ("poll", "timeout", "wait"):
            check_seconds(name, getattr(self, name))


class AirflowApi:
    """Client of one Airflow.

    A token is asked for again once it has expired. Read requests are repeated. Raises
    EngineRefusalError, ServiceUnreachableError if Airflow does not answer, and TokenExpiredError.
    """

    def __init__(self, settings: AirflowSettings) -> None:
        check = "Check `url` of this engine and that its api-server runs."
        how = HttpSettings(timeout=settings.timeout, retries=3, busy=BUSY | {500}, check=check)
        self._http = HttpClient(settings.url, how)
        self.url = self._http.address
        self._settings = settings
        self._token = ""
        self._renewing = Lock()
        self._ahead = 0.0  # seconds that Airflow's clock is ahead of this one, at most

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def now(self) -> datetime:
        """Return the current instant by Airflow's clock, or a slightly later one."""
        return datetime.fromtimestamp(time.time() + max(self._ahead, 0), UTC)

    def refuse_other_versions(self) -> None:
        """Raise UnfitRunError if this is not Airflow 3; needs no account."""
        answer = self._http.get("/api/v2/version")
        if answer.ok or answer.status == 404:
            version = str(_member(answer, "version") or "")
        else:  # behind a proxy that needs a login
            version = str(self.get("/version")["version"])
        if not version.startswith("3."):
            raise UnfitRunError(
                f"{self.url} is not an api-server of Airflow 3: /api/v2/version names"
                f" {version or 'no version'}",
                hint="Correct `url` of this engine: the address before /api/v2. Jobs of an older"
                " Airflow run with the engine command, which can call Airflow's own CLI.",
            )

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the answer at a path."""
        return self._ask("GET", path, query=query)

    def find(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the answer at a path, None for 404."""
        try:
            return self.get(path, query)
        except EngineRefusalError as error:
            if error.status == 404:
                return None
            raise

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request once."""
        return self._ask("POST", path, body=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Set members to values; may be repeated."""
        return self._ask("PATCH", path, body=body, again=True)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> None:
        """Delete what is at a path, if this Airflow has it; may be repeated."""
        try:
            self._ask("DELETE", path, query=query, again=True)
        except EngineRefusalError as error:
            if error.status not in (404, 405):  # what an older Airflow answers
                raise

    def listed(
        self, path: str, wanted: Mapping[str, Any], member: str, *, method: str = "GET"
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a list, page by page; a POST has the query in its body."""
        part, prefix = ("query", "") if method == "GET" else ("body", "page_")
        offset = 0
        while True:
            page = {**wanted, f"{prefix}limit": _PAGE, f"{prefix}offset": offset}
            answer = self._ask(method, path, **{part: page}, again=True)
            found = answer[member]
            yield from found
            offset += len(found)
            if not found or offset >= answer["total_entries"]:
                return

    def task_instances(
        self, dags: Sequence[str], runs: Sequence[str], tasks: Sequence[str] = ()
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the task instances of some runs, of all tasks where none are named."""
        wanted = {"dag_ids": list(dags), "dag_run_ids": list(runs), "order_by": "id"}
        if tasks:
            wanted["task_ids"] = list(tasks)
        path = "/dags/~/dagRuns/~/taskInstances/list"
        return self.listed(path, wanted, "task_instances", method="POST") if runs else iter(())

    def active_runs(self, dags: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the queued and running runs of some DAGs."""
        wanted = {"dag_ids": list(dags), "states": ["queued", "running"], "order_by": "id"}
        return self.listed("/dags/~/dagRuns/list", wanted, "dag_runs", method="POST")

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        again: bool | None = None,
    ) -> Any:
        # Pages of the UI read what the API does not offer.
        place = path if path.startswith("/ui/") else f"/api/v2{path}"

        def send(token: str) -> Answer:
            headers = {"Authorization": f"Bearer {token}"}
            answer = self._http.send(
                method, place, query=query, body=body, headers=headers, again=again
            )
            if at := answer.sent_at:
                self._ahead = at.timestamp() + _LATE - time.time()
            return answer

        token = self._token or self._renew("")
        answer = send(token)
        if _is_stale(answer) and (renewed := self._renew(token)) != token:
            answer = send(renewed)
        if _is_stale(answer):
            raise TokenExpiredError(
                f"the token for Airflow at {self.url} has expired, or is not valid",
                hint="Renew it, then `resume`: nothing is lost. A `token` may be read again from a"
                ' file ("file:PATH") or a command; `username` and `password` renew it by'
                " themselves.",
            )
        return self._read(method, path, answer)

    def _renew(self, stale: str) -> str:
        with self._renewing:
            if self._token == stale:
                self._token = self._new_token()
            return self._token

    def _new_token(self) -> str:
        token, path = self._settings.token, "/auth/token"
        if token:
            return str(token() if callable(token) else token)
        login = {"username": self._settings.username, "password": self._settings.password}
        answer = self._http.send("POST", path, body=login, again=True)
        return str(self._read("POST", path, answer)["access_token"])

    def _read(self, method: str, path: str, answer: Answer) -> Any:
        """Return the document of an answer; one that is not JSON comes from a proxy."""
        if answer.status == 204:
            return None
        document = None
        with suppress(ServiceUnreachableError):
            document = answer.json()
        if answer.ok and document is not None:
            return document
        if document is None or answer.status in BUSY or answer.status >= 500:
            raise ServiceUnreachableError(
                f"{self.url}: answers {answer.status}: {_reason(answer)}",
                hint="Check Airflow's api-server and its log, and the proxies before it.",
            )
        raise self._refusal(method, path, answer)

    def _refusal(self, method: str, path: str, answer: Answer) -> EngineRefusalError:
        hint = "Check the DAG in Airflow and the `dag`, `task` and `slice` of the job."
        if answer.status == 401:
            hint = "Give this engine `username` and `password`, or a `token` that is valid."
        elif answer.status == 403:
            hint = "Give the account a role that may start and clear runs, such as Op or User."
        elif "Invalid input for param" in _reason(answer):
            hint = 'Give the job the value of its DAG\'s parameter: conf = { NAME = "{key}" }.'
        return EngineRefusalError(
            f"Airflow refuses {method} {path} ({answer.status}): {_reason(answer)}",
            answer.status,
            hint=hint,
        )


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def _is_stale(answer: Answer) -> bool:
    is_page = answer.body.lstrip().startswith(b"<")  # of a proxy
    is_refused = answer.status == 401 and not is_page
    return is_refused or (answer.status == 403 and _reason(answer) == _STALE)


def _member(answer: Answer, name: str) -> Any:
    """Return a member of the document in an answer, None if there is none."""
    try:
        return answer.json()[name]
    except (ServiceUnreachableError, KeyError, TypeError):
        return None


def _reason(answer: Answer) -> str:
    """Return the sentence in an answer."""
    detail = _member(answer, "detail")
    if detail is None:
        return answer.text[:300]
    if isinstance(detail, list):
        detail = "; ".join(str(one.get("msg", one)) for one in detail)
    if isinstance(detail, dict):
        detail = detail.get("reason", detail)
    return str(detail)[:500]
