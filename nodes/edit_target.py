"""edit_target: what an edit applies to (a file, a text or a call of a batch), and asking the correcting helper."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import HelperAnswer, T, ask_json, parse_json_as, question_messages
from interlock.nodes.tools_results import CALL, earlier_calls
from interlock.state.calls import CallKey, CallView, ToolResult, call_key_of
from interlock.state.deps import Deps, run_in_thread
from interlock.state.edit import FIXER_TIMEOUT_S, GRACE_S, EditState, FixAnswer, MeantEdit
from interlock.state.node import requesting_task
from interlock.tools.file_content import TextFile, decode_text_file
from interlock.tools.matcher.edit import (
    EditProblem,
    PlacedEdit,
    excerpt_near_similar,
    place_corrected_edit,
    place_edit,
)
from interlock.tools.matcher.windows import Work

_MOST = 2_000
"""Maximum characters of an error kept in a checkpoint."""


@dataclass(frozen=True)
class EditStrings:
    """The strings being tried: what to replace, and with what."""

    old: str
    new: str
    expected: int | None


@dataclass(frozen=True)
class Edit:
    """An edit being tried on the current content. `file` is null if there is none."""

    shown: str
    path: str
    file: TextFile | None
    data: bytes
    modified_at: float
    strings: EditStrings

    @property
    def text(self) -> str:
        return self.file.text if self.file else ""

    @property
    def hash(self) -> str:
        """sha256 of the bytes; empty: no file."""
        return sha256(self.data).hexdigest() if self.file else ""

    async def at(
        self, find: Callable[..., PlacedEdit | EditProblem] = place_edit
    ) -> PlacedEdit | EditProblem:
        """Place the edit; in a thread, as large texts take a while."""
        texts = (self.shown, self.text, self.strings.old, self.strings.new, self.strings.expected)
        return await run_in_thread(lambda stop: find(*texts, work=Work(check=stop.check)))

    async def repaired(self) -> PlacedEdit | None:
        """Place the edit with corrected strings."""
        texts = (self.text, self.strings.old, self.strings.new, self.strings.expected)
        return await run_in_thread(lambda stop: place_corrected_edit(*texts, work=Work(check=stop.check)))


EDIT = (*CALL, "source", "helper", "helper_role")
"""Keys that identify an edit as it is tried."""
_MOST_TEXT = 120_000
"""Characters of a file shown to a helper: about 30,000 tokens."""


DIFFERENCES = ("gone", "its bytes since this edit read it", "its hash since the model read it", "its time")
"""What shows that somebody else changed the file."""


def external_change(edit: Edit | ToolResult, state: EditState) -> str:
    """What shows that somebody else changed the file: one of `DIFFERENCES`; empty: nothing does."""
    if isinstance(edit, ToolResult):
        return DIFFERENCES[0]
    known, last = state.get("known_hash"), state.get("last_edit_at")
    others = known and edit.hash != known
    late = last and not known and edit.modified_at > last + GRACE_S
    shown = (edit.hash != state["seen"], others, late)
    return next((what for what, yes in zip(DIFFERENCES[1:], shown, strict=True) if yes), "")


def record_step_reason(runtime: Runtime[Deps], reason: str) -> None:
    """Record with the step what matched, or what differs."""
    runtime.context.steps.reasoned(requesting_task(runtime, "An edit"), reason)


async def load_edit(deps: Deps, state: EditState) -> Edit | ToolResult:
    """The edit on the current file, or as the earlier calls of the batch will leave it, or on content passed in."""
    call, tried = deps.journal.call(call_key_of(state)), current_strings(deps, state)
    if state.get("source") == "content":
        text = str(call.args.get("content"))
        return Edit("content", "", TextFile(text), text.encode(errors="surrogatepass"), 0, tried)
    earlier = [] if state.get("source") else earlier_calls(deps, state["message"], state["index"])
    found = await deps.toolset.file(call, earlier)
    if isinstance(found, ToolResult):
        return found
    file = None if found.data is None else decode_text_file(found.data)
    return Edit(found.shown, found.path, file, found.data or b"", found.modified_at, tried)


def current_strings(deps: Deps, state: EditState) -> EditStrings:
    """The call's own strings, or the helper's."""
    args = deps.journal.call(call_key_of(state)).args
    expected = args.get("expected_replacements", 1)
    old, new = str(args["old_string"]), str(args["new_string"])
    if state.get("helper"):
        text = deps.transcript.message(state["helper"]).text
        if state["helper_role"] == "edit_target":
            if meant := parse_json_as(text, MeantEdit):
                old = meant.corrected_target_snippet
                new = new if meant.new_string is None else meant.new_string
        elif fixed := parse_json_as(text, FixAnswer):
            old, new = fixed.search, fixed.replace
    count = expected if isinstance(expected, int) else None
    return EditStrings(old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), count)


def tried_call(deps: Deps, state: EditState) -> tuple[CallKey, CallView]:
    """The edit as a call; with a helper's strings, a later attempt at it."""
    key = call_key_of(state)
    call = deps.journal.call(key)
    if not state.get("helper"):
        return key, call
    tried = current_strings(deps, state)
    args = {**call.args, "old_string": tried.old, "new_string": tried.new}
    amended = CallView(id=call.id, name=call.name, args=args)
    deps.journal.amend(key.next, amended)
    return key.next, amended


def edit_error(code: str, message: str) -> dict[str, str]:
    """An error in the form kept in state."""
    return {"code": code, "message": message if len(message) <= _MOST else message[: _MOST - 1] + "…"}


async def ask_helper(
    runtime: Runtime[Deps], state: EditState, role: str, kind: type[T], prompt: tuple[str, str]
) -> HelperAnswer[T] | None:
    """A helper's answer to `prompt` (system, user); one attempt. A small model can't mend its own edit: None."""
    if runtime.context.info.brief:
        return None
    return await ask_json(
        runtime, kind, role, question_messages(*prompt), state["message"], FIXER_TIMEOUT_S, attempts=1
    )


def excerpt_around(text: str, old: str) -> str:
    """The whole text or, if long, the part around the lines most similar to `old`."""
    return text if len(text) <= _MOST_TEXT else excerpt_near_similar(text, old, _MOST_TEXT)
