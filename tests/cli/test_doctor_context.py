"""`interlock doctor`: which files of a folder are used, which aren't, and why."""

import json
import re
import sys
from pathlib import Path

from commands import Run
from folders import tree

_MODES = "customModes: [{slug: docs, name: Docs, roleDefinition: You write, groups: [read]}]"

WORK = {
    ".git/": "",
    "AGENTS.md": "rules @../gone.md @key.md",
    "key.md": b"\0",
    "CLAUDE.md": "rules",
    "lib/CLAUDE.md": "below",
    "one/AGENTS.md": "Twins.",
    "two/AGENTS.md": "Twins.",
    "two/in/AGENTS.md": "Twins.",
    "WARP.md": "other",
    ".cursor/rules/a.mdc": "---\nglobs: *.py, *.pyi\nowner: me\n---\nTabs.",
    ".cursor/rules/b.mdc": "---\nglobs: *.js\n",
    ".geminiignore": "x\n",
    ".roo/rules/a.md": "rules",
    ".roorules": "older rules",
    ".roo/rules-nothing/a.md": "rules",
    ".roo/system-prompt-ask": "own words",
    ".roomodes": _MODES,
    ".mcp.json": {"mcpServers": {"one": {"command": "x"}, "bad name": {"command": "x"}}},
    ".gemini/agents/helper.md": "---\nname: helper\ndescription: helps\n---\nHelp.",
    ".gemini/commands/a.toml": "prompt = 'a'",
    "mine.py": "PROCESSORS = {}",
}
HOME = {
    "commands/mine.toml": "prompt = 'm'",
    "commands/odd.toml": "prompt",
    "GEMINI.md": "be brief",
    "settings.json": {"processors": ["mine.py", "~/gone.py"]},
}


def test_it_lists_what_was_found_what_is_used_and_why_not(run: Run, tmp_path: Path) -> None:
    tree(tmp_path / "work", WORK)
    tree(Path.home() / ".gemini", HOME)
    told = json.loads(run("doctor", "--json").out)
    lines = [(f["level"], f["what"], f["text"]) for f in told]

    def said(level: str, what: str, part: str) -> bool:
        return any(f[:2] == (level, what) and part in f[2] for f in lines)

    assert said("ok", "warm", "off. To turn it on") or not sys.platform.startswith("linux")
    assert said("ok", "memory", "GEMINI.md: global, about 2 tokens")
    assert said("note", "memory", "AGENTS.md: not used; the folder isn't trusted (interlock trust)")
    assert said("note", "memory", "lib/CLAUDE.md: not used; the folder isn't trusted")
    assert said("note", "processors", "mine.py: not used; the folder isn't trusted")
    assert said("note", "processors", "gone.py: not used; there is no such file")
    assert said("ok", "ignore", ".geminiignore")
    assert said("note", "rules", ".roo/rules/a.md: not used; the folder isn't trusted")
    assert said("note", "rules", ".roorules: not used; there are rules that come before it")
    assert said("note", "rules", ".roo/rules-nothing/a.md: not used; unknown mode 'nothing'")
    assert said("note", "prompt", ".roo/system-prompt-ask: not used; the folder isn't trusted")
    ignored = next(f[2] for f in lines if f[1] == "trust")
    assert ".mcp.json (2 MCP servers)" in ignored and ".roomodes" in ignored and "AGENTS.md" in ignored
    assert re.search(r"and \d+ more\.", ignored), (
        "the rest, such as agents/helper.md, stands in `interlock trust`"
    )
    assert said("ok", "commands", "mine.toml: /mine")
    assert said("note", "commands", "odd.toml: not used; Expected")
    assert said("note", "commands", "a.toml: not used; the folder isn't trusted (interlock trust)")
    run("trust", "--yes")
    told = json.loads(run("doctor", "--json").out)
    lines = [(f["level"], f["what"], f["text"]) for f in told]
    assert said("ok", "commands", "a.toml: /a")
    assert said("note", "memory", "not imported: ")
    assert said("ok", "rules", ".roo/rules/a.md: every mode of the task loop")
    assert (
        said("ok", "modes", "docs") and said("ok", "agents", "helper.md: helper") and said("ok", "mcp", "one")
    )
    assert said("note", "memory", "CLAUDE.md: not used; the same text as") or said(
        "ok", "memory", "CLAUDE.md: project"
    )
    assert said("ok", "memory", "lib/CLAUDE.md: files in lib, about")
    assert said("ok", "memory", "one/AGENTS.md: files in one") and said(
        "ok", "memory", "two/AGENTS.md: files in two"
    )
    assert said("note", "memory", "two/in/AGENTS.md: not used; the same text as two/AGENTS.md")
    assert said("note", "memory", "WARP.md: not used; the setting context.fileName can name it")
    assert said("ok", "rules", "a.mdc: with files that match *.py, *.pyi, about")
    assert said("ok", "rules", "Interlock doesn't know 'owner' in it")
    assert said("ok", "rules", "b.mdc: only where a prompt names it with @") and said(
        "ok", "rules", "no closing line"
    )
    assert said("ok", "processors", "mine.py (interlock diagram main)")
    assert said("ok", "mcp", "bad name")
    assert said("ok", "prompt", ".roo/system-prompt-ask: in place of the mode's system prompt")
