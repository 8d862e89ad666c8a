"""Datasets that lineage names by their place, tied to the ones declared to lie there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from msgspec import structs

from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.merge import merge_datasets
from lineage_backfill.lineage.snapshot import DatasetNode, LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.locations import (
    dataset_storage,
    dataset_table,
    storage,
    table_parts,
    without_partition,
)
from lineage_backfill.project.matching import Matcher, is_glob

Parts = tuple[str, ...]


class Places:
    """The datasets of a project that say by `location` or `table` where they lie.

    A dataset of the lineage is the declared one if one of its names means that place; see
    `project.locations`. A partition's folder is a part of the table above it.
    """

    def __init__(self, declarations: Declarations) -> None:
        self._home, self._jobs = declarations.namespace, declarations.jobs
        self._exact = Matcher(
            [one for one in declarations.datasets if not is_glob(one.name)],
            self._home,
            lambda one: one.name,
        )
        self._stored: dict[str, list[DatasetDeclaration]] = {}
        self._tables: dict[Parts, list[DatasetDeclaration]] = {}
        for one in declarations.datasets:
            if is_glob(one.name):
                continue
            if one.location and (form := storage(one.location)):
                self._stored.setdefault(form, []).append(one)
            if one.table:
                parts = table_parts(one.table)
                for known in {parts, parts[-2:]}:
                    self._tables.setdefault(known, []).append(one)

    def find(self, name: DatasetRef, *, linked: bool = False) -> list[DatasetDeclaration]:
        """Return what is declared to lie where a name means; several where that is not clear."""
        if self._stored and (form := dataset_storage(*name[:2])):
            found = self._stored.get(form) or self._stored.get(without_partition(form))
            if found:
                return found
        if self._tables and (parts := dataset_table(*name[:2], linked=linked)):
            tables = self._tables.get(parts) or self._tables.get(parts[-2:], [])
            named = [(one, table_parts(one.table or "")) for one in tables]
            same = [one for one, of in named if of == parts]
            return same or [one for one, of in named if _meet(of, parts)]
        return []

    def located(self, text: str, known: Iterable[DatasetRef]) -> DatasetRef | None:
        """Return the dataset that is declared to lie at a location; None where none is."""
        form = storage(text)
        found = self._stored.get(form, []) if form else []
        return self._ref(found[0], known) if len(found) == 1 else None

    def tie(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        """Return the lineage with each declared dataset in place of those that mean its place.

        Raises DeclarationError where a dataset would be two declared ones, or a table may lie in
        two catalogs.
        """
        former = (
            node for node in snapshot.jobs.values() if node.former_reads or node.former_writes
        )
        refs = {*snapshot.datasets}
        refs.update(ref for node in former for ref in (*node.former_reads, *node.former_writes))
        into: dict[DatasetRef, DatasetRef] = {}
        for ref in sorted(refs):
            node = snapshot.datasets.get(ref) or DatasetNode(ref=ref)
            declared = self._declared(node)
            if declared is not None:
                target = self._ref(declared, snapshot.datasets)
                if target != ref and self._exact.find(ref) is not declared:
                    into[ref] = target
        self._refuse_two_catalogs(into, snapshot)
        if not into:
            return snapshot
        self._refuse_edges(into)
        merged = merge_datasets(snapshot, into)
        parts: dict[DatasetRef, list[DatasetRef]] = {}
        for ref, target in into.items():
            parts.setdefault(target, []).append(ref)
        datasets = dict(merged.datasets)
        for target, tied in parts.items():
            datasets[target] = _completed(datasets.get(target), target, tied, snapshot)
        return replace(merged, datasets=dict(sorted(datasets.items())))

    def _declared(self, node: DatasetNode) -> DatasetDeclaration | None:
        named: list[DatasetDeclaration] = []
        for ref in (node.ref, *node.aliases):
            own = self._exact.find(ref)
            # Without a namespace it may be any of that name: the dataset keeps the one it has.
            if own is not None and (ref == node.ref or own.namespace or self._home):
                named.append(own)
            named += self.find(ref, linked=bool(node.aliases))
        found = dict.fromkeys(named)
        if len(found) > 1:
            names = " and ".join(sorted(f'"{one.name}"' for one in found))
            raise DeclarationError(
                f"dataset {node.ref} is declared twice by its name and place: {names}",
                hint="Give each place to one [[dataset]]: correct a `location` or `table`, or leave"
                " a table out.",
            )
        return next(iter(found), None)

    def _ref(self, declared: DatasetDeclaration, known: Iterable[DatasetRef]) -> DatasetRef:
        space = declared.namespace or self._home
        if space is None:
            spaces = {ref.namespace for ref in known if ref.name == declared.name}
            space = spaces.pop() if len(spaces) == 1 else "default"
        return DatasetRef(space, declared.name)

    def _refuse_edges(self, into: Mapping[DatasetRef, DatasetRef]) -> None:
        """Raise DeclarationError for a declared edge by a name that stands for another one now."""
        for job in self._jobs:
            edges: list[ReadDeclaration | WriteDeclaration] = [*job.reads, *job.writes]
            for edge in edges:
                space = edge.namespace or self._home
                for ref, target in into.items() if not is_glob(edge.dataset) else ():
                    if edge.dataset == ref.name and space in (None, ref.namespace):
                        raise DeclarationError(
                            f"job {job.name!r} names dataset {ref}, which is declared as {target}",
                            hint=f'Write dataset = "{target.name}" there.',
                        )

    def _refuse_two_catalogs(
        self, into: Mapping[DatasetRef, DatasetRef], snapshot: LineageSnapshot
    ) -> None:
        catalogs: dict[DatasetRef, dict[str, DatasetRef]] = {}
        for ref, target in into.items():
            node = snapshot.datasets.get(ref) or DatasetNode(ref=ref)
            for name in (ref, *node.aliases):
                parts = dataset_table(*name[:2], linked=bool(node.aliases))
                if parts is not None and len(parts) == 3:
                    catalogs.setdefault(target, {})[parts[0]] = name
        for target, found in catalogs.items():
            if len(found) > 1:
                raise DeclarationError(
                    f"the table of dataset {target} may be {' or '.join(map(str, found.values()))}",
                    hint="Write `table` with its catalog: catalog.schema.table.",
                )


def tied_names(node: DatasetNode, places: Places) -> Iterator[DatasetRef]:
    """Yield those names of a declared dataset that its place ties to it."""
    return (ref for ref in node.aliases if places.find(ref, linked=True))


def _meet(one: Parts, other: Parts) -> bool:
    """Return whether two tables are one; a catalog that is not given may be any."""
    return one[-2:] == other[-2:] and (len(one) != len(other) or one == other)


def _completed(
    node: DatasetNode | None, target: DatasetRef, tied: list[DatasetRef], before: LineageSnapshot
) -> DatasetNode:
    """Return the node with the tied names, and with what the lineage says of the whole table."""
    node = node or DatasetNode(ref=target)
    whole = {ref: _whole(ref) for ref in tied}
    own = [ref for ref in tied if whole[ref] == ref]
    nodes = [before.datasets[ref] for ref in (*own, target) if ref in before.datasets]
    return structs.replace(
        node,
        aliases=tuple(sorted({*node.aliases, *whole.values()} - {target})),
        written=max(
            (one.written for one in nodes if one.written), key=lambda w: w.at, default=None
        ),
        dropped=bool(nodes) and all(one.dropped for one in nodes),
    )


def _whole(ref: DatasetRef) -> DatasetRef:
    """Return the name of the table that a partition's folder is a part of."""
    if dataset_storage(*ref[:2]) is None:
        return ref
    name = without_partition(ref.name.rstrip("/"))
    return ref if name == ref.name.rstrip("/") else DatasetRef(ref.namespace, name)
