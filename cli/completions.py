"""completions: what may stand where somebody types: the words that complete a command line."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from interlock.cli.catalog import COMMANDS, build_parser, split_command_and_arguments
from interlock.cli.parsing import ChoiceParser
from interlock.cli.render.output import to_one_line
from interlock.engine.client import PIPELINES, WORKFLOWS_FOLDER, WORKFLOWS_GROUP, Client
from interlock.engine.client.requests import request_number_or_id
from interlock.state.entry_points import find_entry_points
from interlock.state.errors import InterlockError
from interlock.state.names import ALIASES

_TITLE, _MOST = 60, 1_000
"""Characters of a run's title, and how many of the newest runs are offered."""


class Completion(NamedTuple):
    value: str
    description: str = ""


class Completions(NamedTuple):
    words: list[Completion]
    kind: str = "words"
    """words | files | dirs"""
    prefix: str = ""
    """The part of the typed word that isn't part of a file's path."""


def complete_last_word(words: Sequence[str]) -> Completions:
    """Completions of the last of `words`, the words after `interlock`."""
    *before, current = words
    if before[:1] == ["help"]:
        return _completions_with_prefix([*_command_completions()], current)
    name, rest = split_command_and_arguments(before)
    parser = build_parser(name)
    with suppress(InterlockError):
        parser.add_dynamic_flags(rest)
    at, typed = parser.find_next_argument(rest)
    if current.startswith("--") and "=" in current:
        flag, _, _ = current.partition("=")
        at = parser.find_flag_action(flag)
        return _complete_value(at, current, flag + "=", typed) if at is not None else Completions([])
    if current.startswith("-") and (at is None or not at.option_strings):
        return _completions_with_prefix(
            [Completion(*one) for one in parser.visible_flags_with_help()], current
        )
    if name == "prompt" and not before:
        return _completions_with_prefix(
            [*_command_completions(), Completion("help", "a command's help")], current
        )
    return _complete_value(at, current, "", typed) if at is not None else Completions([])


def _command_completions() -> Iterator[Completion]:
    return (Completion(name, command.summary) for name, command in COMMANDS.items())


def _complete_value(action: argparse.Action, typed: str, prefix: str, words: Sequence[str]) -> Completions:
    """Values of one argument; `words` are the words before it that belong to no flag."""
    if isinstance(action.type, ChoiceParser):
        return _completions_with_prefix([Completion(prefix + value) for value in action.type.values], typed)
    places = str(action.metavar or "").split(" ")
    here = places[min(len(words), len(places) - 1)] if len(places) > 1 else places[0]
    found: list[Completion] = []
    for name in re.split(r"[|\[]", here):
        if name.startswith("@") and typed.startswith(f"{prefix}@"):
            return Completions([], "files", f"{prefix}@")
        kind = name.strip("]@…").partition("=")[0]
        if kind == "DIR":
            return Completions([], "dirs", prefix)
        if kind.startswith("FILE") and not name.startswith("@"):
            return Completions([], "files", prefix)
        source = _COMPLETERS.get(f"--{action.dest}") or _COMPLETERS.get(kind)
        found += [Completion(kind)] if kind.islower() else source(words) if source else []
    if not here and action.type is Path:
        return Completions([], "dirs", prefix)
    if here == "MODEL" and typed.startswith(f"{prefix}script:"):
        return Completions([], "files", f"{prefix}script:")
    return _completions_with_prefix(
        [Completion(prefix + word.value, word.description) for word in found], typed
    )


def _completions_with_prefix(words: Sequence[Completion], typed: str) -> Completions:
    return Completions([word for word in words if word.value.startswith(typed)])


def _run_completions(_: Sequence[str]) -> list[Completion]:
    newest = Client.for_this_user().runs(limit=_MOST)
    runs = [Completion(row.run, to_one_line(f"{row.status}: {row.title}", _TITLE)) for row in newest]
    return [*runs, Completion("latest", "the newest of this folder")] if runs else []


def _named_run_or_placeholder(words: Sequence[str]) -> str:
    """The run named before this word; `-` if there is none."""
    return Client.for_this_user().find_run(words[0]).run if words else "-"


def _step_completions(words: Sequence[str]) -> list[Completion]:
    run, client = _named_run_or_placeholder(words), Client.for_this_user()
    nodes = {step.step: step.node for step in client.steps(run) if not step.depth}
    return [Completion(str(one.step), nodes.get(one.step, one.source)) for one in client.checkpoints(run)]


def _request_completions(words: Sequence[str]) -> list[Completion]:
    waiting = [
        request.fields
        for request in Client.for_this_user().waiting_requests(_named_run_or_placeholder(words))
    ]
    rows = [(request_number_or_id(one), one["tool_name"], one["preview"]) for one in waiting]
    return [
        Completion("all"),
        *(Completion(name, to_one_line(f"{tool}: {preview}", _TITLE)) for name, tool, preview in rows),
    ]


def _workflow_completions(_: Sequence[str]) -> list[Completion]:
    files = [
        file for root in (Path.cwd(), Path.home()) for file in sorted((root / WORKFLOWS_FOLDER).glob("*.py"))
    ]
    own = {file.stem.replace("_", "-"): str(file) for file in files if not file.name.startswith("_")}
    installed = {point.name: point.value for point in find_entry_points(WORKFLOWS_GROUP)}
    return [Completion(name, about) for name, about in {**installed, **own, **PIPELINES}.items()]


def _tool_completions(_: Sequence[str]) -> list[Completion]:
    from interlock.tools import NAMES

    return [Completion(name) for name in sorted(NAMES)]


def _model_completions(_: Sequence[str]) -> list[Completion]:
    routed = Completion("auto", "routed, per prompt")
    return [
        routed,
        *(Completion(*one) for one in ALIASES.items()),
        Completion("script:", "a file of replies"),
    ]


def _mode_completions(_: Sequence[str]) -> list[Completion]:
    from interlock.prompts import list_prompt_names

    return [
        Completion(name.removeprefix("modes/")) for name in list_prompt_names() if name.startswith("modes/")
    ]


def _call_completions(words: Sequence[str]) -> list[Completion]:
    return [
        Completion(str(number), call.tool)
        for number, call in enumerate(Client.for_this_user().calls(_named_run_or_placeholder(words)), 1)
    ]


_COMPLETERS: dict[str, Callable[[Sequence[str]], list[Completion]]] = {
    "RUN": _run_completions,
    "STEP": _step_completions,
    "ID": _request_completions,
    "--call": _call_completions,
    "WORKFLOW": _workflow_completions,
    "TOOL": _tool_completions,
    "TOOLS": _tool_completions,
    "MODEL": _model_completions,
    "MODE": _mode_completions,
}
"""An argument's placeholder, or a flag with a different set of values → the values that exist."""
