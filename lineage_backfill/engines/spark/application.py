"""One warm application on a cluster: starts it or takes it over, sends requests, ends it.

They communicate through a folder; `spark_runtime.application` describes it.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from lineage_backfill.engines.attempt import LifeSign, kill_group
from lineage_backfill.engines.spark.pool import NotBegun
from lineage_backfill.engines.spark.worker import WorkerDied, check_ready, ending
from lineage_backfill.errors import EngineError, EnvironmentMissingError
from lineage_backfill.files import private, private_folder, whole_file

_FOLDERS = ("inbox", "taken", "withdrawn", "cancel", "answers")
_SHORTEST, _LONGEST = 0.01, 0.1  # seconds between two checks for an answer
_LOOKS = 10  # tries at a lock before it counts as held
_PATIENCE = 10.0  # seconds that an application has to end, with Spark, before it is killed
_CANCEL = 5.0  # seconds that a run has to stop before its application is killed
_BEAT = 2.0  # seconds between two changes of the tool's heartbeat file
_WATCHED, _WATCHES = 2.5, 25  # how long a heartbeat is watched, in beats, and how often
_SUBMITTED = "submitted.txt"  # the output of spark-submit when the driver is elsewhere
_KEPT = 86_400.0  # seconds that the folder of a dead application is kept


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits of an application: `at_once` concurrent runs, `max_runs` in total.

    It ends after `orphan_seconds` without a tool, or `stranded_seconds` without executors.
    """

    key: str
    orphan_seconds: float
    max_runs: int
    at_once: int = 1
    stranded_seconds: float = 120


class Place(Protocol):
    """Where the drivers of applications run.

    `is_far`: on other machines, which share files with this one but not locks.
    """

    is_far: bool

    def lives(self, folder: Path) -> bool:
        """Whether the application of a folder is alive; assumed if it cannot be checked."""

    def kill(self, folder: Path) -> None:
        """End the application of a folder; no-op if it is dead."""


class Here(Place):
    """This machine."""

    is_far = False

    def lives(self, folder: Path) -> bool:
        """Whether a process of the application is alive."""
        return is_alive(folder)

    def kill(self, folder: Path) -> None:
        """Kill its processes."""
        kill(folder)


HERE = Here()


class Ownership:
    """Shows an application that it has a tool, and excludes other tools, until it is closed.

    It uses a lock; for an application on another machine, also a heartbeat file.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = LifeSign(folder / "owner").give()
        self._last = (_read(folder / "beat") or {}).get("owner")  # the owner before, if any
        self._over = threading.Event()
        self._folder, self._name = folder, uuid.uuid4().hex
        self._pause = _pause(folder)
        if self._pause is not None:
            threading.Thread(target=self._beat, args=(self._pause,), daemon=True).start()

    def is_sole(self) -> bool:
        """Whether no other machine's tool has become the owner at the same time."""
        for _ in range(_WATCHES if self._pause is not None else 0):
            time.sleep((self._pause or 0) * _WATCHED / _WATCHES)
            beat = _signed(self._folder, "beat") or {}
            if beat.get("owner", self._name) not in (self._name, self._last):
                return False
        return True

    def close(self) -> None:
        """Give up the ownership."""
        self._over.set()
        self._lock.close()

    def _beat(self, pause: float) -> None:
        while not self._over.is_set():
            with suppress(OSError):  # the next one may succeed
                _tell(self._folder, "beat", owner=self._name, now=uuid.uuid4().hex)
            self._over.wait(pause)


