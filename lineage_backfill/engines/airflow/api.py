"""Client of Airflow 3's REST API v2: logs in, renews its token, and explains refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any
from urllib.parse import quote

from lineage_backfill.errors import EngineRefusalError, ServiceUnreachableError, UnfitRunError
from lineage_backfill.http import BUSY, Answer, HttpClient, HttpSettings

_PAGE = 100  # Airflow's own maximum
#: A server may send an older date, in whole seconds, with many answers.
_LATE = 5.0
#: The text of a 403 for an expired token; any other 403 is about permissions.
_STALE = "Invalid JWT token"


class AirflowApi:
    """Client of one Airflow.

    `token` returns the current token, None to log in with `username` and `password`; it is asked
    again once its token has expired. Read requests are repeated. Raises EngineRefusalError, and
    ServiceUnreachableError if Airflow does not answer or the token has expired.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str = "",
        password: str = "",
        token: Callable[[], str] | None = None,
        timeout: float = 30,
    ) -> None:
        check = "Check `url` of this engine and that its api-server runs."
        self._http = HttpClient(
            url, HttpSettings(timeout=timeout, retries=3, busy=BUSY | {500}, check=check)
        )
        self.url = self._http.address
        self._login = {"username": username, "password": password}
        self._renewed = token or self._logged_in
        self._token = ""
        self._renewing = Lock()
        self._ahead = 0.0  # seconds that Airflow's clock is ahead of this one, at most
        #: Whether the last request failed because the token has expired.
        self.has_expired = False

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
            version = _version(answer)
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

    def post(self, path: str, body: Mapping[str, Any], *, again: bool = False) -> Any:
        """Send a request once, or `again` if it changes nothing."""
        return self._ask("POST", path, body=body, again=again)

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
        path = f"/dags/~/{what}/list"
        return _pages(
            member, lambda offset: self.post(path, {**page, "page_offset": offset}, again=True)
        )

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
        self.has_expired = _is_stale(answer)
        if self.has_expired:
            raise ServiceUnreachableError(
                f"the token for Airflow at {self.url} has expired, or is not valid",
                hint="Renew it, then `resume`: nothing is lost. A `token` may be read again from a"
                ' file ("file:PATH") or a command; `username` and `password` renew it by'
                " themselves.",
            )
        return self._read(method, path, answer)

    def _renew(self, stale: str) -> str:
        with self._renewing:
            if self._token == stale:
                self._token = self._renewed()
            return self._token

    def _logged_in(self) -> str:
        path = "/auth/token"
        answer = self._http.send("POST", path, body=self._login, again=True)
        return str(self._read("POST", path, answer)["access_token"])

    def _read(self, method: str, path: str, answer: Answer) -> Any:
        """Return the document of an answer; one that is not JSON comes from a proxy."""
        if answer.status == 204:
            return None
        try:
            document = answer.json()
        except ServiceUnreachableError:
            document = None
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


def _version(answer: Answer) -> str:
    try:
        return str(answer.json()["version"]) if answer.ok else ""
    except (ServiceUnreachableError, KeyError, TypeError):
        return ""


def _reason(answer: Answer) -> str:
    """Return the sentence in an answer."""
    try:
        detail = answer.json()["detail"]
    except (ServiceUnreachableError, KeyError, TypeError):
        return answer.text[:300]
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
