"""Lists: several runs in one application, which does one after the other."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.runtime import reconcile
from lineage_backfill.errors import BackfillError, EngineError, ServiceUnreachableError
from lineage_backfill.files import whole_file
from lineage_backfill.ports import AttemptState, Engine, EngineRun, Outcome, list_of

_LOOK = 5.0  # seconds between two looks for results, at most


@dataclass(eq=False)
class _Member:
    """A run of a list; `whole` is the handle of the attempt that does the list."""

    files: AttemptFiles
    token: str
    whole: str
    outcome: Outcome | None = None
    is_cancelled: bool = False


class ListEngine(Engine):
    """Lets an engine do lists: a list is one attempt of it, whose run spec holds those of its runs.

    It is submitted, found and stopped by the name of the list as its token. A run has ended once
    its own result is there, or its list has ended; the logs of its tables decide then.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.can_undo, self.is_shared, self.lists = engine.can_undo, engine.is_shared, True
        own = ("left", "starts", "takes_list", "also_writes")
        for name in ("live", "open", "check", "waits", "examine", *own):
            if hasattr(engine, name):
                setattr(self, name, getattr(engine, name))
        self._members: dict[str, _Member] = {}
        self._listener: Callable[[str], None] = lambda _handle: None
        self._changed, self._closing = threading.Event(), threading.Event()
        self._follower = threading.Thread(target=self._follow, name="lists", daemon=True)

    def remember(
        self, known: Mapping[str, EngineRun], keep: Callable[[str, int, EngineRun], None]
    ) -> None:
        """Take what the run store knows, also by the name of each list, which is its run id."""
        lists = {run.facts["token"]: run for run in known.values() if "token" in run.facts}
        self._engine.remember({**lists, **known}, keep)

    def listen(self, listener: Callable[[str], None]) -> None:
        self._listener = listener
        self._engine.listen(self._heard)

    def submit(self, spec_path: Path, token: str) -> str:
        return self._engine.submit(spec_path, token)

    def submit_list(self, specs: Mapping[str, Path]) -> list[str]:
        name = list_of(next(iter(specs)))
        try:
            path = _written(name, specs.values())
        except FileExistsError as error:
            raise EngineError(f"the list {name} was taken over by another executor") from error
        whole = self._engine.submit(path, name)
        return [self._joined(path, token, whole) for token, path in specs.items()]

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt; its list begins now if it may have begun unseen."""
        if not list_of(token):
            return self._engine.find(spec_path, token)
        files, (whole, name) = AttemptFiles(spec_path), _whole(spec_path, token)
        if not files.has_token(token):
            return None
        outcome = None
        with suppress(ServiceUnreachableError):  # it is asked again
            outcome = self.left(spec_path, token)
        if outcome is None:
            if self.is_shared:
                with suppress(FileExistsError):
                    _written(name, [spec_path])
            found = self._engine.find(whole, name)
            if found is None and (outcome := reconcile(files)) is None:
                return None
        return self._joined(spec_path, token, str(whole), outcome)

    def can_tell(self, spec_path: Path, token: str) -> bool:
        is_known = self._engine.can_tell(*_whole(spec_path, token))
        return is_known or self.left(spec_path, token) is not None

    def poll(self, handle: str) -> Outcome:
        one = self._members.get(handle)
        if one is None:
            return self._engine.poll(handle)
        if one.outcome is not None:
            return one.outcome
        now = self._engine.poll(one.whole)
        return Outcome(state=AttemptState.RUNNING) if now.state.is_final else now

    def identify(self, handle: str) -> EngineRun | None:
        one = self._members.get(handle)
        return self._engine.identify(handle if one is None else one.whole)

    def cancel(self, handle: str) -> None:
        """Stop the attempt; a list is stopped once that is asked for all of its runs."""
        one = self._members.get(handle)
        if one is None:
            self._engine.cancel(handle)
            return
        one.is_cancelled = True
        if all(other.is_cancelled for other in self._open(one.whole)):
            self._engine.cancel(one.whole)

    def close(self) -> None:
        self._closing.set()
        self._changed.set()
        self._engine.close()

    # Inside

    def _joined(
        self, spec_path: Path, token: str, whole: str, outcome: Outcome | None = None
    ) -> str:
        """Follow a run of a list; return its handle."""
        files = AttemptFiles(spec_path)
        with suppress(OSError):
            files.claim({"log": str(AttemptFiles(Path(whole)).log_path)})
        self._members.setdefault(str(spec_path), _Member(files, token, whole, outcome))
        if self._follower.ident is None:
            self._follower.start()
        self._changed.set()
        return str(spec_path)

    def _open(self, whole: str) -> list[_Member]:
        """Return the runs of a list that have not ended, in its order."""
        found = [
            one for one in [*self._members.values()] if one.whole == whole and one.outcome is None
        ]
        return sorted(found, key=lambda one: int(one.token.rpartition(".")[2]))

    def _heard(self, handle: str) -> None:
        members = self._open(handle)
        for one in members:
            self._listener(str(one.files.spec_path))
        if not members:
            self._listener(handle)
        self._changed.set()

    def _follow(self) -> None:
        while not self._closing.is_set():
            self._changed.wait(_LOOK)
            self._changed.clear()
            for whole in {one.whole for one in [*self._members.values()] if one.outcome is None}:
                try:
                    self._look_at(whole)
                except BackfillError:
                    continue  # no answer: it is asked again
                except Exception as error:  # noqa: BLE001 - the end must always be reported
                    for one in self._open(whole):
                        self._end(one, Outcome(state=AttemptState.FAILED, error=repr(error)))

    def _look_at(self, whole: str) -> None:
        now = self._engine.poll(whole)
        members = self._open(whole)
        for one in members:
            outcome = self._outcome(one, now)
            if outcome is None or (one is members[-1] and not now.state.is_final):
                return  # those after it have not begun; the last one waits for logs and cores
            self._end(one, outcome)

    def _end(self, one: _Member, outcome: Outcome) -> None:
        one.outcome = outcome
        self._listener(str(one.files.spec_path))

    def _outcome(self, one: _Member, now: Outcome) -> Outcome | None:
        """Return the outcome by the result, else by the tables' logs, else by that of the list."""
        left = self.left(one.files.spec_path, one.token)
        if left is not None or not now.state.is_final:
            return left
        if (proved := reconcile(one.files)) is not None or now.state is AttemptState.CANCELLED:
            return proved or now
        why = f"its list ended without its result{f': {now.error}' if now.error else ''}"
        return Outcome(state=AttemptState.FAILED, error=why, transient=True)


def _whole(spec_path: Path, token: str) -> tuple[Path, str]:
    """Return run spec and token of the list that an attempt is in, else its own."""
    name = list_of(token)
    return (spec_path.with_name(f"{name}.spec.json"), name) if name else (spec_path, token)


def _written(name: str, paths: Iterable[Path]) -> Path:
    """Write the run spec of a list, once; for one of another machine, with the first run found."""
    runs: list[Mapping[str, Any]] = [AttemptFiles(path).spec() for path in paths]
    path = next(iter(paths)).with_name(f"{name}.spec.json")
    job = {**runs[0]["job"], "name": f"{len(runs)} runs"}
    result = str(path.with_name(f"{name}.result.json"))
    spec = {"run_id": name, "attempt": 1, "token": name, "job": job, "result_path": result}
    with whole_file(path, replace=False, is_private=True) as file:
        file.write(json.dumps({**spec, "runs": runs}).encode())
    return path
