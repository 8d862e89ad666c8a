"""The pages of the lineage: jobs, datasets and their partitioning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from flask import Response, render_template, request
from markupsafe import Markup

from lineage_backfill.critic import in_force
from lineage_backfill.errors import UnknownNameError, UsageError
from lineage_backfill.lineage import view
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.partitions.text import render
from lineage_backfill.project.resolve.resolver import DatasetFacts, JobFacts
from lineage_backfill.show import lineage as presentation
from lineage_backfill.show import views, words
from lineage_backfill.show.draw import Node
from lineage_backfill.show.names import Names
from lineage_backfill.show.text import counted
from lineage_backfill.staleness.partitions import PartitionState
from lineage_backfill.web import view_models
from lineage_backfill.web.answers import (
    DRAWN,
    Ref,
    address_of,
    as_json,
    as_svg,
    cache,
    number,
    routes,
)
from lineage_backfill.web.strip import SIGNS, strip
from lineage_backfill.web.svg import svg
from lineage_backfill.web.view_models import Page
from lineage_backfill.workspace.catchup import WRITES, partitions_document
from lineage_backfill.workspace.named import NameLookup
from lineage_backfill.workspace.workspace import Workspace

_NODES = 100  # rows on a page
_DRAWN = 600  # most nodes of the picture
_NAMES = 500  # most names that the form proposes


@routes.get("/lineage")
def lineage() -> str:
    """Draw the lineage, or what lies on the paths from and to a name, and list its names."""
    workspace = cache().workspace()
    snapshot = workspace.resolver.edges.shown
    kind = "dataset" if request.args.get("kind") == "dataset" else "job"
    wanted = request.args.get("q", "").strip().casefold()
    try:
        seen, wrong = _seen(workspace), ""
    except UsageError as error:
        seen, wrong = view.whole(workspace.graph), error.full_text
    look = cache().look()
    stale = look.stale if look is not None else None
    nodes: list[Any] = list((snapshot.datasets if kind == "dataset" else snapshot.jobs).values())
    drawn = set(seen.nodes)
    found = sorted(
        (one for one in nodes if wanted in str(one.ref).casefold() and one.ref in drawn),
        key=lambda one: one.ref,
    )
    states = view_models.states_of(seen.nodes, stale)
    is_drawn = len(seen.nodes) <= _DRAWN
    return render_template(
        "lineage.html",
        snapshot=snapshot,
        of_project=words.of_project,
        kind=kind,
        given=request.args,
        wrong=wrong,
        seen=seen,
        found=found,
        most=_DRAWN,
        page=Page.of(found, number("page"), size=_NODES),
        names=Names([*snapshot.jobs, *snapshot.datasets]),
        calendar=lambda ref: _calendar(workspace, ref),
        families=workspace.resolver.families,
        picture=Markup(_picture(seen, states, wanted)) if is_drawn else "",  # noqa: S704 - escaped
        states=states,
        signs_of_states=SIGNS,
        known=[str(ref) for ref in sorted(workspace.resolver.edges.datasets)][:_NAMES],
        look=look,
    )


def _seen(workspace: Workspace) -> view.View:
    """Return the part of the lineage that the address asks for; raises UsageError."""
    names, graph = NameLookup(workspace.resolver), workspace.graph
    one, other = (_named(names, request.args.get(end, "").strip()) for end in ("from", "to"))
    depth = request.args.get("depth", type=int)
    if one is not None and other is not None:
        return view.between(graph, one, other)
    if one is None and other is None:
        return view.whole(graph)
    starts = [ref for ref in (one, other) if ref is not None]
    return view.around(graph, starts, down=one is not None, up=other is not None, depth=depth)


def _named(names: NameLookup, text: str) -> Ref | None:
    """Return the dataset or job of a name, None for an empty one; raises UnknownNameError."""
    if not text:
        return None
    if (job := text.removeprefix("job:")) != text:
        return names.job(job)
    try:
        return names.dataset(text.removeprefix("dataset:"))
    except UnknownNameError:
        if not names.is_job(text):
            raise
        return names.job(text)


def _picture(seen: view.View, states: Mapping[Ref, PartitionState], wanted: str) -> str:
    """Draw a part of the lineage in the page; what is searched for stands out."""

    def lines(node: Node) -> Node:
        state = states.get(node.key)  # type: ignore[call-overload]
        return replace(node, lines=(f"{SIGNS[state]} {node.lines[0]}",)) if state else node

    def links(node: Node) -> tuple[str, str]:
        ref: Any = node.key
        found = "found" if wanted and wanted in str(ref).casefold() else ""
        kind = " ".join(filter(None, (states.get(ref, ""), found, node.mark)))
        return address_of(ref), kind

    drawing = views.drawing(seen)
    return svg(replace(drawing, nodes=tuple(map(lines, drawing.nodes))), links)


@routes.get("/lineage.json")
def lineage_json() -> Response:
    """Return what `lineage show --json` prints."""
    return _document(cache().workspace())


@routes.get("/graph.json")
def graph_json() -> Response:
    """Return what `graph --json` prints."""
    workspace = cache().workspace()
    return as_json(views.document(_view(workspace), workspace.snapshot))


@routes.get("/graph.svg")
def graph_svg() -> Response:
    """Draw the lineage, or the neighbours of `name`."""
    return as_svg(views.drawing(_view(cache().workspace())))


def _view(workspace: Workspace) -> view.View:
    """Return the whole lineage, or one name with its neighbours."""
    if "name" not in request.args:
        return _seen(workspace)
    return _around(workspace, _ref(workspace, request.args.get("kind", "job")))


@routes.get("/lineage/<any(job, dataset):kind>")
def node(kind: str) -> str:
    """Show everything known about one job or dataset."""
    workspace = cache().workspace()
    ref = _ref(workspace, kind)
    around = _around(workspace, ref)
    names = Names(around.nodes)
    return render_template(
        "node.html",
        ref=ref,
        name=names(ref),
        names=names,
        lines=[one for one in presentation.lines(ref, workspace.resolver.edges, names) if one[1]],
        facts=workspace.resolver.job(ref)
        if isinstance(ref, JobRef)
        else workspace.resolver.dataset(ref),
        calendar=_calendar(workspace, ref),
        evidence=_origin_of(workspace, ref),
        attributes=in_force.attributes(workspace.resolver, ref),
        mapping=lambda edge: (
            "unknown" if edge.mapping is None else words.mapping_in_words(edge.mapping.name)
        ),
        above=[one for one, other in around.edges if other == ref][:_NODES],
        below=[other for one, other in around.edges if one == ref][:_NODES],
        is_drawn=1 < len(around.nodes) <= DRAWN,
        **_partitions(ref),
    )


def _partitions(ref: Ref) -> dict[str, Any]:
    """Return what the page of a dataset shows of its partitions; nothing for a job."""
    if not isinstance(ref, DatasetRef):
        return {}
    look, within = cache().look(), request.args.get("within", "")
    shown: dict[str, Any] = {"look": look, "is_live": look is None}
    if look is None or look.stale is None:
        return shown
    found = look.stale.partitions(ref)
    shown |= {"found": found, "state_signs": SIGNS}
    if found.calendar is None:
        return shown | {"writes": ()}
    return shown | {
        "strip": strip(found, within),
        "render": partial(render, found.calendar),
        "zone": found.calendar.zone,
        "writes": found.newest(WRITES),
    }


@routes.get("/lineage/dataset/partitions.json")
def partitions_json() -> Response:
    """Return the partitions of a dataset by state."""
    ref = _ref(cache().workspace(), "dataset")
    at, stale = cache().looked()
    assert isinstance(ref, DatasetRef)
    return as_json(partitions_document(stale.partitions(ref), at))


@routes.get("/lineage/<any(job, dataset):kind>.json")
def node_json(kind: str) -> Response:
    """Return what `lineage show NAME --json` prints."""
    workspace = cache().workspace()
    return _document(workspace, _ref(workspace, kind))


def _document(workspace: Workspace, ref: Ref | None = None) -> Response:
    edges = workspace.resolver.edges
    return as_json(
        presentation.document(workspace.snapshot, edges, workspace.resolver.families, ref)
    )


def _around(workspace: Workspace, ref: Ref) -> view.View:
    return view.around(workspace.graph, [ref], up=True, down=True, depth=1)


def _ref(workspace: Workspace, kind: str) -> Ref:
    """Return the job or dataset of the address; raises UnknownNameError."""
    name, namespace = request.args.get("name", ""), request.args.get("namespace", "")
    ref: Ref = JobRef(namespace, name) if kind == "job" else DatasetRef(namespace, name)
    edges = workspace.resolver.edges  # they hold all that the snapshot holds
    if ref not in (edges.jobs if kind == "job" else edges.datasets):
        raise UnknownNameError(
            f"no {kind} is named {ref}", hint="The lineage may have changed; search it."
        )
    return ref


def _facts(workspace: Workspace, ref: Ref) -> JobFacts | DatasetFacts:
    resolver = workspace.resolver
    return resolver.job(ref) if isinstance(ref, JobRef) else resolver.dataset(ref)


def _calendar(workspace: Workspace, ref: Ref) -> str:
    """Return the partitioning of a dataset or job as text; empty if unknown."""
    try:
        calendar = _facts(workspace, ref).calendar
    except UsageError as error:
        return str(error)
    return "" if calendar is None else _in_words(calendar)


def _in_words(calendar: Calendar) -> str:
    if calendar.is_whole:
        return "whole: one key"
    parts = [f"{axis.name or 'key'}: {counted(len(axis.keys), 'key')}" for axis in calendar.statics]
    if (time := calendar.time) is not None:
        unit = " ".join(time.grid.family)
        newest = time.grid.label(time.last) if time.first is None or time.last >= time.first else ""
        first = "" if time.first is None else f" from {time.grid.label(time.first)}"
        parts.insert(0, f"{unit} in {time.grid.zone.name}{first}{newest and f' to {newest}'}")
    return " x ".join(parts)


def _origin_of(workspace: Workspace, ref: Ref) -> str:
    """Return where its partitioning comes from."""
    if isinstance(ref, JobRef):
        facts = workspace.resolver.job(ref)
        evidence = workspace.resolver.evidence(facts)
        return _origin(facts.origin) + (f": {evidence}" if evidence else "")
    return _origin(workspace.resolver.dataset(ref).origin)


def _origin(origin: str | None) -> str:
    return _ORIGINS.get(origin or "", "unknown: declare it in the project file")


_ORIGINS = {
    "declared": "declared in the project file",
    "facet": "sent with the lineage",
    "inferred": "inferred from past runs",
    "outputs": "that of its outputs",
    "inputs": "that of its inputs",
    "request": "the keys that are named",
}
