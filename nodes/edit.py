"""edit: one replacement in a text: match, correct with a model if needed, get approval, apply or refuse."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import PurePath

from langgraph.runtime import Runtime
from pydantic import BaseModel

from interlock.nodes.guessed_encodings import ask_about_guessed_encoding, encoding_note
from interlock.nodes.helper_model import HelperAnswer, T, ask_json, build_question_messages, parse_json_as
from interlock.nodes.requests import rejection_result, require_request_and_answer, write_and_emit_request
from interlock.nodes.tools_results import (
    CALL,
    load_earlier_calls,
    policy_decision_record,
    record_call_decision,
    record_person_decision,
)
from interlock.prompts import load_prompt
from interlock.state.calls import (
    ApprovalRequest,
    CallKey,
    CallView,
    Choice,
    ToolResult,
    Verdict,
    call_key_from_state,
    error_result,
)
from interlock.state.deps import Deps, await_despite_cancel, run_in_thread
from interlock.state.edit import FIXER_TIMEOUT_S, GRACE_S, EditState, FixAnswer, MeantEdit, TargetAnswer
from interlock.state.file_names import quote_name
from interlock.state.journal import JournalRow
from interlock.state.messages import Message, ToolCall
from interlock.state.node import Part, node, require_task_id
from interlock.state.text import replace_surrogates
from interlock.state.tooling import ToolRun
from interlock.state.workspace import NO_CONVENTIONS, FileConventions
from interlock.tools.file_content import TextFile, TextNotWritable, decode_text_file, line_number_at
from interlock.tools.matcher.edit import (
    CORRECTIONS,
    EditProblem,
    PlacedEdit,
    apply_spans,
    edit_strings_problem,
    excerpt_around_similar_lines,
    file_already_exists_problem,
    locate_corrected_edit,
    locate_edit,
    locate_edit_with_corrections,
)
from interlock.tools.matcher.find import STRATEGIES
from interlock.tools.matcher.merge import first_line_indent, reindent_for_occurrence
from interlock.tools.matcher.windows import WorkBudget
from interlock.tools.text_diff import unified_diff

_ERROR_CHARS = 2_000
"""Maximum characters of an error kept in a checkpoint."""


@dataclass(frozen=True)
class EditStrings:
    """The strings being tried: what to replace, and with what."""

    old: str
    new: str
    expected_count: int | None


@dataclass(frozen=True)
class Edit:
    """An edit being tried on the current content. `file` is null if there is none."""

    shown_path: str
    path: str
    file: TextFile | None
    data: bytes
    modified_at: float
    strings: EditStrings
    conventions: FileConventions = NO_CONVENTIONS

    @property
    def text(self) -> str:
        return self.file.text if self.file else ""

    @property
    def file_hash(self) -> str:
        """sha256 of the bytes; empty: no file."""
        return sha256(self.data).hexdigest() if self.file else ""

    async def locate_in_file(
        self, locate_function: Callable[..., PlacedEdit | EditProblem] = locate_edit
    ) -> PlacedEdit | EditProblem:
        """Place the edit; in a thread, as large texts take a while."""
        texts = (self.shown_path, self.text, self.strings.old, self.strings.new, self.strings.expected_count)
        return await run_in_thread(
            lambda stop: locate_function(*texts, work=WorkBudget(check=stop.raise_if_stopped))
        )

    async def locate_with_corrected_strings(self) -> PlacedEdit | None:
        """Place the edit with corrected strings."""
        texts = (self.text, self.strings.old, self.strings.new, self.strings.expected_count)
        return await run_in_thread(
            lambda stop: locate_corrected_edit(*texts, work=WorkBudget(check=stop.raise_if_stopped))
        )


EDIT = (*CALL, "source", "helper", "helper_role")
"""Keys that identify an edit as it is tried."""
_MOST_TEXT = 120_000
"""Characters of a file shown to a helper: about 30,000 tokens."""


DIFFERENCES = ("gone", "its bytes since this edit read it", "its hash since the model read it", "its time")
"""What shows that somebody else changed the file."""


def describe_external_change(edit: Edit | ToolResult, state: EditState) -> str:
    """What shows that somebody else changed the file: one of `DIFFERENCES`; empty: nothing does."""
    if isinstance(edit, ToolResult):
        return DIFFERENCES[0]
    known, last = state.get("known_hash"), state.get("last_edit_at")
    others = known and edit.file_hash != known
    late = last and not known and edit.modified_at > last + GRACE_S
    shown = (edit.file_hash != state["seen"], others, late)
    return next((what for what, yes in zip(DIFFERENCES[1:], shown, strict=True) if yes), "")


def record_step_reason(runtime: Runtime[Deps], reason: str) -> None:
    """Record with the step what matched, or what differs."""
    runtime.context.steps.record_reason(require_task_id(runtime, "An edit"), reason)


async def load_edit(deps: Deps, state: EditState) -> Edit | ToolResult:
    """The edit on the current file, or as the earlier calls of the batch will leave it, or on content passed in."""
    call, tried = deps.journal.read_call(call_key_from_state(state)), strings_to_try(deps, state)
    if state.get("source") == "content":
        text = str(call.args.get("content"))
        return Edit("content", "", TextFile(text), text.encode(errors="surrogatepass"), 0, tried)
    earlier = [] if state.get("source") else load_earlier_calls(deps, state["message"], state["index"])
    found = await deps.toolset.read_file_to_edit(call, earlier)
    if isinstance(found, ToolResult):
        return found
    file = None if found.data is None else decode_text_file(found.data, found.conventions, found.shown)
    return Edit(found.shown, found.path, file, found.data or b"", found.modified_at, tried, found.conventions)


def strings_to_try(deps: Deps, state: EditState) -> EditStrings:
    """The call's own strings, or the helper's."""
    args = deps.journal.read_call(call_key_from_state(state)).args
    expected = args.get("expected_replacements", 1)
    old, new = str(args["old_string"]), str(args["new_string"])
    if state.get("helper"):
        text = deps.transcript.read_message(state["helper"]).text
        if state["helper_role"] == "edit_target":
            if meant := parse_json_as(text, MeantEdit):
                old = meant.corrected_target_snippet
                new = new if meant.new_string is None else meant.new_string
        elif fixed := parse_json_as(text, FixAnswer):
            old, new = fixed.search, fixed.replace
    count = expected if isinstance(expected, int) else None
    return EditStrings(old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), count)


def amend_and_record_tried_call(deps: Deps, state: EditState) -> tuple[CallKey, CallView]:
    """The edit as a call; with a helper's strings, a later attempt at it."""
    key = call_key_from_state(state)
    call = deps.journal.read_call(key)
    if not state.get("helper"):
        return key, call
    tried = strings_to_try(deps, state)
    args = {**call.args, "old_string": tried.old, "new_string": tried.new}
    amended = CallView(id=call.id, name=call.name, args=args)
    deps.journal.record_changed_arguments(key.next_attempt, amended)
    return key.next_attempt, amended


