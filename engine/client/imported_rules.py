"""imported_rules: permissions of other agents' home folders as a file of rules, and what no rule can say exactly.

Nothing becomes wider than it was there: an entry that allows every command or every edit isn't taken over, nor one
whose pattern our rules can't say."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, NamedTuple, cast

from interlock.services.policy.claude_permission_syntax import (
    parse_host,
    parse_permission,
    split_server_tool,
)
from interlock.services.secrets.redaction import Redactor, find_secret_shapes
from interlock.state.names import OTHER_NAMES, mcp_tool_name

_PRIORITY = {"deny": 900, "ask_user": 600, "allow": 300}
"""All three programs let a denial win."""
_DECISIONS = {
    "allow": "allow",
    "deny": "deny",
    "forbidden": "deny",
    "ask": "ask_user",
    "prompt": "ask_user",
}
_SHELL = "run_shell_command"
_EDITS = ("replace", "write_file")
_READS = frozenset({"read_file", "grep_search", "glob", "list_directory", "write_todos", "read_many_files"})
_SPECIAL = re.compile(r"[$`\\?\[\]{}~!#<>|;&()\n\r'\"]")
"""What a shell reads in another way than as text."""
_MOST_PREFIXES = 200
_LONGEST_TEXT = 200

NO_WHOLE_SHELL = "it allows every command. For one run: -y; for good, write a rule"
NO_WHOLE_EDIT = "it allows every edit. For one run: --approval-mode auto_edit"
NEEDLESS = "Interlock asks for none of it"


class ImportedRules(NamedTuple):
    """What became of the entries of one program."""

    rules: list[tuple[str, dict[str, Any]]]
    """Each entry as it stands there, and a `[[rule]]` table."""
    left_out: list[tuple[str, str]]
    """Other entries, and why."""

    def render_file(self, sources: Sequence[str]) -> str:
        """Return a file of rules."""
        lines = [
            f"# Imported from {', '.join(sources)}. Change it as you like; Interlock doesn't write it again."
        ]
        for text, rule in self.rules:
            lines += ["", f"# {json.dumps(text, ensure_ascii=False)}", "[[rule]]"]
            lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in rule.items()]
        return "\n".join(lines) + "\n"


class _RuleCollector:
    def __init__(self) -> None:
        self.found = ImportedRules([], [])

    def add(self, text: str, decision: str, tools: str | Sequence[str], **conditions: Any) -> None:
        names = tools if isinstance(tools, str) else [*tools]
        rule = {"toolName": names, **conditions, "decision": decision, "priority": _PRIORITY[decision]}
        if any(find_secret_shapes(f"{text} {json.dumps(conditions)}")):
            return self.leave_out(text, "a key stands in it")
        if all(rule != other for _, other in self.found.rules):
            self.found.rules.append((text[:_LONGEST_TEXT], rule))
        return None

    def leave_out(self, text: str, why: str) -> None:
        self.found.left_out.append((Redactor()(text), why))

    def add_command(self, text: str, decision: str, pattern: str) -> None:
        """Add a pattern of commands: `npm test`, `npm run *`, `git log:*`."""
        pattern = " ".join(pattern.split())
        has_more = pattern.endswith((":*", " *"))
        prefix = pattern[:-2].rstrip() if has_more else pattern
        if not prefix.strip("* "):
            if decision == "allow":
                return self.leave_out(text, NO_WHOLE_SHELL)
            return self.add(text, decision, _SHELL)
        if special := _SPECIAL.search(prefix):
            return self.leave_out(text, f"a rule can't say what {special[0]!r} stands for")
        if not has_more and decision == "allow" and prefix.endswith("*"):
            prefix, has_more = prefix.rstrip("*").rstrip(), True  # `git log*`, but for `git logs`
        if "*" in prefix and decision == "allow":
            return self.leave_out(
                text, "a rule allows a prefix or a whole command; `*` stands within this one"
            )
        if has_more and "*" not in prefix:
            return self.add(text, decision, _SHELL, commandPrefix=prefix)
        expression = ".*".join(map(re.escape, prefix.split("*"))) + (r"( .*)?\z" if has_more else r"\z")
        return self.add(text, decision, _SHELL, commandRegex=f"(?s){expression}")


def read_claude_permissions(table: Mapping[str, Any]) -> ImportedRules:
    """Return Claude Code's `permissions` as rules."""
    made = _RuleCollector()
    for kind in ("deny", "ask", "allow"):
        entries = cast("list[object]", table.get(kind)) if isinstance(table.get(kind), list) else []
        for entry in entries:
            found = parse_permission(entry)
            if found is None:
                made.leave_out(f"{kind} {entry}", "it is no rule of Claude Code's")
            else:
                _add_claude_entry(made, f"{kind} {entry}", _DECISIONS[kind], found.tool, found.scope)
    if mode := table.get("defaultMode"):
        made.leave_out(f"defaultMode {mode}", "choose it for a run: --approval-mode")
    if table.get("additionalDirectories"):
        made.leave_out(
            "additionalDirectories", "name them in context.includeDirectories of a folder's settings"
        )
    return made.found


