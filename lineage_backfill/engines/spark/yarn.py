"""Finds, stops and reads applications on Hadoop's YARN by their tag, the attempt's token.

It uses the ResourceManager's REST interface, whose address is in Hadoop's configuration.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from lineage_backfill.engines.spark.clusters import Cluster
from lineage_backfill.errors import EnvironmentMissingError, ServiceUnreachableError
from lineage_backfill.http import HttpClient, HttpSettings
from lineage_backfill.ports import AttemptState

_log = logging.getLogger(__name__)
_TIMEOUT = 20.0  # seconds, for each request
_VARIABLE = re.compile(r"\$\{([^${}]+)\}")
_FILES = ("core-site.xml", "yarn-site.xml")
_NESTED = 5  # nested variables in a value
_NO_REST = "YARN cannot be asked about applications: no open REST interface is configured"
_NAME_IT = (
    "Name it in yarn-site.xml (`yarn.resourcemanager.webapp.address`, YARN_CONF_DIR); with Kerberos"
    ' or access lists, use deploy_mode = "client".'
)
_STATES: Mapping[str, AttemptState] = {
    "NEW": AttemptState.QUEUED,
    "NEW_SAVING": AttemptState.QUEUED,
    "SUBMITTED": AttemptState.QUEUED,
    "ACCEPTED": AttemptState.QUEUED,
    "RUNNING": AttemptState.RUNNING,
    "FAILED": AttemptState.FAILED,
    "KILLED": AttemptState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Found:
    """An application with a tag; `logs` is the address of the driver's log on its node.

    `reason` is what YARN says about its end.
    """

    id: str
    state: AttemptState
    logs: str
    reason: str


class ResourceManager:
    """The REST interface of a cluster: one of its ResourceManagers is active."""

    def __init__(self, addresses: Sequence[str]) -> None:
        settings = HttpSettings(timeout=_TIMEOUT, retries=0)
        self._clients = [HttpClient(f"{one}/ws/v1/cluster", settings) for one in addresses]

    def find(self, token: str) -> list[Found]:
        """Return the applications with this tag; raises ServiceUnreachableError.

        After a restart it lists none until it has recovered: an empty list counts only once it is
        active.
        """
        found = self._listed(token)
        if not found:
            self._refuse_inactive()
            found = self._listed(token)
        return found

    def _refuse_inactive(self) -> None:
        document = self._ask("GET", "/info")
        try:
            state = document["clusterInfo"]["haState"]
        except (KeyError, TypeError) as error:
            raise _no_answer(f"no state, but {str(document)[:200]}") from error
        if state != "ACTIVE":
            raise _no_answer(f"the ResourceManager is {state}")

    def _listed(self, token: str) -> list[Found]:
        document = self._ask("GET", f"/apps?applicationTags={quote(token, safe='')}")
        try:
            listed = (document["apps"] or {}).get("app") or []
            return [
                Found(
                    one["id"],
                    _state(state=one["state"], final=one["finalStatus"]),
                    str(one.get("amContainerLogs") or ""),
                    str(one.get("diagnostics") or "").strip(),
                )
                for one in listed
                if token.lower() in str(one["applicationTags"]).split(",")
            ]
        except (AttributeError, KeyError, TypeError) as error:
            raise _no_answer(f"no list of applications, but {str(document)[:200]}") from error

    def kill(self, application: str) -> None:
        """Kill an application; raises ServiceUnreachableError if that is refused."""
        self._ask("PUT", f"/apps/{application}/state", {"state": "KILLED"})

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Send a request to the active ResourceManager; a standby one redirects."""
        refusals = []
        for client in list(self._clients):
            try:
                answer = client.send(method, path, body=body)
                if answer.status in (200, 202):
                    document = answer.json()
                    self._clients.remove(client)
                    self._clients.insert(0, client)
                    return document
                refusals.append(f"{client.address}: {method} is answered with {answer.status}")
            except ServiceUnreachableError as error:
                refusals.append(error.message)
        raise _no_answer("; ".join(refusals))


