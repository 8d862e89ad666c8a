"""An operator and a sensor that call the command line of lineage-backfill."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

_UNDER_WAY = ("scheduled", "running", "paused")
_ALONE = 3  # polls without a driver after which a worker drives


class Tool:
    """Calls the command line in the folder of the project file; `command` may be another venv's."""

    project: str
    command: Sequence[str]
    _process: subprocess.Popen[str] | None = None

    def tool(self, *words: str, good: Collection[int] = (0,)) -> tuple[int, str]:
        """Return the exit code and stdout; stderr goes to the log of the task."""
        call = [*self.command, "--no-input", *words]
        print("$", *call)  # noqa: T201 - it stands in the log
        self._process = subprocess.Popen(call, cwd=self.project, stdout=subprocess.PIPE, text=True)
        with self._process as process:
            out, _ = process.communicate()
        if process.returncode not in good:
            raise RuntimeError(
                f"lineage-backfill {words[0]} ended with {process.returncode}: see the log above"
            )
        return process.returncode, out

    def on_kill(self) -> None:
        """Let the backfill start no more runs; those under way continue."""
        if self._process is not None:
            self._process.terminate()


class LineageBackfillOperator(Tool, BaseOperator):  # type: ignore[misc] # its types are not installed here
    """Repairs what a change of a dataset made stale; without a dataset, what `stale` lists.

    `project` is the folder of the project file, `keys` as of `--partitions`, `arguments` are more
    options of `run` or `catchup`. The backfill names its task instance in the run store: a later
    try finds it, and resumes it, or retries it if it has failed.
    """

    template_fields = ("project", "dataset", "keys", "arguments")

    def __init__(
        self,
        *,
        project: str,
        dataset: str = "",
        keys: str = "",
        arguments: Sequence[str] = (),
        command: Sequence[str] = ("lineage-backfill",),
        deferrable: bool = True,
        poll: float = 30,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.project, self.command = project, list(command)
        self.dataset, self.keys, self.arguments = dataset, keys, list(arguments)
        self.deferrable, self.poll = deferrable, poll

    def execute(self, context: Any) -> str | None:
        """Start a backfill, or find that of an earlier try; return its id once it has ended."""
        one = context["ti"]
        label = f"Airflow {one.dag_id}/{one.run_id}/{one.task_id}/{one.map_index}"
        found = json.loads(self.tool("history", "--json")[1])["backfills"]
        last = next((one for one in found if one["description"] == label), None)
        if last is not None and last["state"] == "failed":
            return self._end("retry", last["id"])
        if last is None or last["state"] in ("succeeded", "cancelled"):
            last = self._start(label)
        if last is None:
            return None
        if self.deferrable:
            trigger = BackfillTrigger(self.project, self.command, last["id"], self.poll)
            self.defer(trigger=trigger, method_name="finish")
        return self._end("resume", last["id"])

    def finish(self, _context: Any, event: str) -> str:
        """End with the code of the backfill, which is resumed if its driver has died."""
        return self._end("resume", event)

    def _start(self, label: str) -> Any:
        words = ["run", self.dataset] if self.dataset else ["catchup"]
        words += ["--partitions", self.keys] if self.keys else []
        given = [*self.arguments, "--detach", "--yes", "--json", "--description", label]
        return json.loads(self.tool(*words, *given)[1] or "null")

    def _end(self, verb: str, backfill: str) -> str:
        self.tool(verb, backfill, "--wait")
        return backfill


class BackfillTrigger(BaseTrigger):  # type: ignore[misc] # its types are not installed here
    """Waits until a backfill has ended, or needs a driver."""

    def __init__(self, project: str, command: Sequence[str], backfill: str, poll: float) -> None:
        super().__init__()
        self._facts: dict[str, Any] = {
            "project": project,
            "command": list(command),
            "backfill": backfill,
        }
        self._poll = poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return its name and arguments."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {**self._facts, "poll": self._poll}

    async def run(self) -> AsyncIterator[Any]:
        """Yield the id of the backfill."""
        alone = 0
        while alone < _ALONE:
            process = await asyncio.create_subprocess_exec(
                *self._facts["command"],
                *("status", self._facts["backfill"], "--json"),
                cwd=self._facts["project"],
                stdout=asyncio.subprocess.PIPE,
            )
            out, _ = await process.communicate()
            if process.returncode == 0:
                status = json.loads(out)
                if status["state"] not in _UNDER_WAY:
                    break
                is_alone = status["state"] == "running" and not status["driver"]
                alone = alone + 1 if is_alone else 0
            await asyncio.sleep(self._poll)
        yield TriggerEvent(self._facts["backfill"])


class LineageFreshSensor(Tool, BaseSensorOperator):  # type: ignore[misc] # its types are not installed here
    """Waits until nothing that some jobs write is stale; `select` as of `stale --select`."""

    template_fields = ("project", "select")

    def __init__(
        self,
        *,
        project: str,
        select: Sequence[str] = (),
        command: Sequence[str] = ("lineage-backfill",),
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.project, self.command, self.select = project, list(command), list(select)

    def poke(self, _context: Any) -> bool:
        """Whether `stale` lists nothing."""
        selected = [word for name in self.select for word in ("--select", name)]
        return self.tool("stale", "--detailed-exitcode", *selected, good=(0, 2))[0] == 0
