"""Runs each attempt as a command of the user's own, without a shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.process import ProcessEngine, ended
from lineage_backfill.engines.runtime import refuse_missing
from lineage_backfill.plans.plan import PlannedRun
from lineage_backfill.ports import AttemptState, Outcome

#: The placeholders of `argv` and their values.
PLACEHOLDERS = ("spec", "result", "token", "run_id", "backfill_id", "attempt", "job", "entrypoint")


class CommandEngine(ProcessEngine):
    """Starts `argv` for each attempt; a placeholder such as `{spec}` stands for a value.

    A value is only ever a part of the argument with its placeholder. The command succeeds by its
    result file, or by exit code 0 if it writes none. `undo` states that it supports `undo` in the
    run spec, as `python -m spark_runtime run` does.
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
        if not argv:
            raise ValueError("`argv` is empty")
        _check(argv)
        super().__init__(project=project, state_dir=state_dir, env=env)
        self._argv = tuple(argv)
        self.can_undo = undo

    def command(self, files: AttemptFiles) -> Sequence[str]:
        """Return `argv` with the attempt's values."""
        return _filled(self._argv, {**files.spec(), "spec": files.spec_path})

    def check(
        self, runs: Sequence[PlannedRun], spec_of: Callable[[PlannedRun], Mapping[str, Any]]
    ) -> None:
        """Refuse runs whose program does not exist."""
        by_job = list({run.job: run for run in runs}.values())
        for run in by_job if "{" in self._argv[0] else by_job[:1]:
            (program,) = _filled(self._argv[:1], spec_of(run))
            refuse_missing(program, self.project, self.environment)

    def judge(
        self, files: AttemptFiles, *, reported: Outcome | None, code: int | None
    ) -> Outcome | None:
        """Judge by the result file, else by the exit code."""
        if reported is not None or code is None:
            return reported
        return Outcome(state=AttemptState.SUCCEEDED) if code == 0 else ended(files, code)


def _filled(argv: Sequence[str], spec: Mapping[str, Any]) -> list[str]:
    job = spec.get("job", {})
    values = {
        **spec,
        "result": spec.get("result_path", ""),
        "job": job.get("name", ""),
        "entrypoint": job.get("entrypoint", ""),
    }
    texts = {name: str(values.get(name, "")) for name in PLACEHOLDERS}
    return [item.format_map(texts) for item in argv]


def _check(argv: Sequence[str]) -> None:
    """Raise ValueError unless every placeholder is known and can be filled."""
    names = [name for item in argv for _, name, _, _ in Formatter().parse(item)]
    for name in names:
        if name is not None and name not in PLACEHOLDERS:
            raise ValueError(
                f"{{{name}}} is not a placeholder: use {', '.join(PLACEHOLDERS)}, or {{{{ for a"
                " brace"
            )
    _filled(argv, {})  # such as {job:d}, which does not format text