class Yarn(Cluster):
    """Hadoop's YARN; an application has the token as a tag.

    States: https://hadoop.apache.org/docs/stable/api/org/apache/hadoop/yarn/api/records/
    """

    def __init__(self, manager: ResourceManager | None) -> None:
        self._found = manager

    def properties(self, token: str, given: Mapping[str, str], folder: Path) -> Mapping[str, str]:
        """Tag the application, and keep YARN from starting a second driver for it."""
        tags = ",".join(filter(None, (given.get("spark.yarn.tags"), token)))
        return {"spark.yarn.tags": tags, "spark.yarn.maxAppAttempts": "1"}

    def check(self, given: Mapping[str, str]) -> None:
        """Refuse a cluster whose REST interface is unknown; raises EnvironmentMissingError."""
        if self._found is None:
            raise EnvironmentMissingError(_NO_REST, hint=_NAME_IT)

    @property
    def _manager(self) -> ResourceManager:
        if self._found is None:
            raise ServiceUnreachableError(_NO_REST, hint=_NAME_IT)
        return self._found

    def name(self, token: str) -> str | None:
        """Return the application's id."""
        with suppress(ServiceUnreachableError):
            return next((one.id for one in self._manager.find(token)), None)
        return None

    def look(self, token: str) -> AttemptState | None:
        """Return the state of the application with this tag."""
        found = self._deciding(token)
        return None if found is None else found.state

    def reason(self, token: str) -> str:
        """Return what YARN says about the end of the application with this tag."""
        found = self._deciding(token)
        return "" if found is None else found.reason

    def _deciding(self, token: str) -> Found | None:
        """Return the application with this tag; of several, one that runs, or has succeeded."""

        def turn(one: Found) -> tuple[bool, bool]:
            return one.state.is_final, one.state is not AttemptState.SUCCEEDED

        return min(self._manager.find(token), key=turn, default=None)

    def stop(self, token: str) -> None:
        """Kill the application with this tag."""
        for found in self._manager.find(token):
            if not found.state.is_final:
                self._manager.kill(found.id)

    def log_place(self, token: str) -> str:
        """Return the address of the driver's log, else the command that prints what YARN kept."""
        found = self._deciding(token)
        if found is None:
            return "YARN does not know the application"
        return found.logs or f"yarn logs -applicationId {found.id}"


def _no_answer(why: str) -> ServiceUnreachableError:
    return ServiceUnreachableError(
        f"YARN does not answer: {why}", hint="Check the ResourceManager, then `resume`."
    )


def resource_manager(
    environment: Mapping[str, str], conf: Mapping[str, str]
) -> ResourceManager | None:
    """Return the REST interface that Hadoop's configuration names.

    None if it names none, or if the interface would not show or stop our applications: with
    Kerberos, or with access lists. `conf` holds Spark's properties.
    """
    settings = _settings(environment)
    prefix = "spark.hadoop."
    settings |= {k.removeprefix(prefix): v for k, v in conf.items() if k.startswith(prefix)}
    is_open = settings.get("hadoop.security.authentication", "simple") == "simple"
    if not is_open or settings.get("yarn.acl.enable") == "true":
        return None
    addresses = list(_addresses(settings))
    return ResourceManager(addresses) if addresses else None


def _addresses(settings: Mapping[str, str]) -> Iterator[str]:
    is_https = settings.get("yarn.http.policy") == "HTTPS_ONLY"
    scheme, kind, port = ("https", "webapp.https", 8090) if is_https else ("http", "webapp", 8088)
    suffixes = [""]
    if settings.get("yarn.resourcemanager.ha.enabled") == "true":
        names = settings.get("yarn.resourcemanager.ha.rm-ids", "").split(",")
        suffixes = [f".{name.strip()}" for name in names]
    for suffix in suffixes:
        address = settings.get(f"yarn.resourcemanager.{kind}.address{suffix}")
        host = settings.get(f"yarn.resourcemanager.hostname{suffix}")
        if address or host:
            yield f"{scheme}://{_expanded(address or f'{host}:{port}', settings)}"


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in Hadoop's configuration files, those of YARN_CONF_DIR last."""
    found: dict[str, str] = {}
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        folder = environment.get(variable)
        for path in (Path(folder) / name for name in _FILES) if folder else ():
            try:
                root = ET.parse(path).getroot()  # noqa: S314 (the user's own file)
            except FileNotFoundError:
                continue
            except (OSError, ET.ParseError) as error:
                _log.warning("%s cannot be read: %s", path, error)
                continue
            for one in root.iter("property"):
                name, value = one.findtext("name"), one.findtext("value")
                if name and value is not None:
                    found[name.strip()] = value.strip()
    return found


def _expanded(text: str, settings: Mapping[str, str]) -> str:
    for _ in range(_NESTED):
        text = _VARIABLE.sub(lambda one: settings.get(one[1], one[0]), text)
    return text


def _state(*, state: str, final: str) -> AttemptState:
    if state == "FINISHED":
        succeeded = final == "SUCCEEDED"
        return AttemptState.SUCCEEDED if succeeded else AttemptState.FAILED
    return _STATES.get(state, AttemptState.RUNNING)
