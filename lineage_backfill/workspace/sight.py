"""What a user may see of a project: its lineage and its documents without the rest."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, TypeVar

from msgspec import structs

from lineage_backfill.errors import UnknownNameError
from lineage_backfill.lineage.snapshot import JobNode, LineageSnapshot
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.plans.document import plan_from_dict, plan_to_dict
from lineage_backfill.plans.plan import Plan
from lineage_backfill.ports import BackfillRecord, RunStore
from lineage_backfill.project.access import Reach
from lineage_backfill.project.declarations import Declarations
from lineage_backfill.store.rules import unknown_backfill
from lineage_backfill.workspace.backfills import Backfills, Current
from lineage_backfill.workspace.workspace import Workspace

Ref = JobRef | DatasetRef
_Node = TypeVar("_Node", JobRef, DatasetRef)

HIDDEN: Final = "(hidden)"
#: Members of documents with words and ids of ours, which a hidden name may equal.
_OURS: Final = frozenset(
    ("kind", "id", "state", "status", "act", "door", "backfill", "plan", "engine", "mapping")
)
_WORD: Final = re.compile(r"[\w.:/@+%-]+")
#: Members of documents whose keys are names.
_BY_NAME: Final = frozenset(("parts", "calendars"))
_EDGES: Final = (
    *("reads", "writes", "former_reads", "former_writes"),
    *("inner", "parts", "from_columns"),
)


class Sight:
    """The lineage and the documents of a workspace as far as a user's reach goes."""

    def __init__(self, reach: Reach, whole: Workspace) -> None:
        self.reach = reach
        self._whole = whole
        edges = whole.resolver.edges
        every: list[Ref] = [*edges.jobs, *edges.datasets]
        seen = {one.name for one in every if reach.sees(one)}
        #: The hidden names, bare and with their namespace.
        self._names = {str(one) for one in every if not reach.sees(one)}
        self._names |= {one.name for one in every if not reach.sees(one)} - seen
        self._odd = [name for name in self._names if not _WORD.fullmatch(name)]
        self.hidden_jobs = sum(not reach.sees(one) for one in edges.jobs)

    def text(self, text: str) -> str:
        """Return a text without hidden names."""
        if text in self._names:
            return HIDDEN
        for name in self._odd:
            text = text.replace(name, HIDDEN)
        return _WORD.sub(self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        bare = word.strip(".:")
        return word.replace(bare, HIDDEN) if bare in self._names else word

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document without what is hidden; its plan says how many jobs that are."""
        found: dict[str, Any] = self._seen(document)
        if document.get("kind") == "plan" and (hidden := self._hidden_jobs(document["jobs"])):
            found["warnings"].append(f"{hidden} hidden job{'s' * (hidden > 1)}")
        return found

    def _hidden_jobs(self, jobs: Iterable[Mapping[str, Any]]) -> int:
        return sum(self._is_hidden(one) for one in jobs)

    def _is_hidden(self, value: Any) -> bool:
        """Whether this names a hidden job or dataset, or is about one."""
        if not isinstance(value, Mapping):
            return False
        if isinstance(name := value.get("name"), str) and "namespace" in value:
            return not self.reach.sees(DatasetRef(value["namespace"] or "", name))
        return any(self._is_hidden(value.get(about)) for about in ("job", "dataset"))

    def _seen(self, value: Any, member: str = "") -> Any:
        if isinstance(value, Mapping):
            if self._is_hidden(value) and "namespace" in value:
                return {"namespace": "", "name": HIDDEN}
            by_name = member in _BY_NAME
            return {
                name: self._seen(one, name)
                for name, one in value.items()
                if not (by_name and self.text(name) != name)
            }
        if isinstance(value, list | tuple):
            return [self._seen(one, member) for one in value if not self._is_hidden(one)]
        return self.text(value) if isinstance(value, str) and member not in _OURS else value

    def plan(self, plan: Plan) -> Plan:
        """Return a plan without what is hidden, under its own hash."""
        return plan_from_dict(self.document(plan_to_dict(plan)), only_shown=True)

    def sees_backfill(self, jobs: Collection[JobRef]) -> bool:
        """Whether a backfill of these jobs may be seen: any of them may."""
        return any(map(self.reach.sees, jobs))

    # --- the lineage ----------------------------------------------------------------------------

    @cached_property
    def workspace(self) -> Workspace:
        """The workspace without what is hidden: for pages and names, not for plans."""
        whole = self._whole
        declarations = self._declarations(whole.project.declarations)
        project = replace(whole.project, declarations=declarations)
        snapshot = self._snapshot(whole.snapshot)
        return Workspace(project, as_of=whole.now, read=lambda: snapshot)

    def _some(self, refs: Iterable[_Node]) -> tuple[_Node, ...]:
        return tuple(one for one in refs if self.reach.sees(one))

    def _snapshot(self, whole: LineageSnapshot) -> LineageSnapshot:
        sees = self.reach.sees
        return replace(
            whole,
            jobs={ref: self._job(node) for ref, node in whole.jobs.items() if sees(ref)},
            datasets={
                ref: structs.replace(node, aliases=self._some(node.aliases))
                for ref, node in whole.datasets.items()
                if sees(ref)
            },
            column_edges=tuple(
                one
                for one in whole.column_edges
                if sees(one.job) and sees(one.input) and sees(one.output)
            ),
            history=tuple(one for one in whole.history if sees(one.job)),
        )

    def _job(self, node: JobNode) -> JobNode:
        sees = self.reach.sees
        kept: dict[str, Any] = {name: self._some(getattr(node, name)) for name in _EDGES}
        is_whole = all(len(kept[name]) == len(getattr(node, name)) for name in _EDGES)
        return structs.replace(
            node,
            **kept,
            parent=node.parent if node.parent and sees(node.parent) else None,
            query=node.query if is_whole else None,
            covers=tuple(one for one in node.covers if all(map(sees, one))),
            modes=tuple(one for one in node.modes if sees(one[0])),
            past_reads=tuple((at, self._some(refs)) for at, refs in node.past_reads),
        )

    def _declarations(self, whole: Declarations) -> Declarations:
        """Return the declarations without tables and edges of hidden names."""

        def seen(name: str, namespace: str | None) -> bool:
            space = namespace or whole.namespace
            return name not in self._names and f"{space}:{name}" not in self._names

        return replace(
            whole,
            datasets=tuple(one for one in whole.datasets if seen(one.name, one.namespace)),
            jobs=tuple(
                replace(
                    one,
                    reads=tuple(e for e in one.reads if seen(e.dataset, e.namespace)),
                    writes=tuple(e for e in one.writes if seen(e.dataset, e.namespace)),
                )
                for one in whole.jobs
                if seen(one.name, one.namespace)
            ),
        )


class SeenBackfills(Backfills):
    """The backfills of a workspace that a user may see, and of these what they may see."""

    def __init__(self, workspace: Workspace, sight: Sight) -> None:
        super().__init__(workspace)
        self._sight = sight

    def history(self, *, hidden: bool = False) -> dict[str, Any]:
        """Return the document of the backfills that may be seen."""
        with self.workspace.open_store() as store:
            jobs = store.jobs()
        document = super().history(hidden=hidden)
        seen = [
            one
            for one in document["backfills"]
            if self._sight.sees_backfill(jobs.get(one["id"], ()))
        ]
        return self._sight.document(document | {"backfills": seen, "hidden": 0})

    def status(self, backfill: str | None = None) -> dict[str, Any]:
        """Return the status document of a backfill."""
        return self._sight.document(super().status(self._known(backfill)))

    def current(self, backfill: str, known: Current | None = None) -> Current:
        """Return the status document of a backfill; what is known is that of all."""
        found = super().current(self._known(backfill), known)
        return replace(found, status=self._sight.document(found.status))

    def report(self, backfill: str | None = None) -> dict[str, Any]:
        """Return the report document of a backfill."""
        return self._sight.document(super().report(self._known(backfill)))

    def plan_documents(self, backfill: str) -> tuple[BackfillRecord, list[Mapping[str, Any]]]:
        """Return the record of a backfill, and the documents of its plan and of its tails."""
        record, every = super().plan_documents(self._known(backfill))
        text = self._sight.text
        record = replace(
            record,
            title=text(record.title),
            changed=text(record.changed),
            reason=text(record.reason),
            description=text(record.description),
        )
        return record, [self._sight.document(one) for one in every]

    def run(self, backfill: str, run_id: str) -> dict[str, Any]:
        """Return the document of one run of a backfill; raises UnknownNameError."""
        found = super().run(self._known(backfill), run_id)
        if not self._sight.reach.sees(JobRef(**found["job"])):
            raise UnknownNameError(f"{backfill} has no run {run_id!r}")
        return self._sight.document(found)

    def _known(self, backfill: str | None) -> str:
        """Return the id of a backfill; raises UnknownNameError if it may not be seen."""
        with self.workspace.open_store() as store:
            refuse_hidden(store, backfill, self._sight.reach)
        return backfill or ""


def refuse_hidden(store: RunStore, backfill: str | None, reach: Reach) -> None:
    """Raise UnknownNameError unless this is the id of a backfill that may be seen."""
    id_ = backfill or ""
    if not reach.sees_all and not any(map(reach.sees, store.jobs(id_).get(id_, ()))):
        raise unknown_backfill(id_, ())
