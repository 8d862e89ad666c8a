"""The files of one attempt: run spec, result, log, and the claim of its worker."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lineage_backfill.errors import EngineError, SpecError
from lineage_backfill.files import private, private_folder, read_file, reason, whole_file
from lineage_backfill.ports import AttemptState, Outcome
from lineage_backfill.runspec.parse import check_result
from lineage_backfill.runspec.strict_json import finite, refuse_constant

_log = logging.getLogger(__name__)
_PIECE = 1_000_000  # bytes of a file that are read at once
#: Errors of reading a file that others write, or that a crash left empty.
_DAMAGED = (OSError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """The run spec of an attempt, written by the executor, and the engine's files next to it.

    The spec's name ends in `spec.json`; the others have the same prefix.
    """

    spec_path: Path

    @property
    def log_path(self) -> Path:
        """The output of the attempt."""
        return self._beside("log.txt")

    @property
    def claim_path(self) -> Path:
        """The claim of the process that works on the attempt."""
        return self._beside("claim.json")

    @property
    def exit_code_path(self) -> Path:
        """The exit code of the attempt's process, once it has ended."""
        return self._beside("exit-code")

    def exit_code(self) -> int | None:
        """Return the exit code of the attempt's process, None if it was not recorded."""
        try:
            text = read_file(self.exit_code_path)
            return int(text) if text.endswith(b"\n") else None  # else it is unfinished
        except _DAMAGED:
            return None

    def _beside(self, name: str) -> Path:
        return self.spec_path.with_name(self.spec_path.name.removesuffix("spec.json") + name)

    def spec(self) -> Mapping[str, Any]:
        """Return the run spec."""
        spec: Mapping[str, Any] = json.loads(read_file(self.spec_path))
        return spec

    def check_token(self, token: str) -> None:
        """Raise EngineError unless the run spec has this token."""
        if self.spec()["token"] != token:
            raise EngineError(f"the run spec {self.spec_path} has another token than {token}")

    def has_token(self, token: str) -> bool:
        """Whether a complete run spec with this token exists; others were never submitted."""
        try:
            return bool(self.spec()["token"] == token)
        except (*_DAMAGED, KeyError, TypeError):
            return False

    def log_place(self) -> tuple[Path, int]:
        """Return the file with the attempt's output, and the byte at which it begins.

        It is the attempt's own file, or until that exists, the log of its worker.
        """
        claim = {} if self.log_path.exists() else self.claimed_by() or {}
        return Path(claim.get("log", self.log_path)), claim.get("log_start", 0)

    def log(self, most: int | None = None) -> str:
        """Return the output of the attempt so far, or its last bytes; empty if it is not here."""
        try:
            return self.log_end(most).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def add_to_log(self, text: str) -> None:
        """Append to the attempt's output; a new file can be read by its owner only."""
        with open(self.log_path, "a", encoding="utf-8", opener=private) as log:
            log.write(text)

    def log_end(self, most: int | None = None) -> bytes:
        """Return at most this many of the last bytes of the attempt's output.

        Raises FileNotFoundError if it is not on this machine.
        """
        place, begin = self.log_place()
        with place.open("rb") as file:
            file.seek(begin if most is None else max(begin, place.stat().st_size - most))
            return file.read() if most is None else file.read(most)

    def left(self, token: str) -> Outcome | None:
        """Return the outcome of the attempt with this token, if it left one here."""
        return self.outcome() if self.has_token(token) else None

    def outcome(self) -> Outcome | None:
        """Return the outcome in the result file, None if this attempt has none yet."""
        place = "of the run spec"
        try:
            spec = self.spec()
            place = spec["result_path"]
            result = json.loads(
                read_file(Path(place)), parse_constant=refuse_constant, parse_float=finite
            )
            if result["token"] != spec["token"]:
                return None
            check_result(result)
            for name in ("run_id", "attempt"):
                if result.get(name, spec.get(name)) != spec.get(name):
                    raise SpecError(f"result file.{name}: that of another attempt")
        except FileNotFoundError:
            return None
        except (SpecError, KeyError, TypeError, *_DAMAGED) as cause:
            is_other = isinstance(cause, KeyError | TypeError)
            why = "it must be an object with a `token`" if is_other else reason(cause)
            message = f"the result file {place} cannot be read: {why}"
            return Outcome(state=AttemptState.FAILED, error=message)
        error = result.get("error") or {}
        succeeded = result["state"] == "succeeded"
        return Outcome(
            state=AttemptState.SUCCEEDED if succeeded else AttemptState.FAILED,
            result=result,
            error=None if succeeded else _error_text(error),
            transient=bool(error.get("transient", False)),
        )

    def claim(self, claim: Mapping[str, Any]) -> None:
        """Record who works on the attempt, before asking them to.

        Raises EngineError for an abandoned attempt. Each side writes before it reads what
        the other side wrote, so an abandoned attempt is never started.
        """
        with whole_file(self.claim_path, is_private=True) as file:
            file.write(json.dumps(claim).encode())
        if self._given_up.exists():
            raise EngineError(
                f"the attempt {self.spec_path} was abandoned by another executor",
                hint="Nothing is lost: another process drives the backfill; `watch` follows it.",
            )

    def give_up(self) -> bool:
        """Prevent any process from starting the attempt; False if it was claimed."""
        private_folder(self.spec_path.parent)
        self._given_up.touch(0o600)
        return self.claimed_by() is None

    @property
    def _given_up(self) -> Path:
        return self._beside("given-up")

    def claimed_by(self) -> Mapping[str, Any] | None:
        """Return what `claim` wrote, None if it was not claimed.

        A claim that a crash left empty belongs to a process that has ended.
        """
        try:
            claim: Mapping[str, Any] = json.loads(read_file(self.claim_path))
        except FileNotFoundError:
            return None
        except _DAMAGED:
            return {}
        return claim

    def life_sign(self) -> LifeSign | None:
        """Return the life sign of the process that works on the attempt, None if there is none.

        A command that has ended may have left child processes, which hold its life sign.
        """
        claim = self.claimed_by() if self.exit_code() is None else None
        sign = LifeSign(Path(claim["life_sign"])) if claim else None
        return sign if sign is not None and sign.is_alive() else None

    def forget_life(self) -> None:
        """Remove the life sign of an attempt whose process has ended."""
        if claim := self.claimed_by():
            Path(claim["life_sign"]).unlink(missing_ok=True)


