"""Asks a program of the user which keys of a job are being run by others."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lineage_backfill.engines.command import arguments
from lineage_backfill.errors import ConfigError, UnfitRunError
from lineage_backfill.model import JobRef
from lineage_backfill.partitions.text import KeySet

#: The placeholders of `live`.
PLACEHOLDERS = ("job", "namespace")
_PATIENCE = 60.0  # seconds


class LiveCommand:
    """Starts `argv`, without a shell, and reads the keys that it prints as a JSON array.

    `{job}` and `{namespace}` stand for those of the job that is asked about; the project's folder
    is its working directory. Raises ConfigError for any other placeholder.
    """

    def __init__(self, engine: str, argv: Sequence[str], folder: Path) -> None:
        try:
            arguments.check(argv, PLACEHOLDERS)
        except ValueError as error:
            raise ConfigError(f"`live` of engine {engine!r} does not fit: {error}") from error
        self._engine = engine
        self._argv = tuple(argv)
        self._folder = folder

    def __call__(self, job: JobRef) -> KeySet:
        """Return the run keys of the job that are under way; raises UnfitRunError."""
        argv = arguments.filled(self._argv, {"job": job.name, "namespace": job.namespace})
        try:
            answer = subprocess.run(
                argv,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._error(f"cannot be asked: {error}", "") from error
        if answer.returncode:
            raise self._error(f"ended with exit code {answer.returncode}", answer.stderr)
        try:
            keys = json.loads(answer.stdout)
        except ValueError as error:
            raise self._error("printed output that is not JSON", answer.stdout) from error
        if not isinstance(keys, list):
            raise self._error("printed JSON that is not an array of keys", answer.stdout)
        return tuple(keys)

    def _error(self, what: str, said: str) -> UnfitRunError:
        return UnfitRunError(
            f"cannot determine which keys others run: `live` of engine {self._engine!r} {what}",
            hint="Fix it, or run with LINEAGE_BACKFILL_RUN_LIVE_RUNS=ignore.",
            lines=tuple(said.strip().splitlines()[-5:]),
        )
