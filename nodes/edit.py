"""edit: one replacement in a text: matched, corrected by a model where it must be, or refused."""

import asyncio
from hashlib import sha256
from pathlib import PurePath

from langgraph.runtime import Runtime

from interlock.nodes.edit_subject import (
    Strings,
    Subject,
    as_tried,
    ask,
    key_of,
    problem,
    shown_text,
    strings,
    subject,
)
from interlock.prompts import load
from interlock.state.calls import CallKey, CallView, ToolResult, failure
from interlock.state.deps import Deps, to_its_end
from interlock.state.edit import GRACE_S, EditState, FixAnswer, TargetAnswer
from interlock.state.journal import JournalRow
from interlock.state.messages import Message, ToolCall
from interlock.state.node import node
from interlock.state.toolset import ToolRun
from interlock.tools._diff import unified_diff
from interlock.tools._text import line_at
from interlock.tools.matcher.edit import (
    Placed,
    Problem,
    placed,
    placed_or_repaired,
    raw_after,
    repaired,
    unusable,
)

_CODES = {
    "path_refused": "outside_workspace",
    "is_directory": "not_text",
    "not_a_file": "not_text",
    "not_a_directory": "file_not_found",
}
"""What the file system says → the error codes of an edit."""

_EXACT_ONLY = frozenset({".json", ".jsonc", ".json5", ".ipynb"})
"""Files that a model never mends: a slip in them breaks the whole file (gemini-cli: these)."""

