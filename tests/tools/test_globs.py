"""Globs: brackets in a pattern mean folders and files of that very name first, in every tool that takes one."""

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import Calls

from interlock.tools.search.ripgrep import compile_glob, select_paths_by_glob

ROUTES = (
    *("app/(auth)/[id]/page.tsx", "app/(auth)/i/page.tsx", "app/[...slug]/route.ts", "app/s/route.ts"),
    *(
        "app/[[...all]]/a.ts",
        "app/@modal/(.)photo/[id]/page.tsx",
        "app/x/page.tsx",
        "lib/[id].ts",
        "lib/d.ts",
    ),
)
PATTERNS = {
    "app/(auth)/[id]/*.tsx": ["app/(auth)/[id]/page.tsx"],
    "app/[...slug]/**": ["app/[...slug]/route.ts"],
    "app/[[...all]]/*": ["app/[[...all]]/a.ts"],
    "**/[id]/page.*": ["app/(auth)/[id]/page.tsx", "app/@modal/(.)photo/[id]/page.tsx"],
    "app/{(auth)/[id],x}/*": ["app/(auth)/[id]/page.tsx", "app/x/page.tsx"],
    "lib/[id].ts": ["lib/[id].ts"],
    # No name has these brackets, so they are sets of letters; in the last only the second ones are.
    "lib/[a-d].ts": ["lib/d.ts"],
    "app/(auth)/[hij]/*.tsx": ["app/(auth)/i/page.tsx"],
    "app/(auth)/[id]/[a-p]*": ["app/(auth)/[id]/page.tsx"],
}
NAMES = st.sampled_from(
    ["(a)", "[id]", "[...s]", "[[...s]]", "[a-c]", "i", "s", "b", "@m", "[", "]", "é", "e\u0301"]
)


@pytest.fixture
def routes(call: Calls) -> None:
    call.write({name: f"needle {name}\n" for name in ROUTES})


@pytest.mark.parametrize(("pattern", "meant"), PATTERNS.items())
@pytest.mark.usefixtures("routes")
def test_brackets_mean_names_before_sets_of_letters(call: Calls, pattern: str, meant: list[str]) -> None:
    assert sorted(call.text("glob", pattern=pattern).splitlines()[1:]) == sorted(meant)
    read = call.text("read_many_files", include=[pattern])
    assert sorted(re.findall(r"^--- (.*\.tsx?) ---$", read, re.MULTILINE)) == sorted(meant)
    searched = call.text("grep_search", pattern="needle", include_pattern=pattern, names_only=True)
    assert sorted(searched.splitlines()[1:]) == sorted(meant)
    left = call.text("read_many_files", include=["**"], exclude=[pattern])
    assert not any(f"--- {name} ---" in left for name in meant)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=5), st.data())
def test_a_path_taken_as_a_pattern_finds_itself_alone(paths: list[str], data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(paths))
    same = {
        path for path in paths if unicodedata.normalize("NFC", path) == unicodedata.normalize("NFC", wanted)
    }
    form: Any = data.draw(st.sampled_from(["NFC", "NFD"]))
    assert {*select_paths_by_glob(unicodedata.normalize(form, wanted), paths, case_sensitive=True)} == same
    assert compile_glob(wanted)(wanted)
