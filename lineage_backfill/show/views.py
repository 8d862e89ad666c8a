"""A part of the lineage as a document and as a graph to draw."""

from __future__ import annotations

from typing import Any

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.lineage.view import View
from lineage_backfill.show import draw
from lineage_backfill.show.lineage import origin
from lineage_backfill.show.names import Names


def document(view: View, snapshot: LineageSnapshot) -> dict[str, Any]:
    """Return a view as a document: nodes by layers, edges by ids."""
    return {
        "schema_version": 1,
        "kind": "graph",
        **origin(snapshot),
        "nodes": [
            {
                "id": f"n{number}",
                "kind": ref.kind,
                "namespace": ref.namespace,
                "name": ref.name,
                "layer": layer,
                "start": ref in view.starts,
            }
            for number, (ref, layer) in enumerate(zip(view.nodes, view.layers(), strict=True))
        ],
        "edges": [{"from": f"n{one}", "to": f"n{other}"} for one, other in view.numbered()],
    }


def drawing(view: View) -> draw.Drawing:
    """Return the view as a graph to draw; its starting points stand out."""
    names = Names(view.nodes)
    starts = ", ".join(map(names, view.starts[:3])) + (" …" if len(view.starts) > 3 else "")
    return draw.Drawing(
        title=f"The lineage of {starts}" if starts else "The lineage",
        nodes=tuple(
            draw.Node(
                key=ref,
                kind=ref.kind,
                lines=(names(ref),),
                mark="changed" if ref in view.starts else "",
            )
            for ref in view.nodes
        ),
        edges=tuple(draw.Edge(source=one, target=other) for one, other in view.edges),
    )
