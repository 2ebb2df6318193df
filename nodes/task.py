"""task: the task loop around turns and calls: mode, one call per message, mistakes, subtasks, result."""

import hashlib
import json
from typing import Literal, NamedTuple, cast

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from interlock.nodes.check import append_check_rule_once, relabel_accepted_answer_for_check
from interlock.nodes.hooks import hook_node
from interlock.nodes.main import (
    TurnEnd,
    append_program_message,
    fire_hooks_on_answer,
    resolve_typed_prompt,
    turn_end_label,
)
from interlock.nodes.main import finish as ended_by
from interlock.nodes.requests import require_request_and_answer, write_request_and_route
from interlock.prompts import render_prompt
from interlock.state.calls import ApprovalRequest, CallKey, CallView
from interlock.state.command import split_slash_command
from interlock.state.conversation import format_refusal, initial_prompt_state, refusals_from_state
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import RunError, UserError
from interlock.state.events import ErrorEvent, HandOver
from interlock.state.main import MainState
from interlock.state.messages import Message, ToolCall, unanswered_calls
from interlock.state.mode import DEFAULT
from interlock.state.node import node
from interlock.state.run import is_hooked
from interlock.state.task import CHILD, DEEPEST, REPEATS, Subtask, TaskState, parse_todo_steps

_FRESH: TaskState = {
    "flavour": "task",
    "withheld": {},
    "call_key": "",
    "repeats": 0,
    "mistakes": 0,
    "completed": "",
    "subtask": "",
    "mistaken": False,
    "child": "",
    "result": "",
    "first_todos": "",
    "stop": "",
    "status": "running",
    "refused": {},
    "hook_stage": "",
    "fed_back": False,
    "skill_denies": "",
    "skill_allows": "",
}
_SCROLLS = ("scroll_down", "scroll_up")
"""Browser actions for which a repeat is progress."""
_SHOWN_MISTAKE = 160
"""Characters shown of each."""


