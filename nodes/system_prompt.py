"""system_prompt: a file or flag that replaces it, else the sections that apply, and what changed of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from langgraph.runtime import Runtime

from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.messages import Message, TextPart
from interlock.state.node import node
from interlock.state.system_prompt import SystemPromptState, changes, sections_of
from interlock.state.text import clean

_WRITING = frozenset({"write_file", "replace"})
_COMMANDS = frozenset({"run_shell_command"})
_AGENT, _CONTRACT, _APPENDED, _MODE = "agent", "contract", "appended", "mode"
"""Sections beside the table: a sub-agent's own prompt, how it ends, what a flag adds, and what the mode is for."""
_SERVERS = "servers"
"""What MCP servers say of their tools."""


@dataclass(frozen=True)
class Section:
    """One file of the main loop's prompt, and when it stands."""

    prompt: str
    tools: frozenset[str] = frozenset()
    """Included only if one of these exists; empty: always."""
    only: Literal["git", "unattended", "open", "sandboxed", "offline"] | None = None
    """Included only in a git repository; if nobody sits before the terminal; by where commands run: on the machine
    itself, in a sandbox, in one without network."""
    shared: bool = True
    """Sub-agents get it, too, after their own prompt."""

    @property
    def name(self) -> str:
        return self.prompt.rpartition("/")[2]


SECTIONS = (
    Section("main/preamble", shared=False),
    Section("main/mandates"),
    Section("main/changes", tools=_WRITING | _COMMANDS),
    Section("main/workflows", shared=False),
    Section("main/planning", tools=frozenset({"enter_plan_mode"})),
    Section("main/delegation", tools=frozenset({"invoke_agent"})),
    Section("main/todos", tools=frozenset({"write_todos"})),
    Section("main/answers", shared=False),
    Section("main/calls"),
    Section("main/edits", tools=_WRITING),
    Section("main/commands", tools=_COMMANDS),
    Section("main/results"),
    Section("main/data"),
    Section("main/questions", tools=frozenset({"ask_user"})),
    Section("main/unattended", only="unattended", shared=False),
    Section("main/sandbox_none", tools=_COMMANDS, only="open"),
    Section("main/sandbox_bubblewrap", tools=_COMMANDS, only="sandboxed"),
    Section("main/sandbox_offline", tools=_COMMANDS, only="offline"),
    Section("main/git", tools=_COMMANDS, only="git"),
)
_BY_NAME = {section.name: section for section in SECTIONS}


@node(
    reads=("agent", "mode", "previous"),
    writes=("source", "system", "changed", "label"),
    labels=("file", "none"),
    pure=True,
)
async def load_override(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    """A sub-agent is told what its tools need, whatever the user put in place of the main loop's prompt."""
    deps = runtime.context
    mode = state.get("mode", "")
    found = None if state.get("agent") else deps.context.replacement(mode)
    if found is None:
        return {"label": "none", "source": "generated"}
    role = [(_MODE, found_mode.role)] if (found_mode := deps.modes.get(mode)) else []
    parts = [*role, ("replacement", found.text), (_APPENDED, deps.context.facts().appended)]
    return {
        "label": "file",
        "source": found.source,
        "system": _record(parts, state.get("previous", ""), deps),
        "changed": [],
    }


@node(reads=("agent", "mode"), writes=("sections",), pure=True)
async def gather(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    deps = runtime.context
    await deps.mcp.ready()
    agent = bool(state.get("agent"))
    facts, shell = deps.context.facts(), deps.settings.tools
    sandboxed = bool(shell.sandbox)
    holds = {
        None: True,
        "git": facts.in_git,
        "unattended": not deps.info.interactive,
        "open": not sandboxed,
        "sandboxed": sandboxed,
        "offline": sandboxed and not shell.sandbox_network,
    }
    mode = deps.modes.get(state.get("mode", ""))
    tools = {t.name for t in deps.toolset.declarations() if mode is None or mode.allows(t.name)}
    names = [
        s.name
        for s in SECTIONS
        if holds[s.only] and (not s.tools or s.tools & tools) and (s.shared or not agent)
    ]
    if _instructions(deps):
        names.append(_SERVERS)
    if agent:
        return {"sections": [_AGENT, *names, _CONTRACT]}
    names[1:1] = [_MODE] if mode else []
    return {"sections": [*names, *([_APPENDED] if facts.appended else [])]}


@node(reads=("agent", "mode", "sections", "previous"), writes=("system",), pure=True)
async def assemble(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    deps = runtime.context
    texts = _texts(state, deps)
    return {"system": _record(texts, state.get("previous", ""), deps)}


@node(reads=("system", "previous", "before"), writes=("changed",), pure=True)
async def compare(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    """With what it was before; without one nothing has changed."""
    transcript = runtime.context.transcript
    before = state.get("before") or {}
    if previous := state.get("previous"):
        before = {s.name: s.fingerprint for s in sections_of(transcript.message(previous))}
    if not before:
        return {"changed": []}
    now = {s.name: s.fingerprint for s in sections_of(transcript.message(state["system"]))}
    return {"changed": changes(before, now)}


def _texts(state: SystemPromptState, deps: Deps) -> Iterator[tuple[str, str]]:
    for name in state["sections"]:
        if section := _BY_NAME.get(name):
            yield name, render(section.prompt)
        elif name == _SERVERS:
            yield name, render("main/servers", servers=_instructions(deps))
        elif name == _APPENDED:
            yield name, deps.context.facts().appended
        elif name == _MODE:
            mode = deps.modes.get(state.get("mode", ""))
            yield name, mode.role if mode else ""
        else:
            definition = deps.agents.instance(state.get("agent", "")).definition
            yield (
                name,
                definition.system_prompt
                if name == _AGENT
                else render(
                    "subagent/contract",
                    agent=definition.name,
                    turns=str(definition.max_turns),
                    minutes=f"{definition.max_time_minutes:g}",
                ),
            )


def _instructions(deps: Deps) -> str:
    """Of servers that are connected, and of which a tool is declared here."""
    tools = [t.name for t in deps.toolset.declarations()]
    said = [(v.name, v.instructions) for v in deps.mcp.views() if v.status == "connected" and v.instructions]
    return "\n\n".join(
        f"--- {name} ---\n{text}\n--- end of {name} ---"
        for name, text in said
        if any(tool.startswith(f"mcp_{name}_") for tool in tools)
    )


def _record(texts: Iterable[tuple[str, str]], previous: str, deps: Deps) -> str:
    """The message, one part a section; a person may have replaced the text by nothing, which providers refuse."""
    named = [(name, clean(text)) for name, text in texts if text.strip()]
    if not named:
        return ""
    parts = tuple(
        TextPart(text=text + ("\n\n" if place < len(named) else ""), section=name)
        for place, (name, text) in enumerate(named, 1)
    )
    message = Message(role="system", content=parts)
    # A new record costs a file that is synced to the disk.
    if previous and deps.transcript.message(previous) == message:
        return previous
    return deps.transcript.append("", [message])