def edit_error(code: str, message: str) -> dict[str, str]:
    """An error in the form kept in state."""
    return {
        "code": code,
        "message": message if len(message) <= _ERROR_CHARS else message[: _ERROR_CHARS - 1] + "…",
    }


async def ask_edit_helper(
    runtime: Runtime[Deps], state: EditState, role: str, answer_type: type[T], prompt: tuple[str, str]
) -> HelperAnswer[T] | None:
    """A helper's answer to `prompt` (system, user); one attempt. A small model can't mend its own edit: None."""
    if runtime.context.info.brief:
        return None
    return await ask_json(
        runtime,
        answer_type,
        role,
        build_question_messages(*prompt),
        state["message"],
        FIXER_TIMEOUT_S,
        attempts=1,
    )


def shorten_around_old_string(text: str, old_string: str) -> str:
    """The whole text or, if long, the part around the lines most similar to `old_string`."""
    return text if len(text) <= _MOST_TEXT else excerpt_around_similar_lines(text, old_string, _MOST_TEXT)


_CODES = {
    "path_refused": "outside_workspace",
    "is_directory": "not_text",
    "not_a_file": "not_text",
    "not_a_directory": "file_not_found",
}
"""File system problem → error code of an edit."""
_EXACT_ONLY = frozenset({".json", ".jsonc", ".json5", ".ipynb"})
"""Files a model never corrects: a slip breaks the whole file (gemini-cli: these)."""
_EXPLANATION_CHARS = 1_000
"""Maximum characters kept of an explanation."""
_CHOICES: tuple[Choice, ...] = ("proceed_once", "reject", "cancel")
"""No always-choices: this approves a single edit."""


