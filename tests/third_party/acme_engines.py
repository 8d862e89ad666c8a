"""An engine as somebody else may ship it: the template of docs/engines.md."""

from collections.abc import Sequence
from typing import Any

from lineage_backfill.engines.attempt import AttemptFiles
from lineage_backfill.engines.process import ProcessEngine, ended
from lineage_backfill.ports import Outcome


class AcmeEngine(ProcessEngine):
    """Starts `program` with the path of the run spec; only result files count."""

    def __init__(self, *, program: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self._program = program

    def command(self, files: AttemptFiles) -> Sequence[str]:
        return [*self._program, str(files.spec_path)]

    def judge(
        self, files: AttemptFiles, *, reported: Outcome | None, code: int | None
    ) -> Outcome | None:
        return reported if reported is not None or code is None else ended(files, code)
