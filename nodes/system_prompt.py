"""system_prompt: a file or flag that replaces it, else the applicable sections; and what changed."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.runtime import Runtime

from interlock.nodes.system_sections import (
    MAIN,
    SECTIONS,
    SMALL,
    SMALL_TASK,
    TASK,
    PromptSection,
    group_sections_by_condition,
)
from interlock.prompts import render_prompt
from interlock.state.context import IGNORE_FILE, RuleFile
from interlock.state.deps import Deps
from interlock.state.mcp import ServerView
from interlock.state.messages import Message, TextPart, ToolDeclaration
from interlock.state.mode import Mode
from interlock.state.names import WAIT, mcp_tool_prefix
from interlock.state.node import Part, node, require_task_id
from interlock.state.system_prompt import SystemPromptState, changed_section_names, message_sections
from interlock.state.text import replace_surrogates
from interlock.tools.table import TASK_LOOP

_OF = {"search": "codebase_search", "browser": "browser_action", "diff": "apply_diff"}
"""Feature → its tool."""


@dataclass(frozen=True)
class PromptFacts:
    """What conditions depend on and slots are filled with."""

    mode: Mode | None
    tools: Sequence[ToolDeclaration]
    """Tools the mode allows."""
    servers: Sequence[ServerView]
    """Connected servers with an allowed tool or a readable resource."""
    holds: Mapping[str, bool]

    def describe_missing_conditions(self, section: PromptSection, for_agent: bool) -> str:
        """The conditions that don't hold, in words; empty: it stands."""
        holds = (
            *(() if section.shared else (not for_agent,)),
            *((any(tool.name in section.tools for tool in self.tools),) if section.tools else ()),
            *((self.holds[section.only],) if section.only else ()),
            *((True,) if section.filled else ()),  # known once its slots are filled
        )
        lacking = [
            words for words, held in zip(section.describe_conditions(), holds, strict=True) if not held
        ]
        return f"needs {' and '.join(lacking)}" if lacking else ""


def collect_prompt_facts(state: SystemPromptState, deps: Deps) -> PromptFacts:
    mode, has = deps.modes.find_mode(state.get("mode", "")), state.get("has") or {}
    hidden = frozenset[str]() if state.get("flavour") == "task" else TASK_LOOP
    tools = [t for t in deps.toolset.declare_tools() if t.name not in hidden and _is_tool_usable(t, has)]
    tools = [t for t in tools if mode is None or mode.allows_tool(t.name)]
    names = {tool.name for tool in tools}
    connected = (v for v in deps.mcp.list_servers() if v.status == "connected")
    servers = [v for v in connected if any(name.startswith(mcp_tool_prefix(v.name)) for name in names)]
    sandboxed, protocol = bool(deps.settings.tools.sandbox), state.get("protocol") or "native"
    holds = {
        "agent": bool(state.get("agent")),
        "git": deps.context.system_prompt_facts().in_git,
        "unattended": not deps.info.interactive,
        "open": not sandboxed,
        "sandboxed": sandboxed,
        "offline": sandboxed and not deps.settings.tools.sandbox_network,
        "native": protocol in ("native", "auto"),
        "xml": protocol == "xml",
        "mcp": has.get("mcp", bool(servers)),
        "told by servers": any(v.instructions for v in servers),
        "several reads": deps.settings.tools.max_concurrent_file_reads > 1,
        **{what: has.get(what, tool in names) for what, tool in _OF.items()},
    }
    return PromptFacts(mode, tools, servers, holds)


def _is_tool_usable(tool: ToolDeclaration, available: Mapping[str, bool]) -> bool:
    what = next((what for what, name in _OF.items() if name == tool.name), None)
    what = "mcp" if tool.name.startswith("mcp_") else what
    return what is None or available.get(what, True)


def render_section(section: PromptSection, facts: PromptFacts, rules: Sequence[RuleFile], deps: Deps) -> str:
    """The section with its slots filled; empty: nothing to say."""
    slots = _SLOTS.get(section.prompt)
    values = slots(facts, rules, deps) if slots else {}
    return (
        "" if any(not value.strip() for value in values.values()) else render_prompt(section.prompt, **values)
    )


