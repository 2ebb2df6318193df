"""theme: the session's colours by meaning; `default` is readable on any background."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Literal, cast

from rich.console import Console
from rich.theme import Theme as Styles

DEFAULT = "default"
_System = Literal["standard", "256", "truecolor"]

_COMMON = {
    "dim": "dim",
    "strong": "bold",
    "heading": "bold",
    "thought": "dim italic",
    "quote": "italic",
    "code": "cyan",
    "link": "underline",
    "accent": "cyan",
    "prompt": "bold cyan",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "removed": "red",
    "added": "green",
    "removed.word": "bold reverse red",
    "added.word": "bold reverse green",
    "hunk": "cyan dim",
}
"""The sixteen colours that every terminal maps to something readable on its background."""
_DARK = {
    "code": "#8ec7d2",
    "accent": "#7aa2f7",
    "prompt": "bold #7aa2f7",
    "good": "#8fce7e",
    "warn": "#e5c07b",
    "bad": "#f07178",
    "removed": "#f0a0a0 on #3a1d20",
    "added": "#a5d6a0 on #16301b",
    "removed.word": "#ffffff on #8b2f38",
    "added.word": "#ffffff on #2f6f3a",
    "hunk": "#6f7a94",
}
_LIGHT = {
    "code": "#0b6672",
    "accent": "#2f55c4",
    "prompt": "bold #2f55c4",
    "good": "#1a7f37",
    "warn": "#8a5a00",
    "bad": "#c01c28",
    "removed": "#7d1a22 on #ffebe9",
    "added": "#14532d on #dafbe1",
    "removed.word": "#5c0d14 on #ffb8b3",
    "added.word": "#0a3d1c on #94e0a5",
    "hunk": "#5a6478",
}
_COLORBLIND = {
    "good": "blue",
    "warn": "yellow",
    "bad": "bold magenta",
    "removed": "magenta",
    "added": "blue",
    "removed.word": "bold reverse magenta",
    "added.word": "bold reverse blue",
}
"""Blue and magenta can be told apart without telling red from green; marks and signs say the same."""
_PLAIN = {
    **dict.fromkeys(_COMMON, "none"),
    "dim": "dim",
    "strong": "bold",
    "heading": "bold",
    "thought": "dim",
    "prompt": "bold",
    "bad": "bold",
    "removed.word": "underline",
    "added.word": "underline",
}


@dataclass(frozen=True)
class Theme:
    name: str
    styles: Mapping[str, str]
    """Meaning → rich style, on top of those of `default`."""
    code: str = ""
    """Pygments style of code; empty: not coloured."""

    def make_string_console(self, width: int, color: bool = True) -> Console:
        """A console that renders rich texts into an ANSI string."""
        theme = self if color else THEMES["no-color"]
        styles = Styles({**_COMMON, **theme.styles})
        system = cast(_System, Console(file=StringIO(), force_terminal=True).color_system or "standard")
        return Console(
            file=StringIO(),
            force_terminal=True,
            color_system=system,
            no_color=not color or theme.name == "no-color",
            width=width,
            theme=styles,
            highlight=False,
            markup=False,
            emoji=False,
            tab_size=4,
            legacy_windows=False,
        )


THEMES = {
    theme.name: theme
    for theme in (
        Theme(DEFAULT, {}, "ansi"),
        Theme("dark", _DARK, "github-dark"),
        Theme("light", _LIGHT, "default"),
        Theme("colorblind", _COLORBLIND, "ansi"),
        Theme("no-color", _PLAIN),
    )
}
_GEMINI = {
    **dict.fromkeys(("nocolor", "no color", "none"), "no-color"),
    **dict.fromkeys(
        ("ayu light", "default light", "github light", "google code", "xcode", "solarized light"), "light"
    ),
    **dict.fromkeys(("atom one", "ayu", "dracula", "github", "github dark", "holiday"), "dark"),
    **dict.fromkeys(("shades of purple", "solarized dark", "tokyo night"), "dark"),
}
"""A theme of gemini-cli's → ours."""


def find_theme(name: str) -> Theme | None:
    """Find by name or gemini-cli's name (`GitHub Light`, `NoColor`, `ANSI Light`); None: unknown. Empty: `default`."""
    plain = name.strip().lower().replace("_", "-")
    if "colorblind" in plain or "daltonized" in plain:
        return THEMES["colorblind"]
    if not plain or plain.startswith("ansi"):
        return THEMES[DEFAULT]
    return THEMES.get(plain) or THEMES.get(_GEMINI.get(plain.replace("-", " "), ""))
