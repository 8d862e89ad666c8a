"""Client of Airflow 3's REST API v2: logs in, renews its token, and explains refusals."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock
from typing import Any
from urllib.parse import quote

import requests

from lineage_backfill.errors import EngineRefusalError, ServiceUnreachableError, UnfitRunError

_log = logging.getLogger(__name__)
_PASSING = frozenset({429, 500, 502, 503, 504})
_ABSENT = frozenset({404, 405})  # what an older Airflow says to a path that it does not know
_TRIES = 3  # of a request that changes nothing
_BACKOFF = 0.5  # seconds; twice as long each time
_PAGE = 100  # Airflow's own maximum
#: A server may send an older date, in whole seconds, with many answers.
_LATE = 5.0
#: The text of a 403 for an expired token; any other 403 is about permissions.
_STALE = "Invalid JWT token"


class AirflowApi:
    """Client of one Airflow.

    A `token` is used as given; with `username` and `password` one is fetched, and renewed when it
    expires. `timeout` is in seconds, for each request. Read requests are retried. Raises
    EngineRefusalError, and ServiceUnreachableError if Airflow does not answer.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str = "",
        password: str = "",
        token: str = "",
        timeout: float = 30,
    ) -> None:
        self.url = url.rstrip("/")
        self._login = {"username": username, "password": password} if password else None
        self._token = token
        self._timeout = timeout
        self._session = requests.Session()
        self._renewing = Lock()
        self._ahead = 0.0  # seconds that Airflow's clock is ahead of this one, at most

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def now(self) -> datetime:
        """Return the current instant by Airflow's clock, or a slightly later one."""
        return datetime.fromtimestamp(time.time() + max(self._ahead, 0), UTC)

    def refuse_other_versions(self) -> None:
        """Raise UnfitRunError if this is not Airflow 3; needs no account."""
        answer = self._send("GET", "/api/v2/version", None, None, self._token)
        version = _version(answer)
        if answer.status_code == requests.codes.not_found:
            old = self._send("GET", "/api/v1/version", None, None, self._token)
            is_there = old.status_code != requests.codes.not_found
            version = _version(old) or ("2" if is_there else "")
        elif not answer.ok:  # behind a proxy that needs a login
            version = str(self.get("/version")["version"])
        if not version:
            raise UnfitRunError(
                f"{self.url} is not an api-server of Airflow 3: /api/v2/version names no version",
                hint="Correct `url` of this engine: the address before /api/v2.",
            )
        if not version.startswith("3."):
            raise UnfitRunError(
                f"Airflow {version} at {self.url} is not supported: the engine airflow needs the"
                " REST API v2 of Airflow 3",
                hint="Upgrade it to Airflow 3, or run its jobs with the engine command, which can"
                " call Airflow's own CLI.",
            )

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the answer at a path."""
        return self._ask("GET", path, query=query)

    def find(self, path: str) -> Any:
        """Return the answer at a path, None for 404."""
        try:
            return self.get(path)
        except EngineRefusalError as error:
            if error.status == requests.codes.not_found:
                return None
            raise

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request that changes something, once."""
        return self._ask("POST", path, body=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Set members to values; may be repeated."""
        return self._ask("PATCH", path, body=body, again=True)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> None:
        """Delete what is at a path, if this Airflow has it; may be repeated."""
        try:
            self._ask("DELETE", path, query=query, again=True)
        except EngineRefusalError as error:
            if error.status not in _ABSENT:
                raise

    def listed(
        self, path: str, query: Mapping[str, Any], member: str
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a list, page by page."""
        return _pages(
            member, lambda offset: self.get(path, {**query, "limit": _PAGE, "offset": offset})
        )

    def task_instances(
        self, dags: Sequence[str], runs: Sequence[str], tasks: Sequence[str] = ()
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the task instances of some runs, of all tasks where none are named."""
        wanted = {"dag_ids": list(dags), "dag_run_ids": list(runs)}
        if tasks:
            wanted["task_ids"] = list(tasks)
        return self._listed("dagRuns/~/taskInstances", "task_instances", wanted)

    def active_runs(self, dags: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the queued and running runs of some DAGs."""
        wanted = {"dag_ids": list(dags), "states": ["queued", "running"]}
        return self._listed("dagRuns", "dag_runs", wanted)

    def _listed(
        self, what: str, member: str, wanted: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a list whose query is in the request body, page by page."""
        page = {**wanted, "page_limit": _PAGE, "order_by": "id"}

        def ask(offset: int) -> Any:
            body = {**page, "page_offset": offset}
            return self._ask("POST", f"/dags/~/{what}/list", body=body, again=True)

        return _pages(member, ask)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        again: bool | None = None,
    ) -> Any:
        tries = _TRIES if again or method == "GET" else 1
        for number in range(1, tries + 1):
            try:
                return self._read(method, path, self._authorised(method, path, query, body))
            except ServiceUnreachableError:
                if number == tries:
                    raise
            time.sleep(_BACKOFF * 2**number)
        raise AssertionError("a request is tried at least once")

    def _read(self, method: str, path: str, answer: requests.Response) -> Any:
        """Return the document of an answer; one that is not JSON comes from a proxy."""
        if answer.status_code == requests.codes.no_content:
            return None
        with suppress(ValueError):
            document = answer.json()
            if answer.ok:
                return document
            if answer.status_code not in _PASSING:
                raise self._refusal(method, path, answer)
        raise ServiceUnreachableError(
            f"{self.url}: answers {answer.status_code}: {_said(answer)}",
            hint="Check Airflow's api-server and its log, and the proxies before it.",
        )

    def _authorised(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
    ) -> requests.Response:
        """Send a request; with an expired token, renew it and send again."""
        token = self._token or self._renew("")
        answer = self._send(method, f"/api/v2{path}", query, body, token)
        is_stale = answer.status_code == requests.codes.unauthorized or (
            answer.status_code == requests.codes.forbidden and _said(answer) == _STALE
        )
        if is_stale and self._login is not None:
            answer = self._send(method, f"/api/v2{path}", query, body, self._renew(token))
        return answer

    def _renew(self, stale: str) -> str:
        with self._renewing:
            if self._token == stale and self._login is not None:
                answer = self._send("POST", "/auth/token", None, self._login, "")
                self._token = str(self._read("POST", "/auth/token", answer)["access_token"])
            return self._token

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        token: str,
    ) -> requests.Response:
        began = time.monotonic()
        try:
            answer = self._session.request(
                method,
                self.url + path,
                params=query,
                json=body,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                timeout=self._timeout,
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise ServiceUnreachableError(
                f"Airflow at {self.url} cannot be reached: {type(error).__name__}",
                hint="Check `url` of this engine and that its api-server runs.",
            ) from error
        _log.info("%s %s: %d in %.2f s", method, path, answer.status_code, time.monotonic() - began)
        if date := answer.headers.get("Date"):
            self._ahead = parsedate_to_datetime(date).timestamp() + _LATE - time.time()
        return answer

    def _refusal(self, method: str, path: str, answer: requests.Response) -> EngineRefusalError:
        status, said = answer.status_code, _said(answer)
        if status == requests.codes.unauthorized:
            hint = "Give this engine `username` and `password`, or a `token` that is valid."
        elif status == requests.codes.forbidden:
            hint = "Give the account a role that may start and clear runs, such as Op or User."
        else:
            hint = "Check the DAG in Airflow and the `dag`, `task` and `slice` of the job."
        return EngineRefusalError(
            f"Airflow refuses {method} {path} ({status}): {said}", status, hint=hint
        )


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def _version(answer: requests.Response) -> str:
    try:
        return str(answer.json()["version"]) if answer.ok else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _said(answer: requests.Response) -> str:
    """Return the sentence in an answer."""
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return answer.text[:300] or answer.reason
    if isinstance(detail, list):
        detail = "; ".join(str(one.get("msg", one)) for one in detail)
    if isinstance(detail, dict):
        detail = detail.get("reason", detail)
    return str(detail)[:500]


def _pages(member: str, ask: Callable[[int], Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a list; `ask` returns the page from an offset on."""
    offset = 0
    while True:
        answer = ask(offset)
        found = answer[member]
        yield from found
        offset += len(found)
        if not found or offset >= answer["total_entries"]:
            return
