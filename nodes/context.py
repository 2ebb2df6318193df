"""context: build a conversation's opening part by part, with the prompt after it and the editor's state."""

import json
import platform
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from langgraph.runtime import Runtime

from interlock.prompts import render_prompt
from interlock.state.context import (
    CHANGED,
    DESCRIBED,
    UNDONE,
    ContextState,
    IdeState,
    MemoryText,
    Reference,
    is_shown_to_task_loop,
)
from interlock.state.deps import Deps, Transcript, await_with_notices
from interlock.state.errors import ConfigError
from interlock.state.events import ErrorEvent, Progress, SystemPromptChanged
from interlock.state.messages import Message, TextPart, estimate_message_tokens
from interlock.state.node import node
from interlock.state.seen import ChangedFile, SeenFile
from interlock.state.text import estimate_tokens, replace_surrogates
from interlock.state.turn import TurnState

_OPENING = ("environment", "directory", "ide", "memory")
"""Parts of the message before the first prompt, in order."""


@node(
    reads=("head", "off"),
    writes=("head", "begun", "previous", "system", *_OPENING, "tokens", "files"),
    labels=("new", "begun"),
)
async def history(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """A continued conversation keeps its opening; only the system prompt is checked for changes."""
    transcript = runtime.context.transcript
    off = state.get("off", [])
    head = "" if "history" in off else state.get("head", "")
    messages = transcript.read(head) if head else []
    begun = any(m.role == "system" or _is_opening_message(m) for m in messages)
    # A system prompt written by a person or an older version is kept.
    ours = bool(messages) and messages[0].role == "system" and isinstance(messages[0].content, tuple)
    return {
        "label": "begun" if begun and "system-prompt" not in off else "new",
        "head": head,
        "begun": begun,
        "previous": transcript.record_ids(head)[0] if ours else "",
        "system": "",
        "environment": "",
        "directory": "",
        "ide": "",
        "memory": "",
        "tokens": {"history": sum(estimate_tokens(m.text) for m in messages)},
        "files": [],
    }


def _is_opening_message(message: Message) -> bool:
    return message.origin == "context" and any(
        isinstance(part, TextPart) and part.section for part in message.content if not isinstance(part, str)
    )


@node(reads=("off", "begun", "tokens"), writes=("environment", "tokens"), nondeterministic=True)
async def environment(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """The date has no time of day, so that a provider can cache the prefix all day."""
    if _should_skip_context_part("environment", state):
        return {}
    deps = runtime.context
    status = await deps.context.summarize_git_state()
    text = render_prompt(
        "context/environment",
        date=f"{datetime.fromtimestamp(deps.clock.now()):%Y-%m-%d, %A}",
        system=f"{platform.system()} {platform.release()} ({platform.machine()})",
        directories="\n".join(f"- {root}" for root in deps.context.roots),
    )
    texts = [text, render_prompt("context/git", status=status)] if status else [text]
    return _store_context_part("environment", "\n\n".join(texts), state, deps)


@node(reads=("off", "begun", "tokens"), writes=("directory", "tokens"), nondeterministic=True)
async def directory(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    if _should_skip_context_part("directory", state):
        return {}
    deps = runtime.context
    text = render_prompt("context/directory", tree=await deps.context.render_directory_trees())
    return _store_context_part("directory", text, state, deps)


@node(
    reads=("off", "begun", "alone", "ide_given", "tokens"),
    writes=("ide", "ide_told", "tokens"),
    labels=("on", "prompt off"),
    nondeterministic=True,
)
async def ide(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """The editor's full state; later changes are reported by each turn (`ide_context`)."""
    deps = runtime.context
    on = "prompt off" if "system-prompt" in state.get("off", []) else "on"
    if _should_skip_context_part("ide", state) or not has_editor_context(state, deps):
        return {"label": on}
    try:
        now = read_current_ide_state(state, deps)
    except ConfigError as error:
        if state.get("alone"):  # else the turn reports it
            runtime.stream_writer(ErrorEvent(severity="warning", message=str(error)))
        return {"label": on}
    if not now["open"]:
        return {"label": on}
    part = _store_context_part("ide", render_ide_report(None, now), state, deps)
    return {"label": on, **part, "ide_told": record_ide_state(now, deps.transcript)}


@node(
    reads=("off", "begun", "flavour", "tokens", "files"),
    writes=("memory", "tokens", "files"),
    nondeterministic=True,
)
async def memory(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """The workspace's AGENTS.md and Roo Code's rules are left out for the task loop: its system prompt has them."""
    if _should_skip_context_part("memory", state):
        return {}
    deps = runtime.context
    found = await deps.context.load_memory_files()
    if state.get("flavour") == "task":
        found = [file for file in found if not is_shown_to_task_loop(file.shown)]
    if not found:
        return {}
    files = [file for file in found if file.level != DESCRIBED]
    described = [f"- {file.shown}: {file.text}" for file in found if file.level == DESCRIBED]
    for file in files:
        if file.problem:
            runtime.stream_writer(ErrorEvent(severity="warning", message=f"{file.shown}: {file.problem}"))
    texts = (
        [render_prompt("context/memory", files="\n\n".join(map(format_memory_file, files)))] if files else []
    )
    texts += [render_prompt("context/described_rules", rules="\n".join(described))] if described else []
    text = "\n\n".join(texts)
    read = [{"path": f.shown, "status": "read", "reason": f"memory file ({f.level})"} for f in files]
    return {**_store_context_part("memory", text, state, deps), "files": [*state["files"], *read]}


@node(reads=("off", "alone", "tokens"), writes=("tools", "tokens"))
async def tool_declarations(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """Only counts their cost: a turn requests the declarations itself."""
    if "tool_declarations" in state.get("off", []) or not state.get("alone"):
        return {"tools": ""}
    deps = runtime.context
    text = json.dumps([t.model_dump() for t in deps.toolset.declare_tools()], ensure_ascii=False)
    record = deps.transcript.append("", [Message(role="system", content=text)])
    return {"tools": record, "tokens": {**state["tokens"], "tool_declarations": estimate_tokens(text)}}


@node(
    reads=("head", "prompt", "begun", "previous", "system", "changed", "tokens", "files", "off", *_OPENING),
    writes=("head", "prompt", "tokens", "files"),
    nondeterministic=True,
)
async def at_files(state: ContextState, runtime: Runtime[Deps]) -> ContextState:
    """Assemble the opening, the history, the prompt, and the files it refers to."""
    transcript = runtime.context.transcript
    messages = transcript.read(state["prompt"]) if state.get("prompt") else []
    prompt, attached = messages[-1:], messages[:-1]
    named = await _resolve_file_references(prompt, state, runtime)
    tokens = {
        **state["tokens"],
        "prompt": sum(estimate_tokens(m.text) for m in prompt),
        "at_files": sum(
            map(estimate_message_tokens, shown := [*attached, *_referenced_file_messages(named)])
        ),
    }
    prompt += shown
    if state.get("system"):
        tokens["system-prompt"] = estimate_tokens(transcript.read_message(state["system"]).text)
    head = state["head"]
    if not state["begun"]:
        earlier = transcript.read(head) if head else []
        # The system prompt's record starts the chain.
        head = transcript.append(
            state.get("system", ""), [*_build_opening_messages(state, runtime.context), *earlier, *prompt]
        )
    else:
        head = transcript.append(_replace_system_prompt_if_changed(state, runtime), prompt)
    runtime.context.journal.seen.record(head, [file for one in named for file in one.seen])
    if messages and messages[-1].origin in (None, "person"):  # the task loop comes here each turn
        head = await append_changed_files(head, runtime.context)
    files = [{"path": r.path, "status": r.status, "reason": r.reason} for r in named]
    return {"head": head, "prompt": "", "tokens": tokens, "files": [*state["files"], *files]}


async def _resolve_file_references(
    prompt: list[Message], state: ContextState, runtime: Runtime[Deps]
) -> Sequence[Reference]:
    """Files a person refers to; an agent's task and a hook's text refer to nothing."""
    if "at_files" in state.get("off", []) or not prompt or prompt[0].origin not in (None, "person"):
        return []
    if not isinstance(prompt[0].content, str):  # a command's text, which already includes its files
        return []
    progress = Progress(what="looking for the files named with @", done=0, total=0, unit="files")
    looking = runtime.context.context.resolve_prompt_references(prompt[0].text)
    found = await await_with_notices(looking, lambda: runtime.stream_writer(progress))
    for reference in found:
        if not reference.parts:
            message = f"@{reference.path}: {reference.reason}"
            runtime.stream_writer(ErrorEvent(severity="warning", message=message))
    return found


def _referenced_file_messages(references: Sequence[Reference]) -> list[Message]:
    """Messages with the files shown, and why others aren't."""
    if not references:
        return []
    lines = [f"[@{r.path} isn't shown: {r.reason}]" for r in references if not r.parts]
    parts = [part for reference in references for part in reference.parts]
    heading = render_prompt("context/files", problems="\n".join(lines))
    content = (TextPart(text=heading + "\n", section="files"), *parts)
    return [Message(role="user", origin="context", content=content)]


def _replace_system_prompt_if_changed(state: ContextState, runtime: Runtime[Deps]) -> str:
    """The head; if the system prompt changed, of a new chain that continues the old."""
    transcript, head = runtime.context.transcript, state["head"]
    if not state.get("previous") or not state.get("system"):
        return head
    system = transcript.read_message(state["system"])
    if system == transcript.read_message(state["previous"]):
        return head
    runtime.stream_writer(SystemPromptChanged(sections=state.get("changed") or ["replacement"]))
    return transcript.append("", [system, *transcript.read(head)[1:]], continues=head)


def _build_opening_messages(state: ContextState, deps: Deps) -> list[Message]:
    found = [(name, deps.transcript.read_message(state[name]).text) for name in _OPENING if state.get(name)]
    parts = tuple(
        TextPart(text=text + ("\n\n" if place < len(found) else ""), section=name)
        for place, (name, text) in enumerate(found, 1)
    )
    return [Message(role="user", origin="context", content=parts)] if parts else []


def _should_skip_context_part(part: str, state: ContextState) -> bool:
    return state["begun"] or part in state.get("off", [])


def _store_context_part(name: str, text: str, state: ContextState, deps: Deps) -> ContextState:
    text = replace_surrogates(text)
    record = deps.transcript.append("", [Message(role="user", origin="context", content=text)])
    update: ContextState = {"tokens": {**state["tokens"], name: estimate_tokens(text)}}
    update[name] = record  # pyright: ignore[reportGeneralTypeIssues]
    return update


def format_memory_file(file: MemoryText) -> str:
    return f"--- {file.shown} ({file.level}) ---\n{file.text}\n--- end of {file.shown} ---"


_SECTION = "ide"


@node(reads=("head", "ide_given", "ide_told"), writes=("head", "ide_told"), nondeterministic=True)
async def ide_context(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """After a compression, report the full state again: earlier reports are gone with the messages."""
    transcript = runtime.context.transcript
    try:
        now = read_current_ide_state(state, runtime.context)
    except ConfigError as error:
        runtime.stream_writer(ErrorEvent(severity="warning", message=str(error)))
        return {}
    known = state.get("ide_told", "") if _has_ide_report(transcript.read(state["head"])) else ""
    before: IdeState | None = json.loads(transcript.read_message(known).text) if known else None
    if now == before or (before is None and not now["open"]):
        return {}
    text = render_ide_report(before, now)
    message = Message(role="user", origin="context", content=(TextPart(text=text, section=_SECTION),))
    return {
        "head": transcript.append(state["head"], [message]),
        "ide_told": record_ide_state(now, transcript),
    }


def append_unreported_undos(head: str, deps: Deps) -> str:
    """Return the head after telling the model what a person took back since its last turn: its own changes aren't there
    any more.
    """
    if deps.info.agent or not (undone := deps.journal.list_unreported_undos(head)):
        return head
    content = (
        TextPart(text=render_prompt("run/undone") + "\n"),
        TextPart(text=replace_surrogates("\n".join(undone)), section=UNDONE),
    )
    told = deps.transcript.append(head, [Message(role="user", origin="context", content=content)])
    deps.journal.mark_undos_reported(head, told)
    return told


async def append_changed_files(head: str, deps: Deps) -> str:
    """Return the head after telling the model which of the files that it knows have changed, with each short diff."""
    text, seen = deps.journal.seen.find_recorded_note(head), list[SeenFile]()
    if text is None:
        known = deps.journal.seen.list_newest()
        changed = await deps.toolset.find_changed_files(known, deps.journal.seen.before("")) if known else ()
        text, seen = render_changed_files(changed)
    if not text:
        return head
    parts = (
        TextPart(text=render_prompt("context/changed_files") + "\n"),
        TextPart(text=replace_surrogates(text), section=CHANGED),
    )
    told = deps.transcript.append(head, [Message(role="user", origin="context", content=parts)])
    deps.journal.seen.record(told, seen)
    return told


_MOST_CHANGES, _MOST_DIFFS = 50, 12_000
"""Files named, and characters of all their diffs."""


def render_changed_files(changed: Sequence[ChangedFile]) -> tuple[str, list[SeenFile]]:
    """Return a line for each file, with its diff as long as there is room, and what a model that reads it has seen."""
    lines: list[str] = []
    seen: list[SeenFile] = []
    room = _MOST_DIFFS
    for change in changed[:_MOST_CHANGES]:
        now = change.now
        if not now.digest:
            lines.append(f"{now.path}: removed")
        elif change.diff and len(change.diff) <= room:
            room -= len(change.diff)
            lines.append(f"{now.path}:\n{change.diff.rstrip()}")
        else:
            lines.append(f"{now.path}: changed")
            now = now.model_copy(update={"how": "told"})
        seen.append(now)
    if len(changed) > _MOST_CHANGES:
        lines.append(f"and {len(changed) - _MOST_CHANGES} more")
    return "\n".join(lines), seen


def has_editor_context(state: TurnState | ContextState, deps: Deps) -> bool:
    """Never for a sub-agent."""
    return bool(deps.context.has_ide_source or state.get("ide_given")) and not deps.info.agent


def read_current_ide_state(state: TurnState | ContextState, deps: Deps) -> IdeState:
    """The editor's current state. Raises `ConfigError`."""
    record = state.get("ide_given", "")
    return deps.context.read_ide_state(deps.transcript.read_message(record).text if record else "")


def record_ide_state(ide_state: IdeState, transcript: Transcript) -> str:
    """Record of a state, for later comparison."""
    return transcript.append("", [Message(role="user", origin="context", content=json.dumps(ide_state))])


def _has_ide_report(history: Sequence[Message]) -> bool:
    parts = (p for m in history if m.origin == "context" for p in m.content if not isinstance(p, str))
    return any(isinstance(p, TextPart) and p.section == _SECTION for p in parts)


def render_ide_report(before: IdeState | None, after: IdeState) -> str:
    if before is None:
        return render_prompt("context/ide", state=_indented_json({**after}))
    changed: dict[str, Any] = {
        "opened": [path for path in after["open"] if path not in before["open"]],
        "closed": [path for path in before["open"] if path not in after["open"]],
    }
    changed = {name: paths for name, paths in changed.items() if paths}
    if after["active"] != before["active"]:
        changed["active"] = after["active"]
    return render_prompt("context/ide_changed", changes=_indented_json(changed))


def _indented_json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
