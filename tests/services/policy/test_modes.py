"""Modes: the built-in ones, how custom ones merge, and that a broken file is ignored as a whole, with a warning."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.policy.modes import GLOBAL_FILE, ModeRegistry, load_modes
from interlock.state.calls import CallView
from interlock.state.mode import ALWAYS, GROUPS
from interlock.tools.table import TOOLS

DOCS = """\
customModes:
  - slug: docs
    name: Documenter
    roleDefinition: You write documents.
    whenToUse: For documents.
    customInstructions: In English.
    groups:
      - read
      - - edit
        - fileRegex: \\.(md|txt)$
          description: Texts only
"""


@pytest.fixture
def place(tmp_path: Path, home: Path) -> Path:
    (home / GLOBAL_FILE).parent.mkdir(parents=True)
    return tmp_path


def load(place: Path, home: Path, trusted: bool = True) -> tuple[ModeRegistry, list[str]]:
    return load_modes(place, home, trusted)


def call(name: str = "write_file") -> CallView:
    return CallView(id="1", name=name, args={})


def mode_file(slug: str, name: str = "N", role: str = "R", groups: object = ()) -> str:
    return json.dumps(
        {"customModes": [{"slug": slug, "name": name, "roleDefinition": role, "groups": groups}]}
    )


def test_every_tool_is_in_one_group_or_in_every_mode() -> None:
    for name in TOOLS:
        groups = [group for group, tools in GROUPS.items() if name in tools and group != "modes"]
        assert len(groups) + (name in ALWAYS) == 1, (
            f"{name!r} belongs in one group of GROUPS, or in ALWAYS, in state/mode.py; it is in {groups}"
        )


@pytest.mark.parametrize("text", [None, "", "# nothing\n", "{}", "customModes: []", "other: 1"])
def test_the_built_in_modes(place: Path, home: Path, text: str | None) -> None:
    """A file without modes is no problem."""
    if text is not None:
        (place / ".roomodes").write_text(text)
    modes, problems = load(place, home)
    assert problems == []
    assert [m.slug for m in modes.list_modes()] == ["architect", "code", "ask", "debug", "orchestrator"]
    tools = ("read_file", "replace", "run_shell_command", "mcp_a_b")
    may = {m.slug: {t for t in tools if m.allows_tool(t)} for m in modes.list_modes()}
    assert may["architect"] == {"read_file", "replace", "mcp_a_b"}
    assert may["code"] == may["debug"] == {*tools}
    assert may["ask"] == {"read_file", "mcp_a_b"}
    assert may["orchestrator"] == set()
    assert all(m.allows_tool("new_task") and m.role for m in modes.list_modes())


def test_a_projects_modes_count_where_it_is_trusted_and_win_over_the_users(place: Path, home: Path) -> None:
    (place / ".roomodes").write_text(DOCS)
    more = [mode_file(slug, name)[17:-2] for slug, name in (("ask", "Mine"), ("last", "N"))]
    theirs = ", ".join([mode_file("docs", "Other")[:-2], *more]) + "]}"
    (home / GLOBAL_FILE).write_text(theirs)
    modes, problems = load(place, home)
    assert problems == []
    assert [(m.slug, m.name, m.source) for m in modes.list_modes()][2:] == [
        ("ask", "Mine", "global"),
        ("debug", "Debug", "built-in"),
        ("orchestrator", "Orchestrator", "built-in"),
        ("docs", "Documenter", "project"),
        ("last", "N", "global"),
    ]
    untrusted, _ = load(place, home, trusted=False)
    assert [(m.slug, m.name) for m in untrusted.list_modes()][-2:] == [("docs", "Other"), ("last", "N")]
    docs = modes.find_mode("docs")
    assert docs is not None
    assert (docs.when_to_use, docs.instructions) == ("For documents.", "In English.")
    (place / ".roomodes").write_text(mode_file("code", groups=["read"]))
    code = load(place, home)[0].find_mode("code")
    assert code is not None, "it replaces a built-in one whole"
    assert (code.role, code.when_to_use, code.allows_tool("replace")) == ("R", "", False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (mode_file("bad slug"), "customModes.0.slug: String should match pattern"),
        (mode_file("x\n"), "customModes.0.slug"),
        (mode_file("x", name=""), "customModes.0.name: String should have at least 1 character"),
        (mode_file("x", role=""), "customModes.0.roleDefinition"),
        (mode_file("x", groups=["read", ["read"]]), "group 'read' stands there twice"),
        (mode_file("x", groups=["write"]), "customModes.0.groups.0.0: Input should be 'read', 'edit'"),
        (mode_file("x", groups=[["edit", {"fileRegex": "("}]]), "pattern '(': missing )"),
        (mode_file("x", groups=[["edit", {"fileRegex": "(?!a)b"}]]), "RE2 syntax: no look-around"),
        (mode_file("x", groups="read"), 'customModes.0.groups: Input should be a valid list, got "read"'),
        (mode_file("x")[:-2] + ", " + mode_file("x")[17:], "slug 'x' stands there twice"),
        ("customModes: &a [*a]", "holds a YAML alias"),
        ("customModes: [", "no YAML"),
        ("- 1", "expected a mapping with the key customModes"),
        ("customModes: 3", "customModes: Input should be a valid list, got 3"),
        ("x: " + "[" * 1000, "nested too deeply"),
        ("\x00", "no YAML"),
    ],
)
def test_a_broken_file_is_told_of_and_ignored_as_a_whole(
    place: Path, home: Path, text: str, why: str
) -> None:
    """The good modes beside the bad one are ignored, too; the other file still counts."""
    good = mode_file("good")[:-2]
    both = text if not text.startswith('{"customModes": [') else good + ", " + text[17:]
    (place / ".roomodes").write_text(both)
    (home / GLOBAL_FILE).write_text(DOCS)
    modes, problems = load(place, home)
    assert [m.slug for m in modes.list_modes()][5:] == ["docs"]
    assert len(problems) == 1
    assert problems[0].startswith(f"{place / '.roomodes'} was ignored as a whole: ")
    assert why.replace("customModes.0", "customModes.1" if "good" in both else "customModes.0") in problems[0]


def test_what_editors_put_in_the_place_of_plain_characters_is_undone(place: Path, home: Path) -> None:
    text = "\ufeff" + DOCS.replace("  -", " \u00a0-").replace("- read", "\u2013 read")
    text = text.replace("- - edit", "\u2013 \u2013 edit")
    (place / ".roomodes").write_text(text, encoding="utf-8")
    modes, problems = load(place, home)
    assert (problems, modes.find_mode("docs") is not None) == ([], True)


@pytest.mark.parametrize("quoted", ["docs", "Documenter", "read", "\\.(md|txt)$", "Texts only"])
@pytest.mark.parametrize("quotes", ["“”", "‘’", "””"])
def test_values_in_an_editors_quotes_are_without_them_and_quotes_inside_a_text_stay(
    place: Path, home: Path, quoted: str, quotes: str
) -> None:
    text = DOCS.replace("In English.", "Don’t say “you”.")
    (place / ".roomodes").write_text(text, encoding="utf-8")
    plain = load(place, home)[0].find_mode("docs")
    assert plain is not None and plain.instructions == "Don’t say “you”."
    (place / ".roomodes").write_text(text.replace(quoted, quoted.join(quotes), 1), encoding="utf-8")
    modes, problems = load(place, home)
    mode = modes.find_mode("docs")
    assert (problems, mode is not None) == ([], True)
    assert mode and mode.model_copy(update={"instructions": plain.instructions}) == plain


def test_a_refusal_says_which_mode_and_which_pattern(place: Path, home: Path) -> None:
    modes, _ = load(place, home)
    said = modes.refusal_reason("architect", call("write_to_file"), "write_to_file", ["src/app.js"])
    assert said == (
        "Mode 'architect' (Architect) may only edit files that match \\.md$ (Markdown files only); "
        "write_to_file would write 'src/app.js'."
    )
    assert modes.refusal_reason("architect", call(), "write_file", ["a.md", "docs/b.md"]) is None
    assert modes.refusal_reason("architect", call(), "write_file", ["a.md", "b.md\n"]) is not None
    assert "can't be known" in (modes.refusal_reason("architect", call(), "write_file", None) or "")
    ask = modes.refusal_reason("ask", call("run_shell_command"), "run_shell_command", [])
    assert (
        ask == "run_shell_command is not a tool of mode 'ask' (Ask), which has the groups read, browser, mcp."
    )
    assert "no group of tools" in (
        modes.refusal_reason("orchestrator", call("read_file"), "read_file", []) or ""
    )
    assert "'gone' no longer exists" in (modes.refusal_reason("gone", call(), "write_file", []) or "")


@given(
    text=st.one_of(st.text(), st.sampled_from([DOCS]).map(lambda t: t[: len(t) // 2])),
    cut=st.integers(0, 400),
)
def test_no_file_ends_the_program(tmp_path: Path, text: str, cut: int) -> None:
    (tmp_path / ".roomodes").write_bytes((text + DOCS[cut:]).encode("utf-8", "surrogatepass"))
    modes, problems = load_modes(tmp_path, tmp_path / "home", True)
    assert (len(modes.list_modes()) == 5) or not problems
