"""Drawings as SVG: well-formed, nothing on top of anything else, names stay text."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from lineage_backfill.show.draw import Drawing
from lineage_backfill.show.plans import drawing
from lineage_backfill.show.text import safe
from lineage_backfill.web.svg import svg
from tests.unit.cli import plans
from tests.unit.cli.test_formats import evil


@pytest.mark.parametrize("made", [drawing(plans.real()), drawing(plans.odd()), evil()])
def test_svg_is_whole_and_nothing_overlaps(made: Drawing) -> None:
    root = ET.fromstring(svg(made))  # raises where it is not well-formed
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in root.iter(f"{space}rect")
    ]
    assert len(boxes) == len(made.nodes)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for number, (x, y, wide, high) in enumerate(boxes):
        assert 0 <= x <= x + wide <= width
        assert 0 <= y <= y + high <= height
        for x2, y2, wide2, high2 in boxes[:number]:
            assert x + wide <= x2 or x2 + wide2 <= x or y + high <= y2 or y2 + high2 <= y
    labels = [text for text in root.iter(f"{space}text") if text.get("class") == "label"]
    assert len(labels) == sum(bool(edge.label) for edge in made.known_edges())
    for label in labels:
        middle, top = float(label.attrib["x"]), float(label.attrib["y"]) - 9
        half = len(label.text or "") * 5.4 / 2
        for x, y, wide, high in boxes:
            apart = middle + half <= x or x + wide <= middle - half
            assert apart or top + 9 <= y or y + high <= top, label.text
    assert len(list(root.iter(f"{space}path"))) == len(made.known_edges()) + 1  # and the arrow's
    texts = [text.text for text in root.iter(f"{space}text")]
    assert all(line in texts for node in made.nodes for line in map(safe, node.lines))


def test_data_flows_from_left_to_right() -> None:
    text = svg(drawing(plans.real()))
    left = {
        name: float(re.search(rf'<rect x="([\d.]+)"[^>]*/><text[^>]*>{name}</text>', text)[1])  # type: ignore[index]
        for name in ("feed", "daily", "weekly")
    }
    assert left["feed"] < left["daily"] < left["weekly"]


def test_an_empty_drawing_is_drawn() -> None:
    ET.fromstring(svg(Drawing(title="nothing", nodes=())))