_Slots = Callable[[PromptFacts, Sequence[RuleFile], Deps], dict[str, str]]
_SLOTS: Mapping[str, _Slots] = {
    "main/small": lambda _facts, _rules, deps: {
        "workspace": str(deps.info.workspace),
        "system": platform.system(),
    },
    "task/role": lambda facts, _rules, _deps: {"role": facts.mode.role if facts.mode else _NO_MODE},
    "task/tools": lambda facts, _rules, _deps: {"tools": "\n\n".join(map(_describe_tool, facts.tools))},
    "task/mcp": lambda facts, _rules, _deps: {"servers": _format_servers(facts.servers)},
    "main/servers": lambda facts, _rules, _deps: {
        "servers": _format_servers([v for v in facts.servers if v.instructions])
    },
    "task/modes": lambda _facts, _rules, deps: {
        "modes": "\n".join(map(_format_mode_line, deps.modes.list_modes()))
    },
    "task/rules_reads": lambda _facts, _rules, deps: {
        "files": str(deps.settings.tools.max_concurrent_file_reads)
    },
    "task/rules_files": lambda facts, _rules, _deps: {
        "mode": facts.mode.slug if facts.mode else "",
        "files": _edit_restriction_text(facts.mode),
    },
    "task/system": lambda _facts, _rules, deps: {
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "shell": "bash",
        "workspace": str(deps.info.workspace),
    },
    "task/instructions": lambda facts, rules, deps: {
        "instructions": "\n\n".join(_all_instructions(facts, rules, deps))
    },
}
_NO_MODE = "Do what the task asks for, and nothing else."


def _format_servers(servers: Sequence[ServerView]) -> str:
    return (
        "\n\n".join(
            f"--- {v.name} ---\n{_server_instructions_and_resources(v)}\n--- end of {v.name} ---"
            for v in servers
        )
        or "(none yet)"
    )


def _server_instructions_and_resources(server: ServerView) -> str:
    offered = (*server.resources, *server.templates)
    resources = [f"- resource {item.name}: {item.description}" for item in offered]
    return "\n".join([server.instructions or f"(tools: {mcp_tool_prefix(server.name)}…)", *resources])


def _edit_restriction_text(mode: Mode | None) -> str:
    rule = next((group for group in mode.groups if group.name == "edit"), None) if mode else None
    if rule is None or not rule.file_regex:
        return ""
    return f"`{rule.file_regex}`" + (f" ({rule.description})" if rule.description else "")


def _format_mode_line(mode: Mode) -> str:
    when = mode.when_to_use or mode.role.partition(".")[0]
    return f"- {mode.name} (`{mode.slug}`): " + "\n  ".join(when.strip().splitlines())


def _language_instruction(_facts: PromptFacts, _rules: Sequence[RuleFile], deps: Deps) -> Iterator[str]:
    if language := deps.settings.context.language:
        yield f"Write to the user in this language: {language}."


def _rule_file_texts(_facts: PromptFacts, rules: Sequence[RuleFile], _deps: Deps) -> Iterator[str]:
    for file in rules:
        if file.text:
            text = (
                render_prompt("task/ignored", patterns=file.text) if file.shown == IGNORE_FILE else file.text
            )
            yield f"## Rules from {file.shown}\n\n{text}"


_INSTRUCTIONS: Mapping[str, Callable[[PromptFacts, Sequence[RuleFile], Deps], Iterable[str]]] = {
    "language": _language_instruction,
    "the user's": lambda _facts, _rules, deps: [deps.settings.context.instructions.strip()],
    "the mode's": lambda facts, _rules, _deps: [facts.mode.instructions.strip()] if facts.mode else [],
    "rule files and AGENTS.md": _rule_file_texts,
}
"""From general to specific."""


def _all_instructions(facts: PromptFacts, rules: Sequence[RuleFile], deps: Deps) -> Iterator[str]:
    for texts in _INSTRUCTIONS.values():
        yield from filter(None, texts(facts, rules, deps))


_PLAIN = ("string", "integer", "number", "boolean")


