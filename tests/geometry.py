"""geometry: what lies on what in a drawn diagram, read from its SVG."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import dist
from statistics import fmean
from xml.etree import ElementTree

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MOVED = re.compile(r"translate\([^)]*\)")
_WIDE = 0.62
"""Width of a character, in font sizes: that of Verdana's wide letters."""


@dataclass(frozen=True)
class Box:
    name: str
    kind: str
    left: float
    top: float
    right: float
    bottom: float
    round: bool = False

    def holds(self, x: float, y: float, by: float = 0.0) -> bool:
        if self.round:
            wide, high = (self.right - self.left) / 2 - by, (self.bottom - self.top) / 2 - by
            across, down = (x - self.left - by) / wide - 1, (y - self.top - by) / high - 1
            return across**2 + down**2 < 1
        return self.left + by < x < self.right - by and self.top + by < y < self.bottom - by

    def meets(self, other: "Box", by: float = 1.0) -> bool:
        return (
            max(self.left, other.left) <= min(self.right, other.right) - by
            and max(self.top, other.top) <= min(self.bottom, other.bottom) - by
        )


@dataclass(frozen=True)
class Drawing:
    width: float
    """In points."""
    boxes: tuple[Box, ...]
    """Nodes, labels of edges (kind `label`) and titles of frames (`title`)."""
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    """Edges, as points along them."""
    frames: tuple[Box, ...] = ()
    """Around opened graphs; what is in one is named after it."""
    heads: tuple[tuple[str, float, float], ...] = ()
    """Arrowheads: the edge, and the middle of the head."""

    def piles(self, by: float) -> list[str]:
        """Arrowheads of two edges that are nearer to each other than this."""
        return [
            f"{a!r} and {b!r} end in one place"
            for (a, *at), (b, *there) in combinations(self.heads, 2)
            if a != b and dist(at, there) < by
        ]

    def faults(self) -> list[str]:
        """Boxes that meet, and edges that run through a box."""
        met = [f"{a.name!r} and {b.name!r} overlap" for a, b in combinations(self.boxes, 2) if a.meets(b)]
        crossed = [
            f"{name!r} runs through {box.name!r}"
            for name, points, around in ((n, p, _around(p)) for n, p in self.lines)
            for box in (*self.boxes, *(f for f in self.frames if not name.startswith(f"{f.name}.")))
            if box.meets(around, 0) and any(box.holds(x, y, 2.5) for x, y in points)
        ]
        return met + crossed


def _around(points: tuple[tuple[float, float], ...]) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return Box("", "", min(xs, default=0), min(ys, default=0), max(xs, default=0), max(ys, default=0))


def read(svg: bytes) -> Drawing:
    root = ElementTree.fromstring(svg)
    boxes: list[Box] = []
    frames: list[Box] = []
    lines: list[tuple[str, tuple[tuple[float, float], ...]]] = []
    heads: list[tuple[str, float, float]] = []
    for group, x, y in _groups(root, 0, 0):
        kind, name = group.get("class", ""), (group.findtext("{*}title") or "")
        if kind.startswith("node"):
            found = frames if "frame" in kind else boxes
            found.append(_moved(_box(group, name, "label" if "label" in kind else "node"), x, y))
        elif kind == "cluster" and any(e.tag.endswith("text") for e in group.iter()):
            boxes.append(_moved(_text(group, name), x, y))
        elif kind == "edge":
            path = group.find("{*}path")
            points = _along(path.get("d", "")) if path is not None else ()
            lines += [(name, tuple((px + x, py + y) for px, py in points))]
            for head in group.iterfind("{*}polygon"):
                corners = [float(n) for n in _NUMBER.findall(head.get("points", ""))]
                heads.append((name, fmean(corners[::2]) + x, fmean(corners[1::2]) + y))
    return Drawing(
        float(root.get("width", "").removesuffix("pt")),
        tuple(boxes),
        tuple(lines),
        tuple(frames),
        tuple(heads),
    )


def _groups(
    element: ElementTree.Element, x: float, y: float
) -> Iterator[tuple[ElementTree.Element, float, float]]:
    """Every group, and how far it is moved."""
    for child in element:
        if child.tag.endswith("}g"):
            moved = _MOVED.search(child.get("transform", ""))
            by = tuple(float(n) for n in _NUMBER.findall(moved[0])) if moved else (0.0, 0.0)
            yield child, x + by[0], y + by[1]
            yield from _groups(child, x + by[0], y + by[1])


def _moved(box: Box, x: float, y: float) -> Box:
    return replace(box, left=box.left + x, right=box.right + x, top=box.top + y, bottom=box.bottom + y)


def _box(group: ElementTree.Element, name: str, kind: str) -> Box:
    """Around all that is drawn of a node; of a label's text, which has no frame."""
    points: list[tuple[float, float]] = []
    for shape in group:  # not of what was put in
        if shape.tag.endswith("polygon"):
            numbers = [float(n) for n in _NUMBER.findall(shape.get("points", ""))]
            points += zip(numbers[::2], numbers[1::2], strict=True)
        elif shape.tag.endswith("path"):
            points += _along(shape.get("d", ""))
        elif shape.tag.endswith("ellipse"):
            x, y, rx, ry = (float(shape.get(k, "0")) for k in ("cx", "cy", "rx", "ry"))
            points += [(x - rx, y - ry), (x + rx, y + ry)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    oval = any(shape.tag.endswith("ellipse") for shape in group)
    return Box(name, kind, min(xs), min(ys), max(xs), max(ys), oval)


def _text(group: ElementTree.Element, name: str) -> Box:
    text = next(e for e in group.iter() if e.tag.endswith("text"))
    size, x, y = (float(text.get(k, "0")) for k in ("font-size", "x", "y"))
    half = len(text.text or "") * size * _WIDE / 2
    return Box(name, "title", x - half, y - size * 0.8, x + half, y)


def _along(path: str) -> Iterator[tuple[float, float]]:
    """Points along cubic curves, 24 a piece."""
    numbers = [float(n) for n in _NUMBER.findall(path)]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    for i in range(0, len(points) - 3, 3):
        a, b, c, d = points[i : i + 4]
        for step in range(25):
            t = step / 24
            u = 1 - t
            yield tuple(  # pyright: ignore[reportReturnType]
                u**3 * a[k] + 3 * u * u * t * b[k] + 3 * u * t * t * c[k] + t**3 * d[k] for k in (0, 1)
            )
