"""system_prompt: a file or flag that replaces it, else the sections that apply, and what changed of them."""

from collections.abc import Iterable

from langgraph.runtime import Runtime

from interlock.nodes.system_prompt_sections import MAIN, SECTIONS, TASK, facts_of, text_of
from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.messages import Message, TextPart
from interlock.state.node import node
from interlock.state.system_prompt import SystemPromptState, changes, sections_of
from interlock.state.text import clean

_AGENT, _CONTRACT, _APPENDED, _MODE = "agent", "contract", "appended", "mode"
"""Sections beside the tables: a sub-agent's own prompt, how it ends, what a flag adds, and what the mode is for."""
_REPLACEMENT = "replacement"
_KEPT_OF_TASK = ("role", _REPLACEMENT, "instructions")
"""Of the task loop's prompt, where a file stands in its place."""


@node(
    reads=("agent", "flavour", "mode", "protocol", "has", "previous"),
    writes=("source", "system", "changed", "label"),
    labels=("file", "none"),
    pure=True,
)
async def load_override(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    """A sub-agent is told what its tools need, whatever the user put in place of the main loop's prompt."""
    deps = runtime.context
    found = None if state.get("agent") else deps.context.replacement(state.get("mode", ""))
    if found is None:
        return {"label": "none", "source": "generated"}
    names = _KEPT_OF_TASK if state.get("flavour") == "task" else (_MODE, _REPLACEMENT)
    texts = await _texts((*names, _APPENDED), state, deps)
    texts = [(name, found.text if name == _REPLACEMENT else text) for name, text in texts]
    return {
        "label": "file",
        "source": found.source,
        "system": _record(texts, state.get("previous", ""), deps),
        "changed": [],
    }


@node(reads=("agent", "flavour", "mode", "protocol", "has"), writes=("sections",), pure=True)
async def gather(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    deps = runtime.context
    await deps.mcp.ready()
    agent, facts = bool(state.get("agent")), facts_of(state, deps)
    table = TASK if state.get("flavour") == "task" and not agent else MAIN
    names = [s.name for s in table if facts.stands(s) and (s.shared or not agent)]
    if agent:
        return {"sections": [_AGENT, *names, _CONTRACT]}
    if table is MAIN and facts.mode:
        names[1:1] = [_MODE]
    return {"sections": [*names, _APPENDED]}


@node(
    reads=("agent", "flavour", "mode", "protocol", "has", "sections", "previous"),
    writes=("system",),
    pure=True,
)
async def assemble(state: SystemPromptState, runtime: Runtime[Deps]) -> SystemPromptState:
    deps = runtime.context
    texts = await _texts(state["sections"], state, deps)
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


async def _texts(names: Iterable[str], state: SystemPromptState, deps: Deps) -> list[tuple[str, str]]:
    """Each section's text; empty: there is nothing to say."""
    names, facts = [*names], facts_of(state, deps)
    rules = await deps.context.rules(state.get("mode", "")) if "instructions" in names else ()
    beside = {
        _APPENDED: lambda: deps.context.facts().appended,
        _MODE: lambda: facts.mode.role if facts.mode else "",
        _AGENT: lambda: deps.agents.instance(state.get("agent", "")).definition.system_prompt,
        _CONTRACT: lambda: _contract(state.get("agent", ""), deps),
        _REPLACEMENT: lambda: "",
    }
    return [
        (name, beside[name]() if name in beside else text_of(SECTIONS[name], facts, rules, deps))
        for name in names
    ]


def _contract(agent: str, deps: Deps) -> str:
    definition = deps.agents.instance(agent).definition
    minutes = f"{definition.max_time_minutes:g}"
    return render(
        "subagent/contract", agent=definition.name, turns=str(definition.max_turns), minutes=minutes
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
