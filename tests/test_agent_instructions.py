"""test_agent_instructions: other agents' memory and rule files reach the model as they are, once, and under trust."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put, tree
from hypothesis import given
from hypothesis import strategies as st
from places import Place

from interlock.services.context.agents import load_agents
from interlock.services.context.definition_files import Folders
from interlock.services.context.imports import ImportExpansion, find_import_targets
from interlock.services.context.instructions import load_instructions
from interlock.services.context.rule_conditions import matches_patterns
from interlock.services.context.skills import load_skills
from interlock.state.settings import ContextSettings

Shown = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    put(place.work / ".git/HEAD", "ref: refs/heads/main\n")
    return place


@pytest.fixture
def opening(place: Place) -> Shown:
    """The message before the first prompt, in a trusted folder."""

    def do(workflow: str = "context", trusted: bool = True, **options: Any) -> str:
        outcome = place.run(workflow, {"prompt": "go"}, skip_trust=trusted, **options)
        assert outcome.status == "done", outcome.error
        return str(outcome.output["messages"][0])

    return do


def test_every_agents_files_are_read_in_order_and_each_text_once(place: Place, opening: Shown) -> None:
    tree(
        place.work,
        {
            "AGENTS.md": "THE AGENTS",
            "GEMINI.md": "THE GEMINI @scope/tool @app.route @/docs/x.md",
            "CLAUDE.md": "@AGENTS.md\n",
            ".claude/CLAUDE.md": "THE HIDDEN @part.md",
            ".claude/part.md": "THE PART",
            "CLAUDE.local.md": "THE LOCAL",
            ".windsurfrules": "THE HIDDEN @part.md",
            ".cursorrules": "CLAUDE.md",
            ".clinerules/a.md": "THE CLINE",
            ".clinerules/workflows/b.md": "NO RULE",
            ".roo/rules/a.md": "THE ROO",
            ".cursor/rules/always.mdc": "---\ndescription: x: y\nalwaysApply: true\n---\nTHE CURSOR",
            ".cursor/rules/copy.mdc": "---\nalwaysApply: true\n---\nTHE CLINE",
            ".cursor/rules/fits.mdc": "---\ndescription: How to migrate\n---\nUNSEEN",
            ".cursor/rules/named.mdc": "---\n---\nUNSEEN",
            ".github/instructions/a.instructions.md": "---\napplyTo: **\n---\nTHE COPILOT",
        },
    )
    (place.work / ".windsurf/rules").mkdir(parents=True)
    (place.work / ".windsurf/rules/linked.md").symlink_to("../../AGENTS.md")
    text = opening()
    order = [
        "THE GEMINI",
        "THE AGENTS",
        "THE HIDDEN",
        "THE PART",
        "THE LOCAL",
        "THE COPILOT",
        "THE CURSOR",
        "THE CLINE",
    ]
    assert [text.count(one) for one in (*order, "THE ROO")] == [1] * 9
    places = [text.index(one) for one in order]
    assert places == sorted(places)
    assert "@scope/tool @app.route @/docs/x.md\\n" in text
    assert "- .cursor/rules/fits.mdc: How to migrate" in text
    assert "UNSEEN" not in text
    assert "NO RULE" not in text
    assert "not imported" not in text


def test_an_override_replaces_and_what_somebody_set_wins(place: Place, opening: Shown) -> None:
    tree(
        place.work,
        {
            "AGENTS.md": "THE OLD",
            "CLAUDE.md": "THE CLAUDE",
            "AGENTS.override.md": "THE NEW",
            ".cursorrules": "THE RULE",
        },
    )

    def shown() -> list[str]:
        text = opening()
        return [word for word in ("OLD", "NEW", "CLAUDE", "RULE") if f"THE {word}" in text]

    assert shown() == ["NEW", "CLAUDE", "RULE"]
    put(
        place.work / ".interlock/settings.json",
        {"context": {"fileName": "AGENTS.md", "read": {"rules": False}}},
    )
    assert shown() == ["OLD"]
    put(place.work / ".interlock/settings.json", {"context": {"read": {"memory": False}}})
    assert shown() == ["RULE"]


def test_who_has_more_than_before_hears_of_it_once(place: Place) -> None:
    tree(place.work, {"AGENTS.md": "agents", "CLAUDE.md": "claude"})

    def told() -> list[str]:
        warnings = place.run("context", {"prompt": "go"}, skip_trust=True).warnings
        return [line for line in warnings if "CLAUDE.md: read beside AGENTS.md" in line]

    assert (len(told()), len(told())) == (1, 0)


def test_a_hostile_folder_does_nothing_before_trust_and_reaches_nothing_after(
    place: Place, opening: Shown
) -> None:
    put(place.work.parent / "secret.txt", "OUTSIDE")
    (place.work / "link.md").symlink_to("../secret.txt")
    tree(
        place.work,
        {
            ".env": "KEY=INSIDE",
            "CLAUDE.md": "STEER @../secret.txt @link.md @.env @~/.ssh/id_rsa",
            ".cursor/rules/a.mdc": "---\nalwaysApply: true\n---\nSTEER @../../../secret.txt",
            ".clinerules": "STEER " + "x" * 10_000_000,
        },
    )
    (place.work / ".claude").symlink_to("..")
    assert "STEER" not in opening(trusted=False)
    text = opening()
    assert text.count("STEER") == 3
    assert "OUTSIDE" not in text
    assert "INSIDE" not in text
    assert len(text) < 300_000


@given(st.text(alphabet="@./ab~c \n`*", max_size=40), st.text(alphabet="@./ab~c \n`*", max_size=20))
def test_imports_never_raise_repeat_or_leave_the_project(source: str, other: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "repo"
        tree(root, {"M.md": source, "a": other, "b/c": other + "!", "ab": "@M.md"})
        put(root.parent / "a", "OUTSIDE")
        expansion = ImportExpansion((root,), 10_000)
        text = expansion.expand_file(root / "M.md")
        assert "OUTSIDE" not in text
        assert all(path.is_relative_to(root) for path in expansion.seen)
        assert text.count("<!-- from ") <= len(expansion.seen) - 1
        if not [*find_import_targets(source)]:
            assert text == source or text in (other, other + "!", "@M.md")


_LINKS = (
    *("AGENTS.md", "CLAUDE.md", ".claude", ".claude/rules", ".claude/skills", ".agents/skills"),
    ".claude/agents/a.md",
)
_TARGETS = (
    *("../out", "../out/AGENTS.md", "../../out", "docs", "../docs", "docs/AGENTS.md", ".", ".."),
    *("AGENTS.md", "gone"),
)


@given(st.dictionaries(st.sampled_from(_LINKS), st.sampled_from(_TARGETS), max_size=4))
def test_no_links_lead_out_of_the_repository_or_end_a_search(links: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "repo"
        for base, text in ((root / "docs", "INSIDE"), (root.parent / "out", "OUTSIDE")):
            front = f"---\nname: x\ndescription: {text}\n---\n{text}"
            tree(
                base,
                {"AGENTS.md": front, "s/SKILL.md": front, "skills/s/SKILL.md": front, "rules/r.md": front},
            )
        put(root / ".git/HEAD", "ref: refs/heads/main\n")
        for name, target in links.items():
            if not os.path.lexists(root / name) and (root / name).parent.resolve().is_relative_to(root):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).symlink_to(target)
        home = root.parent / "home"
        loaded = load_instructions([root], home, ContextSettings.default(), trusted=True)
        folders = Folders(root, home, trusted=True)
        skills, agents = load_skills(folders).by_name, load_agents(folders).by_name
        shown = [*(file.text for file in (*loaded.memory, *loaded.rules))]
        shown += [
            *(skill.description for skill in skills.values()),
            *(a.system_prompt for a in agents.values()),
        ]
        assert not any("OUTSIDE" in text for text in shown)


@pytest.mark.parametrize(
    ("pattern", "bare", "yes", "no"),
    [
        ("*.md", "root", ["a.md"], ["x/a.md", "a.mdx"]),
        ("*.md", "anywhere", ["a.md", "x/y/a.md"], ["a.mdx"]),
        ("**/*.{ts,tsx}", "root", ["a.ts", "x/y/a.tsx"], ["a.js"]),
        ("src/**", "root", ["src/a", "src/x/a"], ["a/src/b", "srcs/a"]),
        ("src/*/x.py", "root", ["src/a/x.py"], ["src/x.py", "src/a/b/x.py"]),
        ("apps/web/", "root", ["apps/web/a"], ["apps/webs/a"]),
        ("**", "root", ["a", "x/y"], []),
        ("{a,b/{c,d}}/*.py", "root", ["a/x.py", "b/d/x.py"], ["b/x.py"]),
        ("[", "root", ["["], ["a"]),
        ("a[!b]c", "root", ["axc"], ["abc"]),
        ("x" * 2_000, "root", [], ["x" * 2_000]),
    ],
)
def test_patterns_match_as_their_program_reads_them(
    pattern: str, bare: Any, yes: list[str], no: list[str]
) -> None:
    assert [path for path in [*yes, *no] if matches_patterns(path, [pattern], bare)] == yes


@given(st.text(alphabet="*?[]{},!/ab\\.^-", max_size=30), st.text(alphabet="ab/.", max_size=12))
def test_no_pattern_raises(pattern: str, path: str) -> None:
    matches_patterns(path, [pattern], "root")
    matches_patterns(path, [pattern], "anywhere")


def test_files_above_the_folder_count_once_they_are_trusted_too(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "work"
    tree(
        work,
        {".git/HEAD": "x", "CLAUDE.md": "THE ROOT", "AGENTS.md": "THE AGENTS", "sub/CLAUDE.md": "THE SUB"},
    )

    def shown() -> list[str]:
        text = run("run", "context", "prompt=go", "-C", "sub", "-o", "json").out
        return [word for word in ("THE ROOT", "THE AGENTS", "THE SUB") if word in text]

    assert shown() == []
    assert "counts if" in run("trust", "sub", "--yes").out
    assert shown() == ["THE SUB"]
    run("trust", "--yes")
    assert shown() == ["THE ROOT", "THE AGENTS", "THE SUB"]