def _add_claude_entry(made: _RuleCollector, text: str, decision: str, tool: str, inner: str) -> None:
    allows = decision == "allow"
    ours = OTHER_NAMES.get(tool)
    if tool == "Bash":
        return made.add_command(text, decision, inner or "*")
    if server_tool := split_server_tool(tool):
        server, name = server_tool
        if not server or "*" in server or ("*" in name and name != "*"):
            return made.leave_out(text, "a rule names one server, and one of its tools or all")
        which = "*" if name in ("", "*") else mcp_tool_name(server, name)
        return made.add(text, decision, which, mcpName=server)
    if ours is None or ours == "invoke_agent":
        return made.leave_out(text, "Interlock has no such tool")
    if ours in _READS and (allows or inner):
        hides = "keep files from tools with an ignore file, such as .geminiignore"
        return made.leave_out(text, NEEDLESS if allows else hides)
    if ours in _EDITS:
        if allows:
            return made.leave_out(
                text, "paths of edits can't be allowed beforehand" if inner else NO_WHOLE_EDIT
            )
        if not inner:
            return made.add(text, decision, _EDITS)
        return made.leave_out(text, "a rule names one file; keep files from tools with an ignore file")
    if not inner:
        return made.add(text, decision, ours)
    if ours == "web_fetch" and (host := parse_host(inner)) and "*" not in host:
        return made.add(text, decision, ours, host=host)
    return made.leave_out(text, "no rule says what narrows this tool")


def read_codex_rules(text: str) -> ImportedRules:
    """Return the `prefix_rule(…)` of one of Codex's files as rules. Raises `ValueError` if it can't be read."""
    made = _RuleCollector()
    try:
        body = ast.parse(text).body  # Starlark's calls are Python's
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"expected prefix_rule(…), {error}") from None
    for line in body:
        call = line.value if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) else None
        shown = " ".join(ast.unparse(line).split())
        try:
            given = {one.arg: ast.literal_eval(one.value) for one in call.keywords} if call else {}
        except ValueError:
            given = {}
        pattern, decision = given.get("pattern"), _DECISIONS.get(given.get("decision", "allow"))
        if not isinstance(pattern, list) or not pattern or decision is None:
            made.leave_out(shown, "it is no prefix_rule with plain words")
            continue
        words = [[*map(str, _to_list(one))] for one in cast("list[object]", pattern)]
        odd = next((word for word in chain(*words) if _SPECIAL.search(word) or word.split() != [word]), None)
        prefixes = (
            [" ".join(one) for one in islice(product(*words), _MOST_PREFIXES + 1)] if odd is None else []
        )
        if odd is not None or len(prefixes) > _MOST_PREFIXES:
            why = "it stands for too many commands" if odd is None else "a rule can't say one of its words"
            made.leave_out(shown, why)
            continue
        made.add(shown, decision, _SHELL, commandPrefix=prefixes)
    return made.found


_OPENCODE_TOOLS: Mapping[str, str | tuple[str, ...]] = {
    "edit": _EDITS,
    "bash": _SHELL,
    "webfetch": "web_fetch",
    "websearch": "web_search",
    "read": "read_file",
    "glob": "glob",
    "grep": "grep_search",
    "list": "list_directory",
    "skill": "activate_skill",
    "task": "invoke_agent",
}


def read_opencode_permissions(permission: object) -> ImportedRules:
    """Return opencode's `permission` as rules: of a table of patterns, the last that matches counts there."""
    made = _RuleCollector()
    table = cast("dict[str, Any]", permission if isinstance(permission, dict) else {"*": permission})
    for key, value in table.items():
        tools = _OPENCODE_TOOLS.get(key)
        entries = cast("dict[str, Any]", value if isinstance(value, dict) else {"*": value})
        for place, (pattern, action) in enumerate(entries.items()):
            text, decision = f"{key} {pattern}: {action}", _DECISIONS.get(str(action))
            if key == "*" and decision is not None:
                if decision == "allow":
                    made.leave_out(text, NO_WHOLE_SHELL)
                else:
                    made.add(text, decision, "*")
            elif tools is None or decision is None:
                made.leave_out(text, "Interlock has nothing of this name")
            elif key == "bash" and (pattern, decision) == ("*", "ask_user"):
                made.leave_out(text, "commands ask already")
            elif key == "bash":
                _add_opencode_command(made, text, decision, pattern, place)
            elif pattern != "*":
                made.leave_out(text, "no rule says this pattern")
            elif decision == "allow" and tools == _EDITS:
                made.leave_out(text, NO_WHOLE_EDIT)
            elif decision == "allow" and isinstance(tools, str) and tools in _READS:
                made.leave_out(text, NEEDLESS)
            else:
                made.add(text, decision, tools)
    return made.found


def _add_opencode_command(made: _RuleCollector, text: str, decision: str, pattern: str, place: int) -> None:
    before = len(made.found.rules)
    # There, `git *` is also `git` alone, and `git*` any word that begins so.
    made.add_command(text, decision, pattern)
    for _, rule in made.found.rules[before:]:
        rule["priority"] = min(200 + place, 999)


def read_roo_commands(settings: Mapping[str, Any]) -> ImportedRules:
    """Return the commands that VS Code's settings let Roo Code run, or keep from it, as rules."""
    made = _RuleCollector()
    for key, decision in (("roo-cline.deniedCommands", "deny"), ("roo-cline.allowedCommands", "allow")):
        for prefix in _iterate_strings(settings.get(key)):
            made.add_command(f"{key} {prefix}", decision, f"{prefix} *" if prefix != "*" else "*")
    return made.found


def _to_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _iterate_strings(value: object) -> Iterator[str]:
    if isinstance(value, list):
        yield from (one for one in cast("list[object]", value) if isinstance(one, str) and one.strip())