def _describe_tool(tool: ToolDeclaration) -> str:
    properties: dict[str, Mapping[str, Any]] = {**tool.parameters.get("properties", {})}
    properties.pop(WAIT, None)  # it adds words to every tool, and small models do better without
    required: Sequence[str] = tool.parameters.get("required", ())
    listed = [_describe_parameter(name, schema, name in required) for name, schema in properties.items()]
    tags = [f"<{name}>…</{name}>" for name in properties if name in required]
    usage = "\n".join([f"<{tool.name}>", *tags, f"</{tool.name}>"])
    return "\n".join([f"## {tool.name}", "", tool.description, *listed, "", usage])


def _describe_parameter(name: str, schema: Mapping[str, Any], required: bool) -> str:
    kind = schema.get("type")
    form = describe_schema(schema) if kind in _PLAIN else f"JSON: {describe_schema(schema)}"
    # Line breaks are kept: some descriptions show a form.
    description = "\n  ".join(str(schema.get("description", "")).splitlines())
    return f"- {name} ({form}{', required' if required else ''}): {description}"


def describe_schema(schema: Mapping[str, Any]) -> str:
    """A short description of a value's type."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(describe_schema, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"[{describe_schema(schema.get('items', {}))}, …]"
    if "properties" in schema:
        required = schema.get("required", ())
        fields = (
            f'"{n}"{"" if n in required else "?"}: {describe_schema(s)}'
            for n, s in schema["properties"].items()
        )
        return f"{{{', '.join(fields)}}}"
    return str(schema.get("type", "any value"))


_REPLACEMENT = "replacement"
_KEPT = {"main": ("mode", _REPLACEMENT), "task": ("role", _REPLACEMENT, "instructions")}
"""Sections left when a file replaces the others, by prompt; what a flag appends is left in any."""


def _section_table_name(state: SystemPromptState, deps: Deps) -> str:
    """The table of sections that the prompt is made of, as `load_override` names it."""
    if state.get("agent"):
        return "main"
    of = state.get("flavour") or "main"
    return f"small {of}" if deps.info.brief else of


@node(
    reads=("agent", "flavour", "mode", "protocol", "has", "previous"),
    writes=("source", "system", "changed", "left_out", "label"),
    labels=("file", "main", "task", "small main", "small task"),
)
async def load_override(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    """Use the user's replacement, except for sub-agents, which need the sections on their tools."""
    deps = runtime.context
    table = _section_table_name(state, deps)
    found = None if state.get("agent") else deps.context.system_prompt_replacement(state.get("mode", ""))
    if found is None:
        return {"label": table, "source": "generated"}
    kept = (*_KEPT[state.get("flavour") or "main"], "appended")
    texts = await _render_named_sections(kept, state, deps)
    texts = [(name, found.text if name == _REPLACEMENT else text) for name, text in texts]
    return {
        "label": "file",
        "source": found.source,
        "system": _record_system_prompt_if_changed(texts, state.get("previous", ""), deps),
        "changed": [],
        "left_out": {s.name: "replaced" for s in _TABLES[table] if s.name not in kept}
        | _reasons_for_empty_sections(texts),
    }


_TABLES = {"main": MAIN, "task": TASK, "small main": SMALL, "small task": SMALL_TASK}