_MOST = 1_000
"""Characters of an explanation that are kept."""


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=("seen", "modified_at", "error", "helper", "helper_role"),
    labels=("create", "match", "refused"),
)
async def read(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """A missing file and an empty old string create it; whatever can't be edited is refused."""
    deps = runtime.context
    fresh: EditState = {"helper": "", "helper_role": ""}
    plain: EditState = {**state, "helper": ""}
    found = await subject(deps, plain)
    if isinstance(found, ToolResult):
        error = found.error or {"type": "not_text", "message": found.content}
        code = _CODES.get(error["type"], error["type"])
        return {**fresh, "label": "refused", "error": problem(code, error["message"])}
    seen = sha256(found.data).hexdigest() if found.file else ""
    fresh = {**fresh, "seen": seen, "modified_at": found.modified_at}
    tried = strings(deps, plain)
    refusal = _refusal(found, tried)
    if refusal:
        return {**fresh, "label": "refused", "error": refusal}
    return {**fresh, "label": "create" if found.file is None else "match", "error": {}}


def _refusal(found: Subject, tried: Strings) -> dict[str, str] | None:
    if found.file is None and tried.old:
        return problem(
            "file_not_found",
            f"No file {found.shown!r}. Find it with glob; to create it leave old_string empty.",
        )
    if wrong := unusable(tried.old, tried.new):
        return problem(wrong.code, wrong.message)
    if found.file is not None and not tried.old:
        text = f"{found.shown!r} exists; an empty old_string only creates new files. Name a text in it."
        return problem("create_existing", text)
    return None


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=("error",),
    labels=("right count", "wrong count", "none"),
)
async def match(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """The first strategy that finds anything decides; too many or too few are an error, never a choice."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "wrong count", "error": problem("external_change", found.content)}
    tried = strings(deps, state)
    at = await asyncio.to_thread(placed, found.shown, found.text, tried.old, tried.new, tried.expected)
    if not isinstance(at, Problem):
        return {"label": "right count"}
    label = "none" if at.code == "no_occurrence" else "wrong count"
    return {"label": label, "error": problem(at.code, at.message)}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=(),
    labels=("found", "not found", "not for a model"),
)
async def repair(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Over-escaped strings and blanks around them; then it is the models' turn, but for structured files."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not for a model"}
    tried = strings(deps, state)
    if await asyncio.to_thread(repaired, found.text, tried.old, tried.new, tried.expected):
        return {"label": "found"}
    structured = PurePath(found.path).suffix.lower() in _EXACT_ONLY
    return {"label": "not for a model" if structured else "not found"}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=("helper", "helper_role"),
    labels=("found", "not found"),
)
async def correct_target(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Its answer must stand in the file exactly, as often as was expected; else it counts for nothing."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not found"}
    tried = strings(deps, state)
    prompt = load("edit/correct_target").parts(
        file=found.shown,
        content=await asyncio.to_thread(shown_text, found.text, tried.old),
        old_string=tried.old,
        new_string=tried.new,
    )
    asked = await ask(runtime, state, "edit_target", TargetAnswer, prompt)
    if asked is None:
        return {"label": "not found"}
    record, answer = asked
    snippet = answer.corrected_target_snippet.replace("\r\n", "\n")
    at = await asyncio.to_thread(
        placed, found.shown, found.text, snippet, tried.new, tried.expected, only_exact=True
    )
    if isinstance(at, Problem) or snippet == tried.new:
        return {"label": "not found"}
    return {"label": "found", "helper": record, "helper_role": "edit_target"}


@node(
    reads=(
        "message",
        "index",
        "attempt",
        "source",
        "helper",
        "helper_role",
        "known_hash",
        "last_edit_at",
        "seen",
        "error",
    ),
    writes=("error",),
    labels=("changed", "same"),
)
async def check_external_change(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """By the hash that the model's text had; without one, by a file time more than 2 s after the last edit."""
    found = await subject(runtime.context, state)
    if not isinstance(found, ToolResult):
        known, last = state.get("known_hash"), state.get("last_edit_at")
        now = sha256(found.data).hexdigest() if found.file else ""
        moved = found.modified_at > last + GRACE_S if last and not known else False
        if now == state["seen"] and (not known or now == known) and not moved:
            return {"label": "same"}
    text = "The file changed on disk since it was last read. Read it again, and edit what is there now."
    return {
        "label": "changed",
        "error": problem("external_change", f"{text} ({state['error']['message']})"),
    }


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role", "error"),
    writes=("helper", "helper_role", "explanation"),
    labels=("no changes needed", "changed strings", "no answer"),
)
async def fix_edit(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Asked once, with the error and the text as it is now."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "no answer"}
    tried = strings(deps, state)
    prompt = load("edit/fix_edit").parts(
        file=found.shown,
        instruction=str(deps.journal.call(key_of(state)).args.get("instruction") or "not given"),
        content=await asyncio.to_thread(shown_text, found.text, tried.old),
        old_string=tried.old,
        new_string=tried.new,
        error=state["error"]["message"],
    )
    asked = await ask(runtime, state, "edit_fixer", FixAnswer, prompt)
    if asked is None:
        return {"label": "no answer"}
    record, answer = asked
    explanation = answer.explanation[:_MOST]
    if answer.noChangesRequired:
        return {"label": "no changes needed", "explanation": explanation}
    return {
        "label": "changed strings",
        "helper": record,
        "helper_role": "edit_fixer",
        "explanation": explanation,
    }


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=("edit_status", "error"),
    labels=("present", "absent"),
)
async def confirm_present(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """The new string must stand in the file; a deletion can't be seen there, so it is never confirmed."""
    deps = runtime.context
    found = await subject(deps, state)
    new = strings(deps, state).new
    if isinstance(found, ToolResult) or not new.strip() or new not in found.text:
        return {"label": "absent"}
    return {"label": "present", "edit_status": "already_applied", "error": {}}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role"),
    writes=(),
    labels=("found", "not found"),
)
async def match_again(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """All strategies once more; when they fail, the first error is what is told."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult):
        return {"label": "not found"}
    tried = strings(deps, state)
    if not tried.old or unusable(tried.old, tried.new):
        return {"label": "not found"}
    at = await asyncio.to_thread(placed, found.shown, found.text, tried.old, tried.new, tried.expected)
    return {"label": "not found" if isinstance(at, Problem) else "found"}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role", "error"),
    writes=("strategy", "occurrences", "result", "error", "edit_status"),
    labels=("write", "keep", "refused"),
)
async def apply(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Nothing is written here: a file's text goes on to `write`, content and proposals are kept as they are."""
    deps = runtime.context
    found = await subject(deps, state)
    if isinstance(found, ToolResult) or found.file is None:
        return _refused(state, "external_change", "The file is gone since it was read. Look where it went.")
    tried = strings(deps, state)
    at = await asyncio.to_thread(
        placed_or_repaired, found.shown, found.text, tried.old, tried.new, tried.expected
    )
    if isinstance(at, Problem):
        return _refused(state, at.code, at.message)
    made = await asyncio.to_thread(_made, found, at)
    if isinstance(made, Problem):
        return _refused(state, made.code, made.message)
    kept = await asyncio.to_thread(_kept, found, tried, at, made) if state.get("source") else None
    return {
        "label": "write" if state.get("source") == "file" else "keep",
        "strategy": at.strategy,
        "occurrences": len(at.spans),
        "result": deps.transcript.append("", [kept]) if kept else "",
        "error": {},
        "edit_status": "" if state.get("source") == "file" else "applied",
    }


def _made(found: Subject, at: Placed) -> bytes | Problem:
    assert found.file is not None
    try:
        after = found.file.encode(raw_after(found.file, at.spans))
    except UnicodeEncodeError as error:
        text = f"{found.shown!r} is {found.file.encoding}, which can't hold {error.object[error.start]!r}."
        return Problem("not_text", text)
    if after == found.data:
        line = line_at(found.text, at.spans[0].start)
        text = f"{found.shown!r} would be the same as before: what the edit would give stands at line {line}."
        return Problem("no_change", text)
    return after


def _kept(found: Subject, tried: Strings, at: Placed, after: bytes) -> Message:
    """The result as a record of a chain of its own; as arguments, for those are kept word for word."""
    assert found.file is not None
    first = at.spans[0]
    exact = at.strategy == "exact" and not at.repaired
    kept = {
        "new_content": after[len(found.file.mark) :].decode(found.file.encoding),
        "diff": unified_diff(found.shown, found.data, after),
        "old_string": tried.old if exact else found.text[first.start : first.end],
        "new_string": tried.new if exact else first.new,
    }
    call = ToolCall.model_validate({"id": "0.0", "name": "replace", "args": kept})
    return Message(role="assistant", tool_calls=(call,))


def _refused(state: EditState, code: str, message: str) -> EditState:
    """With strings of a helper's the first error stays."""
    error = state["error"] if state.get("helper") and state.get("error") else problem(code, message)
    return {"label": "refused", "error": error}


@node(
    reads=("message", "index", "attempt", "source", "helper", "helper_role", "seen"),
    writes=("edit_status", "error"),
)
async def write(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """The intent with its hashes first (`engine.md` 13); a file that isn't as `read` saw it is left alone."""
    deps = runtime.context
    key, call = as_tried(deps, state)
    row = deps.journal.find(key, call)
    result = row.result if row is not None and row.state == "done" else None
    if result is None:
        result = await _done(runtime, key, call, row, state["seen"])
        deps.journal.finish(key, call, result)
    if result.status == "success":
        return {"edit_status": "applied" if state["seen"] else "created", "error": {}}
    error = result.error or {"type": "io_error", "message": result.content}
    return {"edit_status": "failed", "error": problem(error["type"], error["message"])}


async def _done(
    runtime: Runtime[Deps], key: CallKey, call: CallView, row: JournalRow | None, seen: str
) -> ToolResult:
    deps = runtime.context
    planned = row.planned if row is not None and row.state == "intent" else None
    if planned is None:
        computed = await deps.toolset.plan(call)
        if isinstance(computed, ToolResult):
            return computed
        if (computed.before or "") != seen:
            return _changed(call)
        deps.journal.intend(key, call, computed)
        planned = computed
    run = ToolRun(key=key, call=call, emit=runtime.stream_writer, planned=planned)
    return await to_its_end(deps.toolset.run(run))


def _changed(call: CallView) -> ToolResult:
    path = call.args["file_path"]
    return failure(
        "external_change",
        f"{path!r} changed on disk while it was edited. Read it again; nothing was written.",
    )


@node(reads=("error",), writes=("edit_status", "error"))
async def fail(state: EditState) -> EditState:
    """Nothing was written."""
    return {"edit_status": "failed", "error": state["error"]}
