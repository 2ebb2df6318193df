"""opened: draws a graph with others opened in it: each is laid out by itself, and its picture put in its place.

Graphviz lays out all nodes at once: those of an opened graph and those around it push each other aside, and the picture
gets too wide for a page.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree

from interlock.engine.diagrams.graphviz import Size, legend, legend_source, source_of
from interlock.engine.diagrams.picture import svg
from interlock.engine.diagrams.shape import Diagram, Node

_SVG = "http://www.w3.org/2000/svg"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WIDE = 1000
"""Points; at the width of an A4 page, letters would be smaller than half their size."""


def opened(diagram: Diagram) -> bytes:
    """SVG of a graph and of those opened in it."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    explained = svg(legend_source(legend(diagram.all_nodes())))
    drawn = _with(ElementTree.fromstring(explained), _drawn(diagram))
    for number, group in enumerate(drawn.iter(f"{{{_SVG}}}g")):
        group.set("id", f"g{number}")  # each picture counts anew
    return ElementTree.tostring(drawn, xml_declaration=True, encoding="utf-8")


def _with(legend: ElementTree.Element, drawn: ElementTree.Element) -> ElementTree.Element:
    """The drawing below its legend: beside it, that would be stretched along an opened graph."""
    (wide, high), (wider, higher) = _size(legend), _size(drawn)
    down = ElementTree.Element(f"{{{_SVG}}}g", {"transform": f"translate(0 {high})"})
    down.extend([*drawn])
    wide, high = max(wide, wider), high + higher
    paper = ElementTree.Element(f"{{{_SVG}}}rect", {"width": f"{wide}", "height": f"{high}", "fill": "white"})
    drawn[:] = [paper, down, *legend]
    drawn.attrib |= {"width": f"{wide}pt", "height": f"{high}pt", "viewBox": f"0 0 {wide} {high}"}
    return drawn


def _drawn(diagram: Diagram) -> ElementTree.Element:
    inside = {cluster.id: _drawn(cluster) for cluster in diagram.clusters}
    sizes = {name: _size(picture) for name, picture in inside.items()}
    closed = _closed(diagram)
    drawn = ElementTree.fromstring(svg(source_of(closed, (), cut=True, sizes=sizes)))
    if _size(drawn)[0] > _WIDE:
        drawn = ElementTree.fromstring(svg(source_of(closed, (), cut=True, sizes=sizes, apart=True)))
    for frame in list(_frames(drawn)):
        left, top = _corner(frame)
        moved = ElementTree.SubElement(frame, f"{{{_SVG}}}g", {"transform": f"translate({left} {top})"})
        moved.extend(inside[frame.findtext(f"{{{_SVG}}}title") or ""])
    return drawn


def _closed(diagram: Diagram) -> Diagram:
    """The same with a frame for each opened graph."""
    within = {node.id: cluster.id for cluster in diagram.clusters for node in cluster.all_nodes()}
    frames = (Node(cluster.id, cluster.name, "frame") for cluster in diagram.clusters)
    edges = (
        replace(e, source=within.get(e.source, e.source), target=within.get(e.target, e.target))
        for e in diagram.edges
    )
    return replace(diagram, nodes=(*diagram.nodes, *frames), edges=tuple(edges), clusters=())


def _size(drawn: ElementTree.Element) -> Size:
    wide, high = (float(drawn.get(side, "").removesuffix("pt")) for side in ("width", "height"))
    return wide, high


def _frames(drawn: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (g for g in drawn.iter(f"{{{_SVG}}}g") if "frame" in g.get("class", "").split())


def _corner(frame: ElementTree.Element) -> Size:
    shape = next(e for e in frame if e.get("d") or e.get("points"))
    numbers = [float(n) for n in _NUMBER.findall(shape.get("d") or shape.get("points") or "")]
    return min(numbers[::2]), min(numbers[1::2])
