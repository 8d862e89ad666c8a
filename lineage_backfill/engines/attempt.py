"""The files of one attempt: its run spec, its result, its log and who works on it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lineage_backfill.errors import EngineError, SpecError
from lineage_backfill.files import private_folder, whole_file
from lineage_backfill.ports import AttemptState, Outcome
from lineage_backfill.runspec.parse import check_result

_log = logging.getLogger(__name__)
_LONG = 4_000_000  # bytes of a file that is not packed
#: What reading a file can meet that others write, or that a crash of the machine left empty.
_DAMAGED = (OSError, ValueError, RecursionError, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """The run spec of an attempt, written by the executor, and what an engine keeps beside it.

    The spec's name ends in `spec.json`; the others begin as it does. `pack` makes one of them all,
    from which each can still be read.
    """

    spec_path: Path

    @property
    def log_path(self) -> Path:
        """What the attempt has printed."""
        return self._beside("log.txt")

    @property
    def pack_path(self) -> Path:
        """What holds the files of an attempt that has ended well."""
        return self._beside("zip")

    @property
    def claim_path(self) -> Path:
        """Who works on the attempt."""
        return self._beside("claim.json")

    @property
    def exit_code_path(self) -> Path:
        """The exit code of the attempt's process, once that has ended."""
        return self._beside("exit-code")

    def _write_pack(self, paths: Sequence[Path]) -> None:
        with whole_file(self.pack_path) as file:
            os.fchmod(file.fileno(), 0o600)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as pack:
                for path in paths:
                    pack.write(path, path.name)

    def exit_code(self) -> int | None:
        """Return the exit code of the attempt's process, None if none was written down."""
        try:
            return int(self.read(self.exit_code_path))
        except _DAMAGED:
            return None

    def _beside(self, name: str) -> Path:
        return self.spec_path.with_name(self.spec_path.name.removesuffix("spec.json") + name)

    def spec(self) -> Mapping[str, Any]:
        """Return the run spec."""
        spec: Mapping[str, Any] = json.loads(self.read(self.spec_path))
        return spec

    def read(self, path: Path) -> bytes:
        """Return what one of the files holds, packed or not; raises FileNotFoundError, OSError."""
        try:
            if path.exists() and not path.is_file():  # a pipe or a device would not end
                raise OSError(f"{path} is not a file")
            return path.read_bytes()
        except FileNotFoundError:
            with zipfile.ZipFile(self.pack_path) as pack:
                try:
                    return pack.read(path.name)
                except KeyError:
                    raise FileNotFoundError(str(path)) from None

    def pack(self) -> None:
        """Make one file of those of an attempt that has ended; one that cannot be made is logged.

        A long log stays a file of its own. What breaks off in the middle leaves all files.
        """
        names = ("log.txt", "claim.json", "exit-code", "result.json", "spec.json")
        beside = [path for path in map(self._beside, names) if path.is_file()]
        found = [p for p in beside if not p.is_symlink() and p.stat().st_size <= _LONG]
        try:
            if not self.pack_path.exists():
                self._write_pack(found)
            with zipfile.ZipFile(self.pack_path) as pack:  # perhaps one that broke off after it
                packed = pack.namelist()
            for path in (path for path in found if path.name in packed):
                path.unlink()
        except OSError as error:
            _log.warning("the files of %s are not packed: %s", self.spec_path.name, error)

    def check_token(self, token: str) -> None:
        """Raise EngineError unless the run spec has this token."""
        if self.spec()["token"] != token:
            raise EngineError(f"the run spec {self.spec_path} has another token than {token}")

    def has_token(self, token: str) -> bool:
        """Whether a whole run spec with this token is there; half a one was never handed over."""
        try:
            return bool(self.spec()["token"] == token)
        except (*_DAMAGED, KeyError, TypeError):
            return False

    def log_place(self) -> tuple[Path, int]:
        """Return where what the attempt prints stands, and at which byte it begins.

        A file of its own, or as long as there is none, the one of the worker that does it.
        """
        claim = {} if self._has_log() else self.claimed_by() or {}
        return Path(claim.get("log", self.log_path)), claim.get("log_start", 0)

    def _has_log(self) -> bool:
        if self.log_path.exists() or not self.pack_path.exists():
            return self.log_path.exists()
        with zipfile.ZipFile(self.pack_path) as pack:
            return self.log_path.name in pack.namelist()

    def log(self) -> str:
        """Return what the attempt has printed so far, as far as it stands on this machine."""
        try:
            return self.log_end().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_end(self, most: int | None = None) -> bytes:
        """Return the last bytes of what the attempt has printed, at most so many.

        Raises FileNotFoundError where that is not on this machine.
        """
        place, begin = self.log_place()
        try:
            with place.open("rb") as file:
                file.seek(begin if most is None else max(begin, place.stat().st_size - most))
                return file.read() if most is None else file.read(most)
        except FileNotFoundError:
            return self.read(place)[-(most or 0) :]

    def left(self, token: str) -> Outcome | None:
        """Return the outcome of the attempt with this token, as far as it has left one here."""
        return self.outcome() if self.has_token(token) else None

    def outcome(self) -> Outcome | None:
        """Return what the result file says, None as long as there is none of this attempt."""
        place = "of the run spec"
        try:
            spec = self.spec()
            place = spec["result_path"]
            result = json.loads(self.read(Path(place)), parse_constant=_refuse, parse_float=_finite)
            if result["token"] != spec["token"]:
                return None
            check_result(result)
        except FileNotFoundError:
            return None
        except (SpecError, KeyError, TypeError, *_DAMAGED) as cause:
            why = cause if isinstance(cause, SpecError) else repr(cause)
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
        """Write down who works on the attempt, before it is asked to.

        Raises EngineError for an attempt that was given up. Each side writes before it looks for
        what the other has written, so never does one start what the other has given up.
        """
        with whole_file(self.claim_path) as file:
            file.write(json.dumps(claim).encode())
        if self._given_up.exists():
            raise EngineError(
                f"the attempt {self.spec_path} was given up by another executor",
                hint="Nothing is lost: that one has taken the backfill over; `watch` follows it.",
            )

    def earlier(self) -> Iterator[AttemptFiles]:
        """Yield the earlier attempts of the same run whose files are here."""
        number = int(self.spec().get("attempt", 1))
        name = self.spec_path.name.removesuffix(f"{number}.spec.json")
        paths = (self.spec_path.with_name(f"{name}{n}.spec.json") for n in range(1, number))
        yield from (AttemptFiles(path) for path in paths if path.exists())

    def give_up(self) -> bool:
        """Prevent any process from starting the attempt; False if someone has been asked."""
        private_folder(self.spec_path.parent)
        self._given_up.touch()
        return self.claimed_by() is None

    @property
    def _given_up(self) -> Path:
        return self._beside("given-up")

    def claimed_by(self) -> Mapping[str, Any] | None:
        """Return what `claim` has written, None if it was not claimed.

        One that a crash of the machine left empty is a claim of a process that has ended.
        """
        try:
            claim: Mapping[str, Any] = json.loads(self.read(self.claim_path))
        except FileNotFoundError:
            return None
        except _DAMAGED:
            return {}
        return claim

    def life_sign(self) -> LifeSign | None:
        """Return the life sign of who works on the attempt, None if no process does.

        A command that has ended may have left processes behind, which hold its sign.
        """
        claim = self.claimed_by() if self.exit_code() is None else None
        sign = LifeSign(Path(claim["life_sign"])) if claim else None
        return sign if sign is not None and sign.is_alive() else None


def read_from(path: Path, begin: int, end: int | None = None) -> bytes:
    """Return what a file holds from a byte on, up to another."""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read() if end is None else file.read(max(0, end - begin))


def _refuse(constant: str) -> float:
    """Refuse what only Python takes for JSON: no database keeps it."""
    raise ValueError(f"{constant} is not a JSON value")


def _finite(text: str) -> float:
    return float(text) if abs(float(text)) < float("inf") else _refuse(text)


def _error_text(error: Mapping[str, Any]) -> str:
    parts = (error.get("class"), error.get("message"))
    return ": ".join(str(part) for part in parts if part) or "the attempt failed without saying why"


class LifeSign:
    """A file that stays locked as long as a process lives that was given its descriptor.

    Unlike a process id it cannot come to mean another process, and one can wait for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def give(self) -> IO[str]:
        """Lock the file and return it, to be inherited by the process and closed by ours."""
        private_folder(self.path.parent)
        file = self.path.open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise EngineError(f"{self.path} is held by another process") from error
        return file

    def is_alive(self) -> bool:
        """Whether the process lives."""
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


def kill_group(pid: int) -> None:
    """Kill a process and its children, which share a group of their own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
