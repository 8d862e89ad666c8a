"""Datasets that lineage names by their place: one for each place, the declared one where one is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from msgspec import structs

from lineage_backfill.errors import DeclarationError
from lineage_backfill.lineage.identity.merge import merge_datasets
from lineage_backfill.lineage.identity.naming import (
    catalog_space,
    is_named,
    plain_name,
    same_tables,
    spelling,
)
from lineage_backfill.lineage.snapshot import DatasetNode, LineageSnapshot
from lineage_backfill.model import DatasetRef
from lineage_backfill.project.declarations import (
    DatasetDeclaration,
    Declarations,
    ReadDeclaration,
    WriteDeclaration,
)
from lineage_backfill.project.forms import is_glob
from lineage_backfill.project.locations import (
    dataset_storage,
    dataset_table,
    storage,
    table_parts,
    without_file,
    without_partition,
)
from lineage_backfill.project.matching import DeclaredNames, Matcher, names, only_space
from lineage_backfill.project.matching import target as named_by

Parts = tuple[str, ...]
_Edge = ReadDeclaration | WriteDeclaration


class Places:
    """The datasets of a project that say by `location`, `table` or their name where they lie.

    All names of one place are one dataset (see `project.locations`), as are those that a platform
    reads as one (see `naming`), and declared aliases. A partition's folder is a part of the table
    above it, unless `folders` is False.
    """

    def __init__(self, declarations: Declarations, *, folders: bool = True) -> None:
        self._home = declarations.namespace
        self._above = without_partition if folders else without_file
        self._declared_names = DeclaredNames(declarations).datasets
        self._exact = Matcher(
            [one for one in declarations.datasets if not is_glob(one.name)],
            self._home,
            lambda one: one.name,
        )
        self._aliases = [(alias, one) for one in declarations.datasets for alias in one.aliases]
        named = [DatasetRef(space, one.name) for space, one in self._exact.exact() if space]
        self._spelled = [ref for ref in named if spelling(ref) or dataset_table(*ref[:2])]
        self._edges: list[tuple[str, _Edge]] = []
        for job in declarations.jobs:
            self._edges += [(job.name, edge) for edge in job.reads]
            self._edges += [(job.name, edge) for edge in job.writes]
        self._stored: dict[str, list[DatasetDeclaration]] = {}
        self._tables: dict[Parts, list[DatasetDeclaration]] = {}
        for one in declarations.datasets:
            if is_glob(one.name):
                continue
            if form := self._form(one):
                self._stored.setdefault(form, []).append(one)
            if one.table:
                parts = table_parts(one.table)
                for known in {parts, parts[-2:]}:
                    self._tables.setdefault(known, []).append(one)
        self._refuse_shared()

    def _refuse_shared(self) -> None:
        """Raise DeclarationError if two datasets are declared at one place."""
        for place, found in self._stored.items():
            _refuse_two(place, found)
        for parts in self._tables:
            _refuse_two(
                ".".join(parts),
                [one for one in self._tables[parts] if table_parts(one.table or "") == parts],
            )

    def _form(self, declared: DatasetDeclaration) -> str | None:
        """Return the storage where a declared dataset lies: by its location, else by its name."""
        if declared.location:
            return storage(declared.location)
        space = declared.namespace or self._home
        return dataset_storage(space, declared.name) if space and not declared.table else None

    def find(self, name: DatasetRef, *, linked: bool = False) -> list[DatasetDeclaration]:
        """Return the datasets declared at the location of a name; several if ambiguous."""
        if self._stored and (form := dataset_storage(*name[:2])):
            for place in (form, without_file(form), without_partition(form)):
                if found := self._stored.get(place):
                    return found
        if self._tables and (parts := dataset_table(*name[:2], linked=linked)):
            tables = self._tables.get(parts) or self._tables.get(parts[-2:], [])
            named = [(one, table_parts(one.table or "")) for one in tables]
            same = [one for one, of in named if of == parts]
            return same or [one for one, of in named if _meet(of, parts)]
        return []

    def located(self, text: str, known: Mapping[DatasetRef, DatasetRef]) -> DatasetRef | None:
        """Return the dataset at a location, or of a part file; None for none, or several.

        `known` maps all names of datasets to them.
        """
        form = storage(text)
        if form is None:
            return None
        for place in (form, without_file(form)):
            found = {self._ref(one, known) for one in self._stored.get(place, [])}
            found = found or {
                ref for name, ref in known.items() if dataset_storage(*name[:2]) == place
            }
            if found:
                return found.pop() if len(found) == 1 else None
        return None

    def tie(self, snapshot: LineageSnapshot) -> LineageSnapshot:
        """Return the lineage with one dataset in place of all those that mean its place.

        Raises DeclarationError if a dataset would be two declared ones, or a table can be in two
        catalogs.
        """
        edges = [
            (job, edge, ref)
            for job, edge in self._edges
            if (ref := named_by(edge, self._home, snapshot.datasets)) is not None
        ]
        targets = {ref for *_, ref in edges}
        into: dict[DatasetRef, DatasetRef] = {}
        by_declaration: dict[DatasetRef, DatasetRef] = {}
        for members in self._groups(snapshot, targets):
            declared = self._declared(members)
            whole = self._whole(members, declared, snapshot, targets)
            if whole is not None:
                tied = {node.ref: whole for node in members if node.ref != whole}
                into |= tied
                by_declaration |= tied if declared is not None else {}
        self._refuse_two_catalogs(by_declaration, snapshot)
        if not into:
            return snapshot
        self._refuse_edges(into, edges)
        merged = merge_datasets(snapshot, into)
        datasets = dict(merged.datasets)
        for ref, target in into.items():
            node = datasets.get(target) or DatasetNode(ref=target)
            names = {*node.aliases, _table(ref, self._above)} - {target}
            datasets[target] = structs.replace(node, aliases=tuple(sorted(names)))
        return replace(merged, datasets=dict(sorted(datasets.items())))

    def _groups(
        self, snapshot: LineageSnapshot, targets: AbstractSet[DatasetRef]
    ) -> Iterable[Sequence[DatasetNode]]:
        """Return all datasets that lineage and edges name, those of one place together."""
        refs = {*snapshot.datasets, *targets, *self._spelled}
        for job in snapshot.jobs.values():
            refs.update(job.former_reads, job.former_writes, *(past for _, past in job.past_reads))
        refs.update(edge.input for edge in snapshot.column_edges)
        nodes = snapshot.datasets.values()
        every = refs.union(*(node.aliases for node in nodes if node.aliases))
        apart = ((*job.reads, *job.writes) for job in snapshot.jobs.values())
        tables = same_tables(every, apart)
        groups: list[list[DatasetNode]] = []
        numbers: dict[object, int] = {}  # of the group of each place
        for ref in sorted(refs):
            node = snapshot.datasets.get(ref) or DatasetNode(ref=ref)
            places = {place for name in (ref, *node.aliases) for place in self._meant(name, tables)}
            known = sorted({numbers[place] for place in places if place in numbers})
            if not known:
                known = [len(groups)]
                groups.append([])
            first, *others = known
            for other in others:  # its names mean several places: these are one
                groups[first] += groups[other]
                groups[other] = []
                numbers |= {place: first for place, one in numbers.items() if one == other}
            groups[first].append(node)
            numbers |= dict.fromkeys(places or {ref}, first)
        return filter(None, groups)

    def _meant(self, name: DatasetRef, tables: Mapping[DatasetRef, object]) -> Iterator[object]:
        """Yield the places that a name means; a folder that is declared by itself is one."""
        own = self._exact.find(name)
        if self._aliases:
            yield from self._claimed(name)
            if own is not None and own.aliases:
                yield own
        if name in tables:
            yield tables[name]
        elif form := dataset_storage(*name[:2]):
            is_whole = form in self._stored or own
            yield form if is_whole else self._above(form)
        elif parts := dataset_table(*name[:2]):
            yield catalog_space(name.namespace), parts

    def _claimed(self, name: DatasetRef) -> list[DatasetDeclaration]:
        """Return the datasets that declare a name as their alias."""
        is_own = self._exact.find(name) is not None
        return [
            one
            for alias, one in self._aliases
            if is_named(alias, name) and not (is_own and is_glob(alias))
        ]

    def _declared(self, members: Sequence[DatasetNode]) -> DatasetDeclaration | None:
        found: dict[DatasetDeclaration, None] = {}
        for node in members:
            for ref in (node.ref, *node.aliases):
                own = self._exact.find(ref)
                # Without a namespace any dataset of that name matches, and keeps its namespace.
                if own is not None and (ref == node.ref or own.namespace or self._home):
                    found[own] = None
                found |= dict.fromkeys(self._claimed(ref))
                found |= dict.fromkeys(self.find(ref, linked=bool(node.aliases)))
        if len(found) > 1:
            called = " and ".join(sorted(f'"{one.name}"' for one in found))
            raise DeclarationError(
                f"dataset {members[0].ref} is declared twice, by its names or location: {called}",
                hint="Give each place to one [[dataset]]: correct a location, table or alias, or"
                " leave a table out.",
            )
        return next(iter(found), None)

    def _whole(
        self,
        members: Sequence[DatasetNode],
        declared: DatasetDeclaration | None,
        snapshot: LineageSnapshot,
        targets: AbstractSet[DatasetRef],
    ) -> DatasetRef | None:
        """Return the dataset that all members are; None where each stays what it is."""
        refs = sorted(node.ref for node in members)
        if declared is not None:
            named = [ref for ref in refs if self._exact.find(ref) is declared]
            if named == refs and len(refs) == 1:
                return None
            is_placed = declared.namespace or self._home or not named
            return self._ref(declared, snapshot.datasets) if is_placed else named[0]
        has_files = any(_plain(ref) != ref for ref in refs)
        if len(refs) == 1 and not has_files:
            return None
        tables = {_table(ref, self._above) for ref in refs}
        are_folders = len(tables) == 1 and tables.isdisjoint(refs) and not has_files
        if are_folders and not any(map(self._declared_names.find, refs)):
            return None  # a family of names that is to be declared
        written = snapshot.writers
        return min(
            tables,
            key=lambda ref: (
                ref not in targets,
                dataset_storage(*ref[:2]) is None and ref not in written,
                ref not in refs,
                ref,
            ),
        )

    def _ref(self, declared: DatasetDeclaration, known: Iterable[DatasetRef]) -> DatasetRef:
        space = declared.namespace or self._home or only_space(declared.name, known)
        return DatasetRef(space, declared.name)

    def _refuse_edges(
        self, into: Mapping[DatasetRef, DatasetRef], edges: Iterable[tuple[str, _Edge, DatasetRef]]
    ) -> None:
        """Raise DeclarationError for a declared edge whose dataset now has another name."""
        for job, edge, ref in edges:
            whole = into.get(ref)
            if whole and not names(edge, whole, self._home):
                raise DeclarationError(
                    f"job {job!r} names dataset {ref}, which is {whole} by its place",
                    hint=f'Write dataset = "{whole.name}" there.',
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
                    f"the table of dataset {target} can be {' or '.join(map(str, found.values()))}",
                    hint="Write `table` with its catalog: catalog.schema.table.",
                )


def _refuse_two(place: str, found: Sequence[DatasetDeclaration]) -> None:
    if len(found) > 1:
        one, other = (f'"{dataset.name}"' for dataset in found[:2])
        raise DeclarationError(
            f"datasets {one} and {other} are one place, {place}",
            hint="Keep one [[dataset]]; the other name can be one of its `aliases`.",
        )


def _meet(one: Parts, other: Parts) -> bool:
    """Return whether two table names match; a missing catalog matches any."""
    return one[-2:] == other[-2:] and (len(one) != len(other) or one == other)


def _plain(ref: DatasetRef) -> DatasetRef:
    """Return the name without a part file or decorator."""
    if dataset_storage(*ref[:2]) is None:
        return plain_name(ref)
    return DatasetRef(ref.namespace, without_file(ref.name))


def _table(ref: DatasetRef, above: Callable[[str], str]) -> DatasetRef:
    """Return the name of the table that contains a partition's folder or a part file."""
    if dataset_storage(*ref[:2]) is None:
        return plain_name(ref)
    name = above(ref.name.rstrip("/"))
    return ref if name == ref.name.rstrip("/") else DatasetRef(ref.namespace, name)
