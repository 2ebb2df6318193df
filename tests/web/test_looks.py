"""How the pages look: no axe finding in light and dark, no sideways scrolling, and hostile text shown as it is."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from web.lab import HOSTILE_NAME, Lab, Person

AXE = Path(__file__).with_name("axe.min.js")
MARKS = (
    "⟨U+001B⟩[31mred",
    "⟨U+202E⟩gnp.exe⟨U+202C⟩",
    "zero⟨U+200B⟩width⟨U+0007⟩ p⟨U+0430⟩ypal⟨U+3164⟩",
    "<script>window.hurt = 1</script>",
)


@cache
def runs(lab: Lab) -> Mapping[str, str]:
    """A run of each kind."""
    made = {"wait": lab.park("edit", "fix the sum"), "hostile": lab.park("hostile", "go")}
    return {
        **made,
        "done": lab.park("done", "fix the sum", "-y", script="edit"),
        "ask": lab.park("question", "ask me"),
    }


PAGES = (
    "/",
    "/request/{request}",
    "/run/{wait}",
    "/run/{done}",
    "/run/{hostile}",
    "/all",
    "/start",
    "/flows",
    "/flows/main",
    "/stats",
)
OFTEN = ("/", "/run/{done}", "/all", "/start")
"""Tried with every change; the others in the sweeps."""


def opened(somebody: Person, lab: Lab, path: str) -> None:
    there = runs(lab)
    request = somebody.fetched(f"/api/requests?run={there['wait']}")[0]["id"]
    somebody.do_go(path.format(**there, request=request))
    wanted = {"/": ".request", "/start": "form .field", "/flows": ".flows", "/flows/main": ".map svg"}
    if path.startswith("/run"):
        somebody.do_see(".side")
        somebody.page.evaluate("document.querySelector('.side').open = true")
    somebody.do_see(".map svg" if path.startswith("/run") else wanted.get(path, "h1"))
    if path == "/run/{done}":
        somebody.page.select_option("[aria-label='Levels of the graph']", "2")
        somebody.do_see(".map .cluster.taken")
    for details in somebody.page.query_selector_all(".tool:not([open]) > summary"):
        details.evaluate("one => one.click()")
    somebody.page.wait_for_load_state("load")


@pytest.mark.sweep
def test_axe_finds_nothing_in_light_and_dark(lab: Lab, person: Callable[..., Person]) -> None:
    somebody = person(bypass_csp=True)  # the page's own policy would refuse axe's script
    found: list[str] = []
    for path in PAGES:
        somebody.page.emulate_media(color_scheme="light")
        opened(somebody, lab, path)
        somebody.page.add_script_tag(path=AXE)
        found += violations(somebody, path, "{}")
        somebody.page.emulate_media(color_scheme="dark")
        found += violations(somebody, f"{path}, dark", "{runOnly: ['color-contrast']}")
    assert not found, "\n".join(found[:10])


def violations(somebody: Person, where: str, options: str) -> list[str]:
    result: Any = somebody.page.evaluate(f"axe.run({options})")
    assert result["passes"], where
    return [
        f"{where}: {one['id']}: {node['html'][:200]}: {node['failureSummary'][-300:]}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("pages", [OFTEN, pytest.param(PAGES, marks=pytest.mark.sweep)], ids=["often", "all"])
def test_nothing_is_wider_than_a_phone_and_targets_are_large(
    lab: Lab, person: Callable[..., Person], pages: tuple[str, ...]
) -> None:
    somebody = person(has_touch=True)
    somebody.page.set_viewport_size({"width": 360, "height": 740})
    for path in pages:
        opened(somebody, lab, path)
        assert somebody.page.evaluate("document.documentElement.scrollWidth") <= 360, path
        small = somebody.page.evaluate(_SMALL)
        assert not small, (path, small)


_SMALL = """() => [...document.querySelectorAll("button, a.button, nav a, input, select, textarea, summary")]
  .filter(one => one.checkVisibility() && one.type !== "checkbox")
  .filter(one => Math.min(one.getBoundingClientRect().height, one.getBoundingClientRect().width) < 24)
  .map(one => one.outerHTML.slice(0, 120))"""


def test_hostile_text_is_shown_as_it_is_with_visible_marks(lab: Lab, person: Callable[..., Person]) -> None:
    somebody, run = person(), runs(lab)["hostile"]
    for path in (f"/run/{run}", "/", f"/request/{somebody.fetched(f'/api/requests?run={run}')[0]['id']}"):
        somebody.do_go(path)
        somebody.do_see(".request:has-text('onerror')")
        text = somebody.page.inner_text("main")
        assert not [c for c in text if c != "\n" and not c.isprintable() and c not in "\t\xa0"], path
        assert not [mark for mark in MARKS if mark not in text], (path, text)
    named = somebody.page.inner_text(".path")
    assert HOSTILE_NAME.replace("\u202e", r"\xe2\x80\xae") in named, (
        "as the model is told it, and may write it"
    )
    assert somebody.page.evaluate("document.querySelectorAll('main script, main img, main svg').length") == 0


PROSE = """Steps:

1. Build
   - `make`
     with *care*

2. Test:
   ```sh
   make test
     -k x
   ```
3. Ship

| Name | Size |
|:-----|-----:|
| a\\|b | **1** |
| c    |
After | all.
"""


def test_lists_keep_their_numbers_and_depth_and_tables_are_tables(
    lab: Lab, person: Callable[..., Person]
) -> None:
    somebody, run = person(), lab.park("prose", "tell", replies=[{"text": PROSE}])
    somebody.do_go(f"/run/{run}")
    somebody.do_see(".prose table")
    assert somebody.page.evaluate(_PROSE) == {
        "numbers": [1, 2, 3],
        "inner": "make with care",
        "code": "make test\n  -k x",
        "cells": [["Name", "Size"], ["a|b", "1"], ["c", ""], ["After", "all."]],
    }


_PROSE = """() => ({
  numbers: [...document.querySelectorAll(".prose ol > li")].map(one => one.value),
  inner: document.querySelector(".prose ol > li > ul > li").textContent,
  code: document.querySelector(".prose pre").textContent,
  cells: [...document.querySelectorAll(".prose tr")].map(row => [...row.cells].map(cell => cell.textContent)),
})"""


def test_the_first_page_is_small(lab: Lab, person: Callable[..., Person]) -> None:
    """Of the peers the smallest sends 364 KB in 7 requests."""
    somebody = person()
    assert runs(lab)
    somebody.do_go("/")
    somebody.do_see(".request")
    sizes: dict[str, int] = somebody.page.evaluate(_SIZES)
    assert len(sizes) <= 12 and sum(sizes.values()) <= 150_000, sizes


_SIZES = """() => Object.fromEntries(["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
  .map(one => [one.name, one.transferSize]))"""