@dataclass(frozen=True, slots=True)
class Requested:
    """The state of a request as any process can read it from the application's folder."""

    folder: Path
    request: str
    place: Place = HERE

    def claim(self) -> dict[str, Any]:
        """Return the content of the attempt's claim on it."""
        return {
            "application": str(self.folder),
            "request": self.request,
            "life_sign": str(self.folder / "alive"),
            "log": str(self.folder / "log.txt"),
        }

    @property
    def is_known(self) -> bool:
        """Whether the application's folder is still there, for this machine."""
        return (self.folder / "application.json").exists()

    @property
    def is_taken(self) -> bool:
        """Whether the application has taken it to begin it."""
        return self._in("taken").exists()

    def withdraw(self) -> bool:
        """Prevent the application from beginning it; False if it may have begun already."""
        if not _tell(self.folder, "withdrawn", self.request):
            return False  # the folder of an application that ended long ago
        answer = self.answer()
        return not self.is_taken or (answer is not None and answer["op"] == "withdrawn")

    def cancel(self) -> None:
        """Tell the application to stop it, and kill the application if that takes too long."""
        with suppress(OSError):  # then it takes too long
            _tell(self.folder, "cancel", self.request)
        timer = threading.Timer(_CANCEL, self._kill)
        timer.daemon = True
        timer.start()

    def _kill(self) -> None:
        """Kill the application if it has not stopped this request, once it does nothing else."""
        if self.is_open:
            with suppress(OSError):
                _tell(self.folder, "close")
        while self.is_open:
            if _at_work(self.folder) <= {self.request}:
                self.place.kill(self.folder)
            time.sleep(_LONGEST)

    def answer(self) -> Mapping[str, Any] | None:
        """Return the reply, None if there is none yet."""
        return _signed(self.folder, "answers", f"{self.request}.json")

    @property
    def is_open(self) -> bool:
        """Whether its application is alive and has not answered it."""
        lives = self.place.lives(self.folder)
        return lives and self.answer() is None

    @property
    def ended_its_application(self) -> bool:
        """Whether its application ended while working on it."""
        answer = self.answer()
        if answer is not None:
            return bool(answer.get("ends"))
        return self.is_taken and not self.place.lives(self.folder)

    def wait(self) -> None:
        """Wait until it is no longer open."""
        while self.is_open:
            time.sleep(_LONGEST)

    def _in(self, place: str) -> Path:
        return self.folder / place / f"{self.request}.json"


