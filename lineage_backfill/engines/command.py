"""Runs each attempt as a command of the user's own, without a shell."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter

from lineage_backfill.engines.attempt import AttemptFolder, LifeSign, kill_group
from lineage_backfill.errors import EngineError
from lineage_backfill.ports import AttemptState, Outcome

#: What may stand in `argv`, and what of the attempt it stands for.
PLACEHOLDERS = ("spec", "result", "token", "run_id", "backfill_id", "attempt", "job", "entrypoint")


class CommandEngine:
    """Starts `argv` for each attempt; a placeholder such as `{spec}` stands for a value.

    A value never becomes more than a part of the one argument that names it. The command succeeds
    by its result file, or by exit code 0 where it writes none. `undo` says that it heeds `undo` in
    the run spec, as `python -m spark_runtime run` does.
    """

    def __init__(
        self,
        *,
        project: Path,
        state_dir: Path,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        undo: bool = False,
    ) -> None:
        named = {name for item in argv for _, name, _, _ in Formatter().parse(item) if name}
        if unknown := sorted(named - set(PLACEHOLDERS)):
            raise ValueError(
                f"`argv` names {', '.join(unknown)}; there are {', '.join(PLACEHOLDERS)}"
            )
        if not argv:
            raise ValueError("`argv` is empty")
        self._argv = tuple(argv)
        self.can_undo = undo
        self._project = project
        self._signs = state_dir / "commands"
        self._environment = dict(env or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cancelled: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._listener: Callable[[str], None] = lambda _handle: None

    def open(self) -> None:
        """Nothing to make ready."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call `listener(handle)` whenever an attempt has ended."""
        self._listener = listener

    def submit(self, spec_path: Path, token: str) -> str:
        """Start the command; raises EngineError if that cannot be done."""
        handle = str(spec_path.parent)
        if handle in self._processes:
            return handle
        if self.find(spec_path, token) is not None:
            if self.poll(handle).state.is_final:
                self._listener(handle)
            return handle
        folder = AttemptFolder(spec_path.parent)
        sign = LifeSign(self._signs / f"{token}.alive")
        folder.claim({"life_sign": str(sign.path)})
        try:
            with sign.give() as held, folder.log_path.open("wb") as log:
                process = subprocess.Popen(
                    self._filled(folder),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(held.fileno(),),
                    start_new_session=True,
                    cwd=self._project,
                    env={**os.environ, **self._environment},
                )
        except OSError as error:
            raise EngineError(
                f"{self._argv[0]} cannot be started: {error}",
                hint="See `argv` of this engine in the project file.",
            ) from error
        folder.claim({"life_sign": str(sign.path), "pid": process.pid})
        self._processes[handle] = process
        self._watch(handle, process.wait)
        return handle

    def find(self, spec_path: Path, token: str) -> str | None:
        """Return the handle of an attempt that has a result or whose command still runs."""
        handle = str(spec_path.parent)
        folder = AttemptFolder(spec_path.parent)
        if handle in self._processes:
            return handle
        if not spec_path.exists() or folder.spec()["token"] != token:
            return None
        if sign := _life_sign(folder):
            self._watch(handle, sign.wait)
            return handle
        return handle if folder.outcome() is not None else None

    def poll(self, handle: str) -> Outcome:
        """Return what is known of the attempt now."""
        folder = AttemptFolder(Path(handle))
        process = self._processes.get(handle)
        if (process is not None and process.poll() is None) or (
            process is None and _life_sign(folder)
        ):
            return Outcome(state=AttemptState.RUNNING)
        outcome = folder.outcome()
        if outcome is not None:
            return outcome
        if handle in self._cancelled:
            return Outcome(state=AttemptState.CANCELLED, error="stopped by the user")
        if process is None:
            gone = "the command ended after its executor and left no result"
            return Outcome(state=AttemptState.LOST, error=gone, transient=True)
        if process.returncode == 0:
            return Outcome(state=AttemptState.SUCCEEDED)
        return Outcome(
            state=AttemptState.FAILED,
            error=_ended(process.returncode),
            transient=process.returncode < 0,
        )

    def cancel(self, handle: str) -> None:
        """Stop the attempt by killing its process group."""
        process = self._processes.get(handle)
        if process is not None and process.poll() is None:
            self._cancelled.add(handle)
            kill_group(process.pid)
            return
        folder = AttemptFolder(Path(handle))
        claim = folder.claimed_by()
        if process is None and claim is not None and "pid" in claim and _life_sign(folder):
            self._cancelled.add(handle)
            kill_group(claim["pid"])

    def logs(self, handle: str) -> str:
        """Return what the attempt has printed so far."""
        try:
            path = AttemptFolder(Path(handle)).log_path
            return path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        """Stop what still runs."""
        for handle in list(self._processes):
            self.cancel(handle)
        for thread in self._threads:
            thread.join()

    def _filled(self, folder: AttemptFolder) -> list[str]:
        spec = folder.spec()
        job = spec.get("job", {})
        values = {
            **spec,
            "spec": folder.spec_path,
            "result": spec["result_path"],
            "job": job.get("name", ""),
            "entrypoint": job.get("entrypoint", ""),
        }
        shown = {name: str(values.get(name, "")) for name in PLACEHOLDERS}
        return [item.format_map(shown) for item in self._argv]

    def _watch(self, handle: str, wait: Callable[[], object]) -> None:
        def tell() -> None:
            wait()
            self._listener(handle)

        thread = threading.Thread(target=tell, name=f"watch {handle}", daemon=True)
        thread.start()
        self._threads.append(thread)


def _life_sign(folder: AttemptFolder) -> LifeSign | None:
    """Return the life sign of whoever works on the attempt, None if nobody does any more."""
    claim = folder.claimed_by()
    sign = LifeSign(Path(claim["life_sign"])) if claim else None
    return sign if sign is not None and sign.is_alive() else None


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
