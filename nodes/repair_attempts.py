"""repair_attempts: locate the fault, ask a model for a correction, put it into the code, choose what to try next."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import build_question_messages, request_reply
from interlock.nodes.repair_records import (
    load_attempts,
    load_check_end,
    load_files,
    load_suspects,
    store_attempts,
    store_files,
    store_model_record,
)
from interlock.prompts import load_prompt
from interlock.state.checks import CheckEnd
from interlock.state.deps import Deps
from interlock.state.errors import ModelError, UserError
from interlock.state.messages import Message, ModelCall, TextDelta, ThoughtDelta
from interlock.state.node import node, require_task_id
from interlock.state.repair import NOT_LOCATED, Attempt, Place, RepairState, Suspects
from interlock.state.text import shorten
from interlock.tools.code_places import definitions_or_none, put_new_version, syntax_problem
from interlock.tools.text_diff import unified_diff

_TEMPERATURES = (0.0, 0.4, 0.6, 0.8, 0.9)
"""Of the first answer about a place, the second, and so on; the last one stays."""
_OUTPUT_CHARS, _OUTPUT_LINES = 1_500, 40
"""Of the check's output, shown to the model."""
_MOST_TOLD = 4
"""Failed changes that the model is told of, each in so many characters:"""
_TOLD_CHARS = 300
_AROUND_LINES = 150
"""Of a file around a function that is asked for."""
_ANSWER_CHARS = 6_000
"""An answer may be so much longer than what is asked for; what is longer repeats itself."""
_WHOLE_LINES = 30
"""A file up to this length is asked for as a whole; of others, the functions that change: fewer tokens to write."""
_ENOUGH = "its code is whole"
_BLOCK = re.compile(r"^ *(`{3,})(?!diff)[^\n`]*\n(.*?)\n? *\1`*[ \t]*$", re.DOTALL | re.MULTILINE)
_TRIED = ("attempt_no", "since_best", "tried", "suspects", "best", "answer", "trial")