@node(
    reads=EDIT,
    writes=("seen", "modified_at", "error", "helper", "helper_role"),
    labels=("create", "match", "refused"),
    nondeterministic=True,
)
async def read(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Read the file. A missing file and an empty old string create it; uneditable files are refused."""
    fresh: EditState = {"helper": "", "helper_role": ""}
    edit = await load_edit(runtime.context, {**state, "helper": ""})
    if isinstance(edit, ToolResult):
        error = edit.error or {"type": "not_text", "message": edit.content}
        code = _CODES.get(error["type"], error["type"])
        return {**fresh, "label": "refused", "error": edit_error(code, error["message"])}
    fresh = {**fresh, "seen": edit.file_hash, "modified_at": edit.modified_at}
    if refusal := _find_edit_problem(edit):
        return {**fresh, "label": "refused", "error": edit_error(*refusal)}
    return {**fresh, "label": "create" if edit.file is None else "match", "error": {}}


def _find_edit_problem(edit: Edit) -> EditProblem | None:
    old, new = edit.strings.old, edit.strings.new
    if edit.file is None and old:
        text = (
            f"No file {quote_name(edit.shown_path)}. Find it with glob; to create it leave old_string empty."
        )
        return EditProblem("file_not_found", text)
    if wrong := edit_strings_problem(old, new):
        return wrong
    if edit.file is not None and not old:
        return file_already_exists_problem(edit.shown_path, edit.file)
    return None


_MATCHES = (Part("the first that finds any", STRATEGIES),)


@node(
    reads=EDIT,
    writes=("error",),
    labels=("right count", "wrong count", "none"),
    nondeterministic=True,
    parts=_MATCHES,
)
async def match(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """The first strategy that finds anything decides; too many or too few matches are an error, never a choice."""
    edit = await load_edit(runtime.context, state)
    if isinstance(edit, ToolResult):
        return {"label": "wrong count", "error": edit_error("external_change", edit.content)}
    at = await edit.locate_in_file()
    if not isinstance(at, EditProblem):
        record_step_reason(runtime, at.strategy_label)
        return {"label": "right count"}
    return {"label": "none" if at.code == "no_occurrence" else "wrong count", "error": edit_error(*at)}


@node(
    reads=EDIT,
    writes=(),
    labels=("found", "not found", "not for a model"),
    nondeterministic=True,
    parts=(Part("the first that helps; the new string too", tuple(c.name for c in CORRECTIONS)),),
)
async def repair(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Try over-escaped strings and surrounding whitespace; next come models, except for structured files."""
    edit = await load_edit(runtime.context, state)
    if isinstance(edit, ToolResult):
        return {"label": "not for a model"}
    if at := await edit.locate_with_corrected_strings():
        record_step_reason(runtime, at.strategy_label)
        return {"label": "found"}
    structured = PurePath(edit.path).suffix.lower() in _EXACT_ONLY
    return {"label": "not for a model" if structured else "not found"}


@node(reads=EDIT, writes=("helper", "helper_role"), labels=("found", "not found"), nondeterministic=True)
async def correct_target(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Its string must occur in the file exactly, as often as expected; else the answer is ignored."""
    edit = await load_edit(runtime.context, state)
    if isinstance(edit, ToolResult):
        return {"label": "not found"}
    tried = edit.strings
    prompt = load_prompt("edit/correct_target").render_system_and_user(
        file=edit.shown_path,
        content=await asyncio.to_thread(shorten_around_old_string, edit.text, tried.old),
        old_string=tried.old,
        new_string=tried.new,
    )
    asked = await ask_edit_helper(runtime, state, "edit_target", TargetAnswer, prompt)
    if asked is None:
        return {"label": "not found"}
    snippet = asked.answer.corrected_target_snippet.replace("\r\n", "\n")
    at = await asyncio.to_thread(
        locate_edit,
        edit.shown_path,
        edit.text,
        snippet,
        tried.new,
        tried.expected_count,
        work=WorkBudget(),
        only_exact=True,
    )
    if isinstance(at, EditProblem) or snippet == tried.new:
        return {"label": "not found"}
    new = reindent_for_occurrence(edit.text, snippet, first_line_indent(tried.old), tried.new)
    return {
        "label": "found",
        **_record_helper_strings(
            runtime, "edit_target", MeantEdit(corrected_target_snippet=snippet, new_string=new)
        ),
    }


def _record_helper_strings(runtime: Runtime[Deps], role: str, answer: BaseModel) -> EditState:
    """A helper's strings as they are tried from here on."""
    record = Message(role="assistant", content=answer.model_dump_json())
    return {"helper": runtime.context.transcript.append("", [record]), "helper_role": role}


@node(
    reads=(*EDIT, "known_hash", "last_edit_at", "seen", "error"),
    writes=("error",),
    labels=("changed", "same"),
    nondeterministic=True,
    parts=(Part("any that changed", DIFFERENCES),),
)
async def check_external_change(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Compare with the hash of the text the model read; without one, check for an mtime over 2 s past the last edit."""
    differs = describe_external_change(await load_edit(runtime.context, state), state)
    if not differs:
        return {"label": "same"}
    record_step_reason(runtime, differs)
    text = "The file changed on disk since it was last read. Read it again, and edit what is there now."
    error = edit_error("external_change", f"{text} ({state['error']['message']})")
    return {"label": "changed", "error": error}


@node(
    reads=(*EDIT, "error"),
    writes=("helper", "helper_role", "explanation"),
    labels=("no changes needed", "changed strings", "no answer"),
    nondeterministic=True,
)
async def fix_edit(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Asked once, with the error and the current text."""
    deps = runtime.context
    edit = await load_edit(deps, state)
    if isinstance(edit, ToolResult):
        return {"label": "no answer"}
    prompt = load_prompt("edit/fix_edit").render_system_and_user(
        file=edit.shown_path,
        instruction=str(
            deps.journal.read_call(call_key_from_state(state)).args.get("instruction") or "not given"
        ),
        content=await asyncio.to_thread(shorten_around_old_string, edit.text, edit.strings.old),
        old_string=edit.strings.old,
        new_string=edit.strings.new,
        error=state["error"]["message"],
    )
    asked = await ask_edit_helper(runtime, state, "edit_fixer", FixAnswer, prompt)
    if asked is None:
        return {"label": "no answer"}
    explained: EditState = {"explanation": asked.answer.explanation[:_EXPLANATION_CHARS]}
    if asked.answer.noChangesRequired:
        return {**explained, "label": "no changes needed"}
    answer, old, new = asked.answer, edit.strings.old, edit.strings.new
    if first_line_indent(old) == first_line_indent(
        new
    ):  # the edit leaves the indentation alone, and so does its correction
        search, replace = (s.replace("\r\n", "\n") for s in (answer.search, answer.replace))
        placed_new = reindent_for_occurrence(edit.text, search, first_line_indent(replace), replace)
        answer = answer.model_copy(update={"replace": placed_new})
    return {**explained, "label": "changed strings", **_record_helper_strings(runtime, "edit_fixer", answer)}


@node(reads=EDIT, writes=("edit_status", "error"), labels=("present", "absent"), nondeterministic=True)
async def confirm_present(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Whether the new string is in the file already; deletions leave no trace, so they are never confirmed."""
    edit = await load_edit(runtime.context, state)
    if isinstance(edit, ToolResult) or not edit.strings.new.strip() or edit.strings.new not in edit.text:
        return {"label": "absent"}
    return {"label": "present", "edit_status": "already_applied", "error": {}}


@node(reads=EDIT, writes=(), labels=("found", "not found"), nondeterministic=True, parts=_MATCHES)
async def match_again(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Retry all strategies; if they fail, the first error is reported."""
    edit = await load_edit(runtime.context, state)
    if (
        isinstance(edit, ToolResult)
        or not edit.strings.old
        or edit_strings_problem(edit.strings.old, edit.strings.new)
    ):
        return {"label": "not found"}
    at = await edit.locate_in_file()
    if isinstance(at, EditProblem):
        return {"label": "not found"}
    record_step_reason(runtime, at.strategy_label)
    return {"label": "found"}


@node(
    reads=(*EDIT, "error"),
    writes=("strategy", "occurrences", "result", "error", "edit_status"),
    labels=("write", "keep", "refused"),
    nondeterministic=True,
)
async def apply(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Nothing is written here: a file's text goes on to `write`, content and proposals are only recorded."""
    edit = await load_edit(runtime.context, state)
    if isinstance(edit, ToolResult) or edit.file is None:
        return _refused_edit_update(
            state, "external_change", "The file was removed after it was read. Find it."
        )
    at = await edit.locate_in_file(locate_edit_with_corrections)
    if isinstance(at, EditProblem):
        return _refused_edit_update(state, *at)
    made = await asyncio.to_thread(_apply_edit_to_bytes, edit, edit.file, at)
    if isinstance(made, EditProblem):
        return _refused_edit_update(state, *made)
    kept = (
        await asyncio.to_thread(_edit_result_message, edit, edit.file, at, made)
        if state.get("source")
        else None
    )
    to_file = state.get("source") == "file"
    return {
        "label": "write" if to_file else "keep",
        "strategy": f"{state['helper_role']}, then {at.strategy_label}"
        if state.get("helper")
        else at.strategy_label,
        "occurrences": len(at.spans),
        "result": runtime.context.transcript.append("", [kept]) if kept else "",
        "error": {},
        "edit_status": "" if to_file else "applied",
    }


def _apply_edit_to_bytes(edit: Edit, file: TextFile, placed: PlacedEdit) -> bytes | EditProblem:
    # A guessed encoding is refused, or asked about, where the edit is written.
    file = replace(file, encoding=replace(file.encoding, is_guess=False))
    try:
        after = file.encode(apply_spans(file, placed.spans))
    except TextNotWritable as refusal:
        return EditProblem(refusal.kind, f"{quote_name(edit.shown_path)} {refusal}")
    if after == edit.data:
        line = line_number_at(edit.text, placed.spans[0].start)
        text = (
            f"{quote_name(edit.shown_path)} would be the same as before: what the edit would give stands at "
            f"line {line}."
        )
        return EditProblem("no_change", text)
    return after


def _edit_result_message(edit: Edit, file: TextFile, placed: PlacedEdit, after: bytes) -> Message:
    """The result as a detached record; stored as arguments, because those are kept verbatim."""
    first = placed.spans[0]
    exact = placed.strategy == "exact" and not placed.correction
    kept = {
        "new_content": replace_surrogates(file.decode(after)),
        "diff": unified_diff(edit.shown_path, edit.data, after, edit.conventions),
        "old_string": edit.strings.old if exact else edit.text[first.start : first.end],
        "new_string": edit.strings.new if exact else first.new,
    }
    call = ToolCall.model_validate({"id": "0.0", "name": "replace", "args": kept})
    return Message(role="assistant", tool_calls=(call,))


def _refused_edit_update(state: EditState, code: str, message: str) -> EditState:
    """If a helper's strings were being tried, the first error is kept."""
    error = state["error"] if state.get("helper") and state.get("error") else edit_error(code, message)
    return {"label": "refused", "error": error}


@node(
    reads=(*EDIT, "approval_mode", "asks"),
    writes=("approval", "asks", "error"),
    labels=("allowed", "asked", "denied"),
)
async def check_rights(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """A person is asked about the edit as it would be made, i.e. with the helper's strings if they are used."""
    deps = runtime.context
    key, call = amend_and_record_tried_call(deps, state)
    mode = state["approval_mode"]
    verdict = await deps.policy.decide_by_rules_and_checkers(
        call, "write", mode, deps.approvals.list_session_rules()
    )
    verdict = await ask_about_guessed_encoding(deps, call, verdict, mode, [], None)
    record_call_decision(runtime, key, policy_decision_record(verdict, mode))
    if verdict.decision == "deny":
        text = load_prompt("run/call_denied").render(
            tool=call.name, reason=verdict.deny_message or verdict.reason
        )
        return {"label": "denied", "error": edit_error("denied", text)}
    if verdict.decision == "allow":
        return {"label": "allowed", "error": {}}
    return await _request_edit_approval_or_deny(runtime, key, call, verdict, (state.get("asks") or 0) + 1)


async def _request_edit_approval_or_deny(
    runtime: Runtime[Deps], key: CallKey, call: CallView, verdict: Verdict, ask_number: int
) -> EditState:
    preview = await runtime.context.toolset.preview_call(call, [])
    if preview.problem is not None:
        return {"label": "denied", "error": edit_error(preview.code or "not_possible", preview.problem)}
    request = ApprovalRequest(
        attempt=key,
        asked=ask_number,
        kind="approval",
        call=call,
        reason=verdict.reason,
        preview=preview.text,
        files=preview.files,
        choices=_CHOICES,
        note=encoding_note(preview) or None,
        confirms=preview.confirms,
    )
    write_and_emit_request(runtime, request)
    return {"label": "asked", "approval": request.key, "asks": ask_number}


@node(
    reads=(*EDIT, "approval"),
    writes=("error",),
    labels=("proceed", "changed since", "refused"),
    nondeterministic=True,
    group="questions",
)
async def take_approval(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """A decision is bound to what was shown: if the file changed since, the edit is matched again."""
    deps = runtime.context
    key, _ = amend_and_record_tried_call(deps, state)
    request, answer = require_request_and_answer(deps, state["approval"])
    record_person_decision(runtime, key, state["approval"], answer)
    if answer.choice not in _CHOICES[1:]:
        if request.confirms:
            deps.toolset.confirm_encoding(request.confirms)
        changed = any(deps.toolset.current_file_digest(file.path) != file.on_disk for file in request.files)
        return {"label": "changed since" if changed else "proceed", "error": {}}
    return {"label": "refused", "error": edit_error("rejected", rejection_result(answer).content)}


@node(reads=(*EDIT, "seen"), writes=("edit_status", "error"), nondeterministic=True)
async def write(state: EditState, runtime: Runtime[Deps]) -> EditState:
    """Journal the intent with its hashes first; a file that changed since `read` is left alone.

    `docs/internals.md#unknown-outcomes`.
    """
    deps = runtime.context
    key, call = amend_and_record_tried_call(deps, state)
    row = deps.journal.find_row(key, call)
    result = row.result if row is not None and row.state == "done" else None
    if result is None:
        result = await _journal_and_write_file(runtime, key, call, row, state["seen"])
        deps.journal.record_result(key, call, result)
    await deps.snapshots.snapshot_after_call(key)
    if result.status == "success":
        return {"edit_status": "applied" if state["seen"] else "created", "error": {}}
    error = result.error or {"type": "io_error", "message": result.content}
    return {"edit_status": "failed", "error": edit_error(error["type"], error["message"])}


async def _journal_and_write_file(
    runtime: Runtime[Deps], key: CallKey, call: CallView, row: JournalRow | None, seen_hash: str
) -> ToolResult:
    deps = runtime.context
    planned = row.planned if row is not None and row.state == "intent" else None
    if planned is None:
        computed = await deps.toolset.plan_change(call)
        if isinstance(computed, ToolResult):
            return computed
        if (computed.before or "") != seen_hash:
            return _file_changed_result(call)
        await deps.snapshots.snapshot_before_call(key)
        deps.journal.record_intent(key, call, computed)
        planned = computed
    run = ToolRun(key=key, call=call, emit=runtime.stream_writer, planned=planned)
    return await await_despite_cancel(deps.toolset.run_call(run))


def _file_changed_result(call: CallView) -> ToolResult:
    text = (
        f"{quote_name(str(call.args['file_path']))} changed on disk while it was edited. Read it again; nothing "
        "was written."
    )
    return error_result("external_change", text)


@node(reads=("error",), writes=("edit_status", "error"), group="errors")
async def fail(state: EditState) -> EditState:
    return {"edit_status": "failed", "error": state["error"]}