class Application:
    """A warm application that only this tool owns; a `WarmWorker`."""

    def __init__(self, folder: Path, key: str, owner: Ownership, place: Place) -> None:
        self.folder = folder
        self.place = place
        self.key = key
        self.log_path = folder / "log.txt"
        terms = _read(folder / "application.json") or {}
        self.has_own_logs = terms.get("at_once", 1) > 1  # of concurrent runs
        self._is_ready = False
        self._owner = owner
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: dict[str, Requested] = {}
        self._sent: set[str] = set()  # of those, the ones that it may know
        self._is_ending = self._is_left = False

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        terms: Terms,
        folder: Path,
        place: Place = HERE,
        **options: Any,
    ) -> Application:
        """Start an application with a command; `options` are those of a process.

        Raises EnvironmentMissingError.
        """
        folder = folder.resolve()
        for name in _FOLDERS:
            private_folder(folder / name)
        _write(
            folder / "application.json",
            is_far=place.is_far,
            **asdict(terms),
            secret=secrets.token_hex(16),
        )
        owner = Ownership(folder)
        started = cls(folder, terms.key, owner, place)
        started.log_path.touch(mode=0o600)
        submitted = folder / _SUBMITTED if place.is_far else started.log_path
        sign = LifeSign(folder / "alive")
        try:
            with sign.give() as held, open(submitted, "ab", opener=private) as log:
                started._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(held.fileno(),),
                    start_new_session=True,
                    **options,
                )
        except OSError as error:
            owner.close()
            raise EnvironmentMissingError(
                f"{command[0]} cannot be started: {error}",
                hint="Check the settings of this engine in the project file.",
            ) from error
        _write(folder / "process.json", pid=started._process.pid)
        return started

    @classmethod
    def idle(cls, folder: Path, key: str, place: Place = HERE) -> Application | None:
        """Take over an idle application that has lost its tool; None if it is not such a one."""
        return cls._take_over(folder, key, place, lambda: _is_idle(folder, key, place))

    @classmethod
    def at_work(cls, requested: Requested) -> Application | None:
        """Take over the application that is working on a request, if it has lost its tool."""
        terms = _read(requested.folder / "application.json") or {"key": ""}
        folder, place = requested.folder, requested.place
        found = cls._take_over(folder, terms["key"], place, lambda: requested.is_open)
        if found is not None:
            found._is_ready = True
            found.follow(requested)
        return found

    def follow(self, requested: Requested) -> None:
        """Count an earlier tool's request among those it is working on."""
        self._asked[requested.request] = requested
        self._sent.add(requested.request)

    @classmethod
    def _take_over(
        cls, folder: Path, key: str, place: Place, is_so: Callable[[], bool]
    ) -> Application | None:
        if not is_so() or not (folder / "process.json").exists():
            return None
        owner = _own(folder)
        if owner is None:
            return None
        if is_so() and owner.is_sole():  # as no other tool can change it now
            return cls(folder, key, owner, place)
        owner.close()
        return None

    @property
    def is_new(self) -> bool:
        """Whether this tool started it."""
        return self._process is not None

    @property
    def is_busy(self) -> bool:
        """Whether it is starting, or working on a request."""
        asked = [self._asked.get(request) for request in list(self._sent)]
        return not self._is_ready or any(one and one.answer() is None for one in asked)

    def has_begun(self, request: str) -> bool:
        """Whether it has begun a request."""
        asked = self._asked.get(request)
        return asked is not None and asked.is_taken

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more requests."""
        is_told = (self.folder / "close").exists()
        return self._is_ending or is_told or not self._lives()

    def wait_until_ready(self) -> None:
        """Wait until it takes requests; raises EnvironmentMissingError with the cause."""
        while True:
            lives = self._lives()
            ready = _signed(self.folder, "ready.json")
            if ready is not None:
                check_ready(ready)
                self._is_ready = True
                return
            if self._is_left:
                raise EnvironmentMissingError("the engine was closed", hint="Run again.")
            if not lives:
                raise EnvironmentMissingError(
                    f"the application did not start: {self._how_it_ended()}", hint=self._hint()
                )
            time.sleep(_SHORTEST)

    def claim(self, request: str) -> dict[str, Any]:
        """Return what tells another process which application has this request."""
        self._asked[request] = asked = Requested(self.folder, request, self.place)
        return asked.claim()

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its reply; raises WorkerDied, NotBegun."""
        asked = self._asked[request["id"]]
        self._sent.add(asked.request)
        try:
            _tell(self.folder, "inbox", f"{asked.request}.json", **request)
            reply = self._answer(asked)
        finally:
            if not self._is_left:
                self._sent.discard(asked.request)
                del self._asked[asked.request]
        self._is_ending = self._is_ending or bool(reply.get("ends") or reply.get("is_last"))
        if reply["op"] == "withdrawn":
            raise EngineError(
                "the attempt was abandoned by another executor",
                hint="Nothing is lost: another process drives the backfill; `watch` follows it.",
            )
        return reply

    def _answer(self, asked: Requested) -> Mapping[str, Any]:
        began = time.monotonic()
        while True:
            lives = self._lives()
            reply = asked.answer()
            if reply is not None:
                return reply
            if self._is_left:
                raise WorkerDied("the application continues without this engine")
            if not lives:
                raise (WorkerDied if _may_have_begun(asked) else NotBegun)(self._how_it_ended())
            waited = time.monotonic() - began
            time.sleep(min(max(_SHORTEST, waited / 50), _LONGEST))  # 2 % of a run at most

    def stop(self, request: str) -> None:
        """Stop the run of a request; the others continue."""
        asked = self._asked.get(request)
        if asked is not None:
            asked.cancel()

    def kill(self) -> None:
        """End it at once, with all its children."""
        self.place.kill(self.folder)

    def let_go(self) -> None:
        """Stop waiting for it: it ends without a tool, or another tool takes it over."""
        self._is_left = True
        self._owner.close()
        if self._process is not None:
            threading.Thread(target=self._process.wait, daemon=True).start()

    def close(self, patience: float = _PATIENCE) -> None:
        """Ask it to end, and kill it if that takes more than `patience` seconds."""
        _tell(self.folder, "close")
        until = time.monotonic() + (_PATIENCE if self._is_ending else patience)
        while self._lives() and time.monotonic() < until:
            time.sleep(_SHORTEST)
        self.kill()
        if self._process is not None:
            self._process.wait()
        self._owner.close()

    def _lives(self) -> bool:
        if self._process is not None:
            self._process.poll()
        return self.place.lives(self.folder)

    def _hint(self) -> str:
        if self.place.is_far and not (self.folder / "driver").exists():
            return (
                f"Its driver did not open {self.folder}. If drivers do not have this folder under"
                " the same path, mount it there, or set `reuse = false`."
                f" Output: {self.folder / _SUBMITTED}"
            )
        return f"Its output: {self.log_path}"

    def _how_it_ended(self) -> str:
        code = self._process.wait() if self._process is not None else None
        submitted = self.folder / _SUBMITTED
        is_silent = submitted.exists() and not self.log_path.stat().st_size
        return ending("the application", code, submitted if is_silent else self.log_path)