def read_from(path: Path, begin: int, end: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file from one position up to another, piece by piece."""
    with path.open("rb") as file:
        file.seek(begin)
        size = _PIECE
        while end is None or (size := min(_PIECE, end - file.tell())) > 0:
            piece = file.read(size)
            if not piece:
                return
            yield piece


def _error_text(error: Mapping[str, Any]) -> str:
    parts = (error.get("class"), error.get("message"))
    return (
        ": ".join(str(part) for part in parts if part)
        or "the attempt failed without an error message"
    )


class LifeSign:
    """A file that stays locked while a process with its descriptor is alive.

    Unlike a process id it is never reused, and one can wait for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def give(self) -> IO[str]:
        """Lock the file and return it: the new process inherits it, this one closes it."""
        private_folder(self.path.parent)
        file = open(self.path, "a", encoding="utf-8", opener=private)  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise EngineError(f"{self.path} is held by another process") from error
        return file

    def is_alive(self) -> bool:
        """Whether the process is alive."""
        try:
            with self.path.open("r", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

    def wait(self) -> None:
        """Wait until the process has ended."""
        with suppress(FileNotFoundError), self.path.open("r", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def signal_of(code: int) -> int:
    """Return the signal that an exit code tells of, as shells and the JVM do; 0 for none.

    >>> signal_of(-9), signal_of(137), signal_of(1), signal_of(255)
    (9, 9, 0, 0)
    """
    number = -code if code < 0 else code - 128
    return number if number in signal.valid_signals() else 0


def kill_group(pid: int) -> None:
    """Kill a process and its children, which share a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
