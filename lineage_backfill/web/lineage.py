"""The pages of the lineage: its jobs and datasets, and how they are partitioned."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from flask import Response, render_template, request

from lineage_backfill.errors import (
    UnknownNameError,
    UsageError,
)
from lineage_backfill.lineage import view
from lineage_backfill.model import DatasetRef, JobRef
from lineage_backfill.partitions.calendar import Calendar
from lineage_backfill.presentation import lineage as told
from lineage_backfill.presentation import views, words
from lineage_backfill.presentation.names import Names
from lineage_backfill.presentation.text import counted
from lineage_backfill.web.answers import DRAWN, Ref, as_json, as_svg, known, number, routes
from lineage_backfill.web.cache import Lineage
from lineage_backfill.web.view_models import Page

_NODES = 100  # rows on a page


@routes.get("/lineage")
def lineage() -> str:
    """List the jobs or the datasets of the lineage, those that are searched for."""
    read = known().lineage()
    snapshot = read.snapshot
    kind = "dataset" if request.args.get("kind") == "dataset" else "job"
    wanted = request.args.get("q", "").strip()
    nodes: list[Any] = list((snapshot.datasets if kind == "dataset" else snapshot.jobs).values())
    found = sorted(
        (one for one in nodes if wanted.casefold() in str(one.ref).casefold()),
        key=lambda one: one.ref,
    )
    return render_template(
        "lineage.html",
        snapshot=snapshot,
        kind=kind,
        wanted=wanted,
        page=Page.of(found, number("page"), size=_NODES),
        names=Names([*snapshot.jobs, *snapshot.datasets]),
        calendar=lambda ref: _calendar(read, ref),
        families=read.families,
        is_drawn=not wanted and len(snapshot.jobs) + len(snapshot.datasets) <= DRAWN,
    )


@routes.get("/lineage.json")
def lineage_json() -> Response:
    """Return what `lineage show --json` prints."""
    read = known().lineage()
    snapshot = read.snapshot
    jobs, datasets = snapshot.jobs.values(), snapshot.datasets.values()
    return as_json(told.document(snapshot, jobs, datasets, read.families))


@routes.get("/graph.json")
def graph_json() -> Response:
    """Return what `graph --json` prints."""
    read = known().lineage()
    return as_json(views.document(_seen(read), read.snapshot))


@routes.get("/graph.svg")
def graph_svg() -> Response:
    """Draw the lineage, or what is one job away from `name`."""
    return as_svg(views.drawing(_seen(known().lineage())))


def _seen(read: Lineage) -> view.View:
    """Return what is asked for: all of the lineage, or what is one job away from one name."""
    if "name" not in request.args:
        return view.whole(read.neighbours, read.snapshot.datasets)
    return _around(read, _ref(read, request.args.get("kind", "job")))


@routes.get("/lineage/<any(job, dataset):kind>")
def node(kind: str) -> str:
    """Show all that is known of one job or dataset."""
    read = known().lineage()
    ref = _ref(read, kind)
    seen = _around(read, ref)
    names = Names(seen.nodes)
    return render_template(
        "node.html",
        ref=ref,
        name=names(ref),
        names=names,
        lines=[(title, says) for title, says in told.lines(ref, read.snapshot, names) if says],
        facts=read.resolver.job(ref) if isinstance(ref, JobRef) else read.resolver.dataset(ref),
        calendar=_calendar(read, ref),
        evidence=_evidence(read, ref),
        mapping=lambda edge: (
            "unknown" if edge.mapping is None else words.mapping_in_words(edge.mapping.name)
        ),
        above=[one for one, other in seen.edges if other == ref][:_NODES],
        below=[other for one, other in seen.edges if one == ref][:_NODES],
        is_drawn=1 < len(seen.nodes) <= DRAWN,
    )


@routes.get("/lineage/<any(job, dataset):kind>.json")
def node_json(kind: str) -> Response:
    """Return what `lineage show NAME --json` prints."""
    read = known().lineage()
    found = told.around(read.snapshot, _ref(read, kind))
    return as_json(told.document(read.snapshot, *found, read.families))


def _around(read: Lineage, ref: Ref) -> view.View:
    return view.around(read.neighbours, [ref], up=True, down=True, depth=1)


def _ref(read: Lineage, kind: str) -> Ref:
    """Return what the address names; raises UnknownNameError."""
    name, namespace = request.args.get("name", ""), request.args.get("namespace", "")
    ref: Ref = JobRef(namespace, name) if kind == "job" else DatasetRef(namespace, name)
    snapshot, edges = read.snapshot, read.resolver.edges
    nodes: tuple[Container[object], ...] = (
        (snapshot.jobs, edges.jobs) if kind == "job" else (snapshot.datasets, edges.datasets)
    )
    if not any(ref in one for one in nodes):
        raise UnknownNameError(
            f"no {kind} is called {ref}", hint="The lineage may have changed; look for it there."
        )
    return ref


def _calendar(read: Lineage, ref: Ref) -> str:
    """Return how a dataset or the runs of a job are partitioned; empty where that is unknown."""
    try:
        facts = read.resolver.job(ref) if isinstance(ref, JobRef) else read.resolver.dataset(ref)
    except UsageError as error:
        return str(error)
    return "" if facts.calendar is None else _in_words(facts.calendar)


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


def _evidence(read: Lineage, ref: Ref) -> str:
    """Return why it is held to be partitioned so."""
    if isinstance(ref, JobRef):
        facts = read.resolver.job(ref)
        evidence = read.resolver.evidence(facts)
        return _origin(facts.origin) + (f": {evidence}" if evidence else "")
    return _origin(read.resolver.dataset(ref).origin)


def _origin(origin: str | None) -> str:
    return _ORIGINS.get(origin or "", "unknown: declare it in the project file")


_ORIGINS = {
    "declared": "declared in the project file",
    "facet": "sent with the lineage",
    "inferred": "inferred from past runs",
    "outputs": "that of its outputs",
    "inputs": "that of its inputs",
}