@node(
    reads=("command", "check_timeout_s", "checked", "task"),
    writes=("suspects", "error"),
    labels=("found", "nothing"),
    nondeterministic=True,
)
async def locate(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """List functions and files that may hold the fault, likeliest first, each with its reason; never a test."""
    deps = runtime.context
    end = load_check_end(deps.transcript, state)
    task = deps.transcript.read_message(state["task"]).text
    checks = deps.checks.for_command(state["command"], state["check_timeout_s"])
    found = await checks.find_suspects(end, task)
    record = store_model_record(deps.transcript, found)
    if found.places:
        told = "; ".join(f"{describe_place(place)}: {place.reason}" for place in found.places)
        deps.steps.record_reason(require_task_id(runtime, "locate"), told)
        return {"label": "found", "suspects": record, "error": {}}
    text = "No code was found that the failing tests run. Name the file in the task."
    return {"label": "nothing", "suspects": record, "error": {"type": NOT_LOCATED, "message": text}}


def describe_place(place: Place) -> str:
    """Name a place for people: the function and its file, or the file."""
    return f"{place.name} in {place.path}" if place.name else place.path


def place_and_sample(number: int, places: int) -> tuple[int, int]:
    """Return which place the attempt with this number, from 0, is about, and how many there were about it before.

    The likeliest places come first and get the most answers: 0, then 0 and 1, then 0, 1 and 2, and so on.
    """
    order = ((place, round - place) for round in range(number + 1) for place in range(min(round + 1, places)))
    return next(pair for at, pair in enumerate(order) if at == number)


def place_of_attempt(state: RepairState, suspects: Suspects) -> Place:
    """Return the place that the current attempt is about."""
    return suspects.places[place_and_sample(state["since_best"], len(suspects.places))[0]]


def temperature_of(sample: int) -> float:
    """Return how freely a model answers that was asked about a place this often before."""
    return _TEMPERATURES[min(sample, len(_TEMPERATURES) - 1)]


@node(
    reads=("task", "checked", *_TRIED),
    writes=("answer", "attempt_no", "outcome", "trial", "error"),
    labels=("answered", "no answer", "no model"),
)
async def propose(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Ask for the function or file once: all that a model needs is in one message."""
    deps, transcript = runtime.context, runtime.context.transcript
    suspects, end = load_suspects(transcript, state), load_check_end(transcript, state)
    number, sample = place_and_sample(state["since_best"], len(suspects.places))
    place = place_of_attempt(state, suspects)
    text = current_text(state, deps, suspects, place)
    task = transcript.read_message(state["task"]).text
    before = [one for one in load_attempts(transcript, state) if one.place == number and one.diff]
    how = "Write only the code, " if sample % 2 else "Say in a sentence what is wrong, then write "
    system, user = load_prompt("repair/propose").render_system_and_user(
        task=task,
        tests="".join(_fenced(f"{path} (a test)", code, path) for path, code in suspects.tests.items()),
        output=_fenced("It prints", shorten_output(end), "x.txt"),
        code=_code_of_place(text, place),
        tried=_describe_changes(before) if sample % 2 == 0 else "",
        place=f"`{place.name}` in {place.path}" if place.name else place.path,
        wanted=f"{how}{_describe_wanted_code(text, place)} in a code block.",
    )
    asked = ModelCall(
        task=require_task_id(runtime, "propose"),
        role="repair",
        head="",
        messages=build_question_messages(system, user),
        temperature=temperature_of(sample),
        watch=_make_watch(text, place),
    )
    counted: RepairState = {"attempt_no": state["attempt_no"] + 1, "outcome": "", "trial": ""}
    try:
        reply = await request_reply(asked, runtime)
    except (ModelError, UserError) as error:
        return {
            **counted,
            "label": "no model",
            "answer": "",
            "error": {"type": "model", "message": str(error)},
        }
    is_cut = reply.finish_reason == "length" or reply.problem not in (None, "", _ENOUGH)
    if is_cut or not reply.message.text.strip():
        return {**counted, "label": "no answer", "answer": "", "outcome": "the answer is empty or cut off"}
    answer = transcript.append("", [Message(role="assistant", content=reply.message.text)])
    return {**counted, "label": "answered", "answer": answer, "error": {}}


def _describe_wanted_code(text: str, place: Place) -> str:
    if place.name:
        return f"all of the corrected function `{place.name}`"
    is_short = text.count("\n") < _WHOLE_LINES or not definitions_or_none(text, place.path)
    return (
        f"all of the corrected {place.path}" if is_short else "every function that has to change, all of it,"
    )


def _make_watch(text: str, place: Place) -> Callable[[TextDelta | ThoughtDelta], str | None]:
    """Return what ends an answer: its code is whole, or it runs on. Whatever a small model adds takes seconds."""
    answer = ""

    def watch(piece: TextDelta | ThoughtDelta) -> str | None:
        nonlocal answer
        answer += piece.text
        if len(answer) > len(text) + _ANSWER_CHARS:
            return "the answer runs on"
        if "`" not in piece.text and "\n" not in piece.text:
            return None
        after, problem = _correct_text(answer, text, place) if _BLOCK.search(answer) else ("", "no code")
        return _ENOUGH if not problem and after != text else None

    return watch


def current_text(state: RepairState, deps: Deps, suspects: Suspects, place: Place) -> str:
    """Return a place's file as it is in the best known state."""
    return load_files(deps.transcript, state["best"]).get(place.path, suspects.files[place.path])


def _fenced(title: str, text: str, path: str) -> str:
    marks = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", text)), 3)
    return f"{title}:\n{marks}{PurePath(path).suffix[1:]}\n{text.strip(chr(10))}\n{marks}\n\n"


def shorten_output(end: CheckEnd) -> str:
    """Return what the first failed test prints, else the end of the output: its last lines say most."""
    text = end.failures[0].detail if end.failures and end.failures[0].detail else end.output
    lines = text[-_OUTPUT_CHARS:].split("\n") if len(text) > _OUTPUT_CHARS else text.split("\n")
    return "\n".join(lines[-_OUTPUT_LINES:])


def _code_of_place(text: str, place: Place) -> str:
    """Return a place's file: all of it, or what is around the function."""
    lines = text.split("\n")
    if not place.name or len(lines) <= 2 * _AROUND_LINES:
        return _fenced(place.path, text, place.path)
    found = [one for one in definitions_or_none(text, place.path) or () if one.name == place.name]
    start = min(found, key=lambda one: abs(one.start - place.start_line)).start if found else place.start_line
    first = max(0, start - 1 - _AROUND_LINES // 2)
    shown = "\n".join(lines[first : first + _AROUND_LINES])
    return _fenced(f"{place.path}, from line {first + 1}", shown, place.path)


def _describe_changes(attempts: Sequence[Attempt]) -> str:
    """Say in words what was changed in vain: a small model that is shown a diff writes it again."""
    told = dict[str, str]()
    for one in attempts:
        gone, new = (
            " ".join(line[1:].strip() for line in one.diff.split("\n")[2:] if line.startswith(mark))
            for mark in "-+"
        )
        told[f"Not `{shorten(new, _TOLD_CHARS)}` in place of `{shorten(gone, _TOLD_CHARS)}`"] = one.outcome
    lines = [f"- {what}: {outcome}" for what, outcome in [*told.items()][-_MOST_TOLD:]]
    return "These changes were tried in vain:\n" + "\n".join(lines) + "\n\n" if lines else ""


@node(reads=_TRIED, writes=("trial", "outcome"), labels=("tried", "unusable"))
async def try_answer(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Put the answer's code into the best known state. Nothing is written to the workspace."""
    deps, transcript = runtime.context, runtime.context.transcript
    suspects = load_suspects(transcript, state)
    place = place_of_attempt(state, suspects)
    before = current_text(state, deps, suspects, place)
    after, problem = _correct_text(transcript.read_message(state["answer"]).text, before, place)
    if not problem:
        restored = deps.checks.restore_tests(place.path, suspects.files[place.path], after)
        problem = "it changes tests that stand beside the code" if restored is None else ""
        after = restored or ""
    diff = "" if problem else unified_diff(place.path, before.encode(), after.encode())
    if not problem and not diff:
        problem = "it changes nothing"
    if not problem and any(one.diff == diff for one in load_attempts(transcript, state)):
        problem = "it was tried before"
    if problem:
        return {"label": "unusable", "trial": "", "outcome": problem}
    files = {**load_files(transcript, state["best"]), place.path: after}
    return {"label": "tried", "trial": store_files(transcript, files), "outcome": ""}


def _correct_text(answer: str, before: str, place: Place) -> tuple[str, str]:
    """Return the file with the answer's code, and why there is none; one of them is empty."""
    code = longest_code_block(answer.rpartition("</think>")[2])  # thoughts hold code, too
    if not code.strip():
        return "", "the answer holds no code"
    after, problem = put_new_version(before, code, place.path, place.name, place.start_line)
    return after, problem or syntax_problem(after, place.path)


def longest_code_block(answer: str) -> str:
    """Return the longest code block, also one that isn't closed; empty: there is none."""
    blocks = [found[2] for found in _BLOCK.finditer(answer)]
    if not blocks and (begun := re.search(r"^ *```[^\n`]*\n(.*)", answer, re.DOTALL | re.MULTILINE)):
        blocks = [begun[1]]
    return max(blocks, key=len, default="")


@node(
    reads=("max_attempts", "outcome", *_TRIED),
    writes=("tried", "since_best", "trial"),
    labels=("again", "nothing left"),
)
async def choose_next(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Note what came of the attempt, and whether another one may be made: at which place follows from its number."""
    transcript = runtime.context.transcript
    suspects, attempts = load_suspects(transcript, state), load_attempts(transcript, state)
    # A better state begins again with the likeliest place.
    number, sample = place_and_sample(max(0, state["since_best"]), len(suspects.places))
    diff = _diff_of_trial(state, runtime.context, suspects)
    attempts.append(
        Attempt(place=number, temperature=temperature_of(sample), outcome=state["outcome"], diff=diff)
    )
    label = "again" if state["attempt_no"] < state["max_attempts"] else "nothing left"
    runtime.context.steps.record_reason(
        require_task_id(runtime, "choose_next"),
        f"{describe_place(suspects.places[number])}: {state['outcome']}",
    )
    tried = store_attempts(transcript, attempts)
    return {"label": label, "tried": tried, "since_best": state["since_best"] + 1, "trial": ""}


def _diff_of_trial(state: RepairState, deps: Deps, suspects: Suspects) -> str:
    """Return what the files under trial change in the workspace's."""
    trial = load_files(deps.transcript, state["trial"])
    return diff_of_files(suspects.files, trial)


def diff_of_files(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Return what differs, as a unified diff."""
    return "".join(unified_diff(path, before[path].encode(), text.encode()) for path, text in after.items())