def is_alive(folder: Path) -> bool:
    """Whether an application is alive; kills the rest of it if only its JVM has died."""
    if LifeSign(folder / "alive").is_alive():
        return True
    driver = LifeSign(folder / "driver")
    if not driver.is_alive():
        return False
    kill(folder)  # the driver's group still exists, so its number was not reused
    return True


def kill(folder: Path) -> None:
    """End an application at once, with all its children; no-op if it is dead."""
    process = _read(folder / "process.json")
    signs = (LifeSign(folder / name) for name in ("alive", "driver"))
    if process is not None and any(sign.is_alive() for sign in signs):
        kill_group(process["pid"])


def remove_dead(folder: Path, place: Place = HERE) -> None:
    """Remove the folders of applications that died long ago."""
    for one in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            if time.time() - one.stat().st_mtime > _KEPT and not place.lives(one):
                shutil.rmtree(one, ignore_errors=True)


def new_folder(folder: Path) -> Path:
    """Return the folder for a new application."""
    return folder / uuid.uuid4().hex[:12]


def _may_have_begun(asked: Requested) -> bool:
    """Whether a dead application may have begun a request.

    It may only seem dead, and must not begin later what another one is given now.
    """
    try:
        return asked.is_known and not asked.withdraw()
    except OSError:  # a full disk
        return asked.is_taken


def _pause(folder: Path) -> float | None:
    """Return the seconds between two heartbeats of an application's tool; None if it needs none."""
    terms = _read(folder / "application.json") or {}
    return min(_BEAT, terms["orphan_seconds"] / 4) if terms.get("is_far") else None


def _has_beat(folder: Path) -> bool:
    """Whether the tool of an application, perhaps on another machine, shows that it is alive."""
    pause = _pause(folder)
    if pause is None:
        return False
    if LifeSign(folder / "owner").is_alive():
        return True
    before = _read(folder / "beat")
    time.sleep(_WATCHED * pause)
    return _read(folder / "beat") != before


def _own(folder: Path) -> Ownership | None:
    """Become the tool of an application; None if it has one."""
    if _has_beat(folder):
        return None
    for _ in range(_LOOKS):  # the application may hold the lock for a moment, to check for a tool
        with suppress(EngineError):
            return Ownership(folder)
        time.sleep(_SHORTEST)
    return None


def _is_idle(folder: Path, key: str, place: Place) -> bool:
    """Whether an application does nothing, or is still starting."""
    terms, ready = _read(folder / "application.json"), _signed(folder, "ready.json")
    is_failed = ready is not None and ready["op"] != "ready"
    if terms is None or terms["key"] != key or is_failed:
        return False
    is_free = not _at_work(folder) and not any((folder / "inbox").glob("*.json"))
    begun = sum(1 for _ in (folder / "taken").glob("*.json"))
    is_open = begun < terms["max_runs"] and not (folder / "close").exists()
    return is_free and is_open and place.lives(folder)


def _at_work(folder: Path) -> set[str]:
    """Return the requests that an application has taken and not answered."""
    answered = {path.stem for path in (folder / "answers").glob("*.json")}
    return {path.stem for path in (folder / "taken").glob("*.json")} - answered


def _read(path: Path) -> Mapping[str, Any] | None:
    """Return the JSON object in a file; None if there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _signed(folder: Path, *place: str) -> Mapping[str, Any] | None:
    """Return the content of an application's file; None unless it has the secret."""
    document, terms = _read(folder.joinpath(*place)), _read(folder / "application.json")
    if document is None or terms is None or document.get("secret") != terms["secret"]:
        return None
    return document


def _tell(folder: Path, *place: str, **document: Any) -> bool:
    """Write a file with the application's secret; False if its folder is gone."""
    terms = _read(folder / "application.json")
    if terms is None:
        return False
    _write(folder.joinpath(*place), **document, secret=terms["secret"])
    return True


def _write(path: Path, **document: Any) -> None:
    with whole_file(path, is_private=True) as file:
        file.write(json.dumps(document).encode())
