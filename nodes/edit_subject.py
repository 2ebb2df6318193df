"""edit_subject: what an edit is made on: a file, a text or a call of a batch; and the helper that corrects it."""

from dataclasses import dataclass

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import Answered, Question, T, ask_json, asking, parsed
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.deps import Deps
from interlock.state.edit import FIXER_TIMEOUT_S, EditState, FixAnswer, TargetAnswer
from interlock.state.toolset import FileNow
from interlock.tools._text import TextFile, decode
from interlock.tools.matcher.edit import excerpt

_MOST = 2_000
"""Characters of an error that a checkpoint keeps."""


@dataclass(frozen=True)
class Strings:
    """An edit as it is tried."""

    old: str
    new: str
    expected: int | None


@dataclass(frozen=True)
class Subject:
    """`file` is null where there is none."""

    shown: str
    path: str
    file: TextFile | None
    data: bytes
    modified_at: float

    @property
    def text(self) -> str:
        return self.file.text if self.file else ""


_MOST_TEXT = 120_000
"""Characters of a file that a helper is shown: about 30,000 tokens."""


def key_of(state: EditState | EditState) -> CallKey:
    return CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])


async def subject(deps: Deps, state: EditState) -> Subject | ToolResult:
    """The file as it is now, or as the earlier calls of the batch will leave it; or the content that was given."""
    call = deps.journal.call(key_of(state))
    content = call.args.get("content")
    if state.get("source") == "content":
        text = str(content)
        return Subject("content", "", TextFile(text), text.encode(errors="surrogatepass"), 0)
    found = await deps.toolset.file(call, [] if state.get("source") else _earlier(deps, state))
    if isinstance(found, ToolResult):
        return found
    return _decoded(found)


def _decoded(found: FileNow) -> Subject:
    file = None if found.data is None else decode(found.data)
    return Subject(found.shown, found.path, file, found.data or b"", found.modified_at)


def _earlier(deps: Deps, state: EditState) -> list[CallView]:
    return [
        deps.journal.call(CallKey(message=state["message"], index=index)) for index in range(state["index"])
    ]


def strings(deps: Deps, state: EditState | EditState) -> Strings:
    """The call's own, or the helper's."""
    args = deps.journal.call(key_of(state)).args
    expected = args.get("expected_replacements", 1)
    old, new = str(args["old_string"]), str(args["new_string"])
    if state.get("helper"):
        text = deps.transcript.message(state["helper"]).text
        if state["helper_role"] == "edit_target":
            answer = parsed(text, TargetAnswer)
            old = answer.corrected_target_snippet if answer else old
        elif fixed := parsed(text, FixAnswer):
            old, new = fixed.search, fixed.replace
    count = expected if isinstance(expected, int) else None
    return Strings(old.replace("\r\n", "\n"), new.replace("\r\n", "\n"), count)


def as_tried(deps: Deps, state: EditState | EditState) -> tuple[CallKey, CallView]:
    """The call of the edit; with strings of a helper's it is a later attempt at it."""
    key = key_of(state)
    call = deps.journal.call(key)
    if not state.get("helper"):
        return key, call
    tried = strings(deps, state)
    later = key.model_copy(update={"attempt": key.attempt + 1})
    args = {**call.args, "old_string": tried.old, "new_string": tried.new}
    amended = CallView(id=call.id, name=call.name, args=args)
    deps.journal.amend(later, amended)
    return later, amended


def problem(code: str, message: str) -> dict[str, str]:
    """An error as state holds it."""
    return {"code": code, "message": message if len(message) <= _MOST else message[: _MOST - 1] + "…"}


async def ask(
    runtime: Runtime[Deps], state: EditState, role: str, kind: type[T], prompt: tuple[str, str]
) -> Answered[T] | None:
    """The answer to `prompt` (system, user); one attempt."""
    question = Question(
        role=role,
        messages=asking(*prompt),
        head=state["message"],
        timeout_s=FIXER_TIMEOUT_S,
        attempts=1,
    )
    return await ask_json(question, kind, runtime)


def shown_text(text: str, old: str) -> str:
    """The whole text, or of a long one what is around the lines that are most like `old`."""
    return text if len(text) <= _MOST_TEXT else excerpt(text, old, _MOST_TEXT)