@node(
    reads=("mode", "prompt", "head", "first_todos", "todos", "children", "unavailable", "depth"),
    writes=(
        *(*initial_prompt_state(), *_FRESH, "mode", "asked", "prompt", "head", "todos", "children"),
        *("unavailable", "turn_status", "error"),
    ),
    labels=("prompt", "command", "unusable"),
    nondeterministic=True,
)
async def load_mode(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Load the mode before the first request, and again for each further prompt, which may name a custom command."""
    typed = _TypedPrompt("prompt", state["prompt"])
    try:
        if state["prompt"] and not state["depth"]:  # a model wrote the prompt of a subtask
            typed = await _resolve_prompt_and_mode(state["prompt"], runtime)
    except UserError as error:  # the prompt stays, for a resume once the command is there
        failed: TaskState = {"turn_status": "error", "error": {"type": error.kind, "message": str(error)}}
        return {**_load_mode(state, runtime, ""), **failed, "label": "unusable"}
    opened = _load_mode(state, runtime, typed.mode)
    if typed.record:
        opened |= {"asked": typed.record, "prompt": typed.record}
    return {**opened, "label": typed.kind}


class _TypedPrompt(NamedTuple):
    kind: Literal["prompt", "command"]
    record: str
    mode: str = ""
    """The mode of work that a command names; empty: none."""


async def _resolve_prompt_and_mode(prompt: str, runtime: Runtime[Deps]) -> _TypedPrompt:
    """Raises `UserError` for the name of a command that isn't there or can't be used."""
    kind, record = await resolve_typed_prompt(prompt, runtime)
    name, _ = split_slash_command(runtime.context.transcript.read_message(prompt).text)
    command = runtime.context.context.load_commands().find_command(name) if kind == "command" else None
    return _TypedPrompt(kind, record, command.mode if command else "")


def _load_mode(state: TaskState, runtime: Runtime[Deps], wanted: str) -> TaskState:
    """`wanted`: the mode that counts if none was chosen."""
    deps = runtime.context
    wanted = wanted if deps.modes.find_mode(wanted) else DEFAULT
    mode = state.get("mode") or wanted
    if deps.modes.find_mode(mode) is None:
        message = f"Mode {mode!r} no longer exists; the task continues in {DEFAULT!r}."
        runtime.stream_writer(ErrorEvent(severity="warning", message=message))
        mode = DEFAULT
    opened: TaskState = {
        **initial_prompt_state(),
        **_FRESH,
        "mode": mode,
        "children": state.get("children", []),
        "unavailable": {m: how for m, how in state.get("unavailable", {}).items() if how == "run"},
    }
    if steps := parse_todo_steps(state.get("first_todos", "")):
        text = json.dumps(steps, ensure_ascii=False)
        opened["todos"] = deps.transcript.append("", [Message(role="tool", content=text)])
        listed = Message(role="user", origin="context", content=f"Steps so far:\n{state['first_todos']}")
        opened["head"] = deps.transcript.append(state["head"], [listed])
    if deps.checks.must_pass_with_original_tests:
        opened["head"] = append_check_rule_once(opened.get("head", state["head"]), deps)
    return opened


@node(
    reads=("reply", "call_key", "repeats", "depth", "todos"),
    writes=("withheld", "call_key", "repeats", "completed", "subtask"),
)
async def choose_call(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Run the first call of a message unless it equals the three before it; answer the others without running them."""
    calls = runtime.context.transcript.read_message(state["reply"]).tool_calls
    key = _repetition_key(calls[0])
    repeats = state["repeats"] + 1 if key and key == state["call_key"] else 1
    chosen: TaskState = {
        "withheld": {str(index): "second" for index in range(1, len(calls))},
        "call_key": key,
        "repeats": repeats,
        "completed": "",
        "subtask": "",
    }
    if repeats >= REPEATS:
        return {**chosen, "withheld": {**chosen["withheld"], "0": "repeated"}, "call_key": "", "repeats": 0}
    if calls[0].name == "new_task" and state["depth"] >= DEEPEST:
        return {**chosen, "withheld": {**chosen["withheld"], "0": "too deep"}}
    if calls[0].name == "attempt_completion" and _should_refuse_completion(state, runtime.context):
        return {**chosen, "withheld": {**chosen["withheld"], "0": "open todos"}}
    return chosen


def _should_refuse_completion(state: TaskState, deps: Deps) -> bool:
    """Whether steps are still to be done, and settings say that they must be first."""
    if not deps.settings.task.no_open_todos or not state.get("todos"):
        return False
    todos: list[dict[str, str]] = json.loads(deps.transcript.read_message(state["todos"]).text)
    return any(todo["status"] != "completed" for todo in todos)


def _repetition_key(call: ToolCall) -> str:
    """Equal for equal calls, regardless of argument order; empty: repetition is fine."""
    if call.args.get("action") in _SCROLLS:
        return ""
    text = json.dumps([call.name, call.args], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@node(
    reads=("stop", "completed", "subtask", "mistaken", "mistakes", "hooked"),
    writes=("mistakes", "result"),
    labels=("stopped", "completed", "answered", "accepted", "subtask", "three mistakes", "given up", "go on"),
)
async def weigh(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Decide what follows a batch. A person confirms the result only if one is present, or settings say so."""
    deps = runtime.context
    mistakes = state["mistakes"] + 1 if state.get("mistaken") else 0
    if state.get("stop"):
        return {"label": "stopped", "mistakes": mistakes}
    if state["completed"]:
        asks = deps.settings.task.confirm_completion
        confirmed = deps.info.interactive if asks is None else asks
        label = "completed" if confirmed else _label_for_accepted_result(state)
        return {"label": label, "mistakes": 0, "result": state["completed"]}
    if state["subtask"]:
        return {"label": "subtask", "mistakes": 0}
    return {"label": _label_after_mistakes(mistakes, deps), "mistakes": mistakes}


def _label_for_accepted_result(state: TaskState) -> Literal["answered", "accepted"]:
    return "answered" if is_hooked(state, "AfterAgent") else "accepted"


def _label_after_mistakes(mistakes: int, deps: Deps) -> Literal["three mistakes", "given up", "go on"]:
    """Where nobody is there to ask, the task fails, unless settings say that it waits for somebody."""
    task = deps.settings.task
    if not task.consecutive_mistake_limit or mistakes < task.consecutive_mistake_limit:
        return "go on"
    asks = deps.info.interactive if task.ask_after_mistakes is None else task.ask_after_mistakes
    return "three mistakes" if asks else "given up"


@node(reads=("head", "mistakes"), writes=("turn_status", "error"), group="errors")
async def give_up(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Fail with the mistakes that led here."""
    transcript, made = runtime.context.transcript, list[str]()
    for message in reversed(transcript.read(state["head"])):
        if message.role == "tool" and message.status == "error":
            why = " ".join(message.text.removeprefix(f"{message.name}: ").split())
            made.append(f"{message.name}: {why[:_SHOWN_MISTAKE].rstrip('.')}")
        elif message.role == "assistant" and not message.tool_calls:
            made.append("no tool was called")
        if len(made) == state["mistakes"]:
            break
    listed = "; ".join(f"({number}) {mistake}" for number, mistake in enumerate(reversed(made), 1))
    advice = f"Say how to go on: interlock resume {runtime.context.info.run} -p '…'."
    to_ask = "To be asked instead, set task.askAfterMistakes in settings."
    message = f"The model made {state['mistakes']} mistakes in a row: {listed}. {advice} {to_ask}"
    return {"turn_status": "error", "error": {"type": "mistakes", "message": message}}


@node(
    reads=("head", "mistakes"),
    writes=("head", "mistakes"),
    labels=("three mistakes", "given up", "go on"),
    group="errors",
)
async def remind(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """A message without a call also counts as a mistake."""
    mistakes = state["mistakes"] + 1
    head = append_program_message(runtime, state["head"], render_prompt("task_loop/remind"))
    return {"label": _label_after_mistakes(mistakes, runtime.context), "head": head, "mistakes": mistakes}


@node(
    reads=("reply", "mistakes", "hooked"), writes=("approval",), labels=("asked", "notify"), group="questions"
)
async def ask_guidance(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """The person's answer says how to continue."""
    reason = (
        f"The model made {state['mistakes']} mistakes in a row. Say how to continue; reject ends the task."
    )
    return _write_task_request(state, runtime, "guidance", reason, reason)


@node(
    reads=("reply", "result", "hooked"), writes=("approval",), labels=("asked", "notify"), group="questions"
)
async def ask_completion(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """A rejection with text is feedback; the task continues with it."""
    text = runtime.context.transcript.read_message(state["result"]).text
    reason = (
        "The task is done, says the model. Approve the result, or reject it and say what is still to be done."
    )
    return _write_task_request(state, runtime, "completion", reason, text)


def _write_task_request(
    state: TaskState,
    runtime: Runtime[Deps],
    request_kind: Literal["guidance", "completion"],
    reason: str,
    preview: str,
) -> TaskState:
    key = CallKey(message=state["reply"], index=0)
    request = ApprovalRequest(
        attempt=key,
        what=request_kind,
        kind="question" if request_kind == "guidance" else "approval",
        call=CallView(
            id=request_kind, name="attempt_completion" if request_kind == "completion" else "task", args={}
        ),
        reason=reason,
        preview=preview,
        choices=("proceed_once", "reject", "cancel"),
        questions=({"question": reason},) if request_kind == "guidance" else (),
    )
    return {**write_request_and_route(runtime, state, request)}


@node(
    reads=("approval", "head"),
    writes=("head", "mistakes", "stop", "stopped_by"),
    labels=("go on", "stopped"),
    group="questions",
)
async def take_guidance(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    _, answer = require_request_and_answer(runtime.context, state["approval"])
    feedback = (answer.text or answer.feedback or "").strip()
    if answer.choice != "proceed_once" and not feedback:
        return {"label": "stopped", "stop": "ended by the user", "stopped_by": "person"}
    if not feedback:
        return {"label": "go on", "mistakes": 0}
    text = render_prompt("task_loop/guidance", feedback=feedback)
    return {"label": "go on", "mistakes": 0, "head": append_program_message(runtime, state["head"], text)}


@node(
    reads=("approval", "head", "result", "hooked"),
    writes=("head", "result", "stop", "stopped_by"),
    labels=("answered", "accepted", "feedback", "stopped"),
    group="questions",
)
async def take_completion(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    _, answer = require_request_and_answer(runtime.context, state["approval"])
    feedback = (answer.feedback or answer.text or "").strip()
    if answer.choice == "cancel":
        return {"label": "stopped", "stop": "ended by the user", "stopped_by": "person"}
    if answer.choice == "proceed_once" and not feedback:
        return {"label": _label_for_accepted_result(state)}
    text = render_prompt("task_loop/feedback", feedback=feedback or "This isn't done.")
    return {"label": "feedback", "head": append_program_message(runtime, state["head"], text), "result": ""}


@hook_node(
    reads=("head", "asked", "result", "fed_back"),
    writes=("head", "result", "hook_stage", "fed_back", "turn_status", "error"),
    labels=("feedback", "passed", "stopped", "blocked", "check"),
)
async def after_agent(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """The result is the answer. Hooks accept it, send the model on, or end the task without it."""
    result = runtime.context.transcript.read_message(state["result"]).text
    checked = cast(TaskState, await fire_hooks_on_answer(result, cast(MainState, state), runtime))
    accepted = checked.get("turn_status") == "ok"
    return (
        relabel_accepted_answer_for_check(checked, runtime.context) if accepted else {**checked, "result": ""}
    )


@node(
    reads=(
        *(
            "subtask",
            "reply",
            "children",
            "depth",
            "path",
            "protocol",
            "approval_mode",
            "chosen_mode",
            "model",
        ),
        "max_turns",
    ),
    writes=("child", "children"),
)
async def open_child(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Only creates the run: the process driving this run drives it next, or a person resumes it."""
    deps = runtime.context
    wanted = json.loads(deps.transcript.read_message(state["subtask"]).text)
    call = deps.transcript.read_message(state["reply"]).tool_calls[0].id
    run = deps.tasks.create_subtask_run(
        Subtask(call, wanted["mode"], wanted["message"], wanted["todos"]), state
    )
    runtime.stream_writer(HandOver(run=run, workflow="task"))
    return {"child": run, "children": [*(c for c in state["children"] if c != run), run]}


@node(reads=("child",), writes=("child",))
async def await_child(state: TaskState) -> TaskState:
    """Interrupts with the pending run's name; its end is a row of that run. Does nothing else."""
    interrupt(f"{CHILD}{state['child']}")
    return {"child": state["child"]}


@node(reads=("child", "head", "subtask", "refused"), writes=("child", "head", "refused"))
async def take_result(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """The result becomes a message; mode, steps and conversation are restored."""
    deps = runtime.context
    end = deps.tasks.find_subtask_end(state["child"])
    if end is None:
        raise RunError(
            f"Subtask {state['child']!r} hasn't ended. Go on with: interlock resume {state['child']}"
        )
    mode = repr(json.loads(deps.transcript.read_message(state["subtask"]).text)["mode"])
    if end.how == "done":
        text = render_prompt("task_loop/subtask_done", mode=mode, result=end.result)
        if calls := "; ".join(format_refusal(refused) for refused in end.refused.values() if refused["open"]):
            text += "\n" + render_prompt("task_loop/subtask_refused", calls=calls)
    else:
        text = render_prompt("task_loop/subtask_ended", mode=mode, how=end.how)
    message = Message(role="user", origin="agent", content=text)
    mine = refusals_from_state(state)
    theirs = {k: r for k, r in end.refused.items() if r["open"] or not (k in mine and mine[k]["open"])}
    refused = {**mine, **theirs}
    return {"child": "", "head": deps.transcript.append(state["head"], [message]), "refused": refused}


@node(
    reads=("turn_status", "reply", "stop", "stopped_by", "refused", "result", "path"),
    writes=("status", "error"),
)
async def finish(state: TaskState, runtime: Runtime[Deps]) -> TaskState:
    """Ends like `main`; a submitted result is the answer and a success, whatever the last turn's status.

    What a subtask had to do without fails the task above, which gets its result and may make up for it.
    """
    turn_status = "ok" if state.get("result") else state["turn_status"]
    handed_up = bool(state.get("result") and state.get("path"))
    loop: MainState = {
        "turn_status": turn_status,
        "stop": state.get("stop", ""),
        "refused": {} if handed_up else refusals_from_state(state),
    }
    loop["reply"] = state.get("result") or state.get("reply", "")
    loop["stopped_by"] = state.get("stopped_by", "")
    return cast(TaskState, await ended_by(loop, runtime))


def close_open_calls_for_resume(head: str, transcript: Transcript) -> str:
    """The head to continue an earlier conversation from: every open call is answered before anything is added."""
    if not head:
        return ""
    text = render_prompt("task_loop/interrupted")
    answers = [
        Message(role="tool", tool_call_id=call.id, name=call.name, content=text, status="cancelled")
        for call in unanswered_calls(transcript.read(head))
    ]
    note = Message(role="user", origin="context", content=render_prompt("task_loop/resumed"))
    return transcript.append(head, [*answers, note])


def route_after_turn(state: TaskState) -> Literal["calls", "nothing called", "first loop", TurnEnd]:
    found = turn_end_label(state["turn_status"])
    return "nothing called" if found == "ok" else found