def _make_section_selection_node(table: Sequence[PromptSection], name: str) -> Callable[..., Any]:
    """A node that says which of the table's sections stand; a diagram draws them as its branches."""

    async def gather(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
        return await _select_sections(table, state, runtime.context)

    gather.__name__ = name
    reads, writes = ("agent", "flavour", "mode", "protocol", "has"), ("sections", "left_out")
    return node(reads=reads, writes=writes, parts=group_sections_by_condition(table))(gather)


GATHERS = {
    table: _make_section_selection_node(sections, f"gather_{table.replace(' ', '_')}")
    for table, sections in _TABLES.items()
}
"""Table, as `load_override` names it → the node that gathers its sections."""


async def _select_sections(
    table: Sequence[PromptSection], state: SystemPromptState, deps: Deps
) -> SystemPromptState:
    await deps.mcp.start_and_wait_for_servers()
    agent, facts = bool(state.get("agent")), collect_prompt_facts(state, deps)
    lacks = {section.name: facts.describe_missing_conditions(section, agent) for section in table}
    return {
        "sections": [name for name, lacking in lacks.items() if not lacking],
        "left_out": {name: lacking for name, lacking in lacks.items() if lacking},
    }


@node(
    reads=("agent", "flavour", "mode", "protocol", "has", "sections", "left_out", "previous"),
    writes=("system", "left_out"),
    parts=(Part("the instructions of task", tuple(_INSTRUCTIONS)),),
)
async def assemble(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    deps = runtime.context
    texts = await _render_named_sections(state["sections"], state, deps)
    empty = _reasons_for_empty_sections(texts)
    left_out = {**state["left_out"], **empty}
    stand = ", ".join(name for name, _ in texts if name not in empty)
    out = ", ".join(f"{name} ({why})" for name, why in left_out.items())
    deps.steps.record_reason(
        require_task_id(runtime, "A prompt"), f"in: {stand}" + (f"; out: {out}" if out else "")
    )
    return {
        "system": _record_system_prompt_if_changed(texts, state.get("previous", ""), deps),
        "left_out": left_out,
    }


def _reasons_for_empty_sections(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Section → what it lacks, of those without text."""
    names = (name for name, text in texts if not text.strip())
    filled = {name: SECTIONS[name].filled if name in SECTIONS else "" for name in names}
    return {name: f"needs {what}" if what else "nothing to say" for name, what in filled.items()}


TRIGGERS = ("mode", "rules", "servers", "settings")
_TRIGGERS = {
    **dict.fromkeys(("mode", "role", "modes", "rules_files"), "mode"),
    "instructions": "rules",
    **dict.fromkeys(("servers", "mcp", "capabilities_mcp"), "servers"),
}
"""Section → what changes its text; that of others, settings do."""


@node(reads=("system", "previous", "before"), writes=("changed",), labels=("first", "unchanged", *TRIGGERS))
async def compare(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    """Compare with the previous system prompt; without one, nothing has changed. The label says what changed it."""
    transcript = runtime.context.transcript
    before = state.get("before") or {}
    if previous := state.get("previous"):
        before = {s.name: s.fingerprint for s in message_sections(transcript.read_message(previous))}
    if not before:
        return {"changed": [], "label": "first"}
    now = {s.name: s.fingerprint for s in message_sections(transcript.read_message(state["system"]))}
    changed = changed_section_names(before, now)
    found = {_TRIGGERS.get(name, "settings") for name in changed}
    return {"changed": changed, "label": next((one for one in TRIGGERS if one in found), "unchanged")}


async def _render_named_sections(
    names: Iterable[str], state: SystemPromptState, deps: Deps
) -> list[tuple[str, str]]:
    """Each section's text; empty: nothing to say."""
    names, facts = [*names], collect_prompt_facts(state, deps)
    rules = await deps.context.load_mode_rules(state.get("mode", "")) if "instructions" in names else ()
    texts = {
        "appended": lambda: deps.context.system_prompt_facts().appended,
        "mode": lambda: facts.mode.role if facts.mode else "",
        "agent": lambda: deps.agents.load_instance(state.get("agent", "")).definition.system_prompt,
        "contract": lambda: _agent_contract_text(state.get("agent", ""), deps),
        _REPLACEMENT: lambda: "",
    }
    return [
        (name, texts[name]() if name in texts else render_section(SECTIONS[name], facts, rules, deps))
        for name in names
    ]


def _agent_contract_text(agent: str, deps: Deps) -> str:
    definition = deps.agents.load_instance(agent).definition
    minutes = f"{definition.max_time_minutes:g}"
    return render_prompt(
        "subagent/contract", agent=definition.name, turns=str(definition.max_turns), minutes=minutes
    )


def _record_system_prompt_if_changed(texts: Iterable[tuple[str, str]], previous: str, deps: Deps) -> str:
    """The message, one part per section. A person's replacement may be empty, which providers refuse."""
    named = [(name, replace_surrogates(text)) for name, text in texts if text.strip()]
    if not named:
        return ""
    parts = tuple(
        TextPart(text=text + ("\n\n" if place < len(named) else ""), section=name)
        for place, (name, text) in enumerate(named, 1)
    )
    message = Message(role="system", content=parts)
    # A new record costs a synced file.
    if previous and deps.transcript.read_message(previous) == message:
        return previous
    return deps.transcript.append("", [message])
