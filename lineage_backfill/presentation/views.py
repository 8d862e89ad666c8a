"""A part of the lineage as a document, and as a graph to be drawn."""

from __future__ import annotations

from typing import Any

from lineage_backfill.lineage.snapshot import LineageSnapshot
from lineage_backfill.lineage.view import View
from lineage_backfill.presentation import draw
from lineage_backfill.presentation.lineage import origin
from lineage_backfill.presentation.names import Names


def document(seen: View, snapshot: LineageSnapshot) -> dict[str, Any]:
    """Return the document of a view: its nodes by layers, its edges by their ids."""
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
                "start": ref in seen.starts,
            }
            for number, (ref, layer) in enumerate(zip(seen.nodes, seen.layers(), strict=True))
        ],
        "edges": [{"from": f"n{one}", "to": f"n{other}"} for one, other in seen.numbered()],
    }


def drawing(seen: View) -> draw.Drawing:
    """Return the view as a graph to be drawn; what was asked for stands out."""
    names = Names(seen.nodes)
    starts = ", ".join(map(names, seen.starts[:3])) + (" …" if len(seen.starts) > 3 else "")
    return draw.Drawing(
        title=f"The lineage of {starts}" if starts else "The lineage",
        nodes=tuple(
            draw.Node(
                key=ref,
                kind=ref.kind,
                lines=(names(ref),),
                mark="changed" if ref in seen.starts else "",
            )
            for ref in seen.nodes
        ),
        edges=tuple(draw.Edge(source=one, target=other) for one, other in seen.edges),
    )
