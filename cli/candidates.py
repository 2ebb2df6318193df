"""candidates: what may stand where somebody types: the words that complete a command line."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from interlock.cli.catalog import COMMANDS, command_of, parser_of
from interlock.cli.parsing import OneOf
from interlock.cli.render.output import one_line
from interlock.engine.client import PIPELINES, WORKFLOWS_FOLDER, WORKFLOWS_GROUP, Client
from interlock.engine.client.requests import request_name
from interlock.state.entry_points import find_entry_points
from interlock.state.errors import InterlockError
from interlock.state.names import ALIASES

_TITLE, _MOST = 60, 1_000
"""Characters of a run's title, and how many of the newest runs are offered."""


class Word(NamedTuple):
    value: str
    about: str = ""


class Answer(NamedTuple):
    words: list[Word]
    kind: str = "words"
    """words | files | dirs"""
    prefix: str = ""
    """The part of the typed word that isn't part of a file's path."""


def candidates(words: Sequence[str]) -> Answer:
    """Completions of the last of `words`, the words after `interlock`."""
    *before, current = words
    if before[:1] == ["help"]:
        return _fitting([*_commands()], current)
    name, rest = command_of(before)
    parser = parser_of(name)
    with suppress(InterlockError):
        parser.learn(rest)
    at, typed = parser.expects(rest)
    if current.startswith("--") and "=" in current:
        flag, _, _ = current.partition("=")
        at = parser.action_of(flag)
        return _of(at, current, flag + "=", typed) if at is not None else Answer([])
    if current.startswith("-") and (at is None or not at.option_strings):
        return _fitting([Word(*one) for one in parser.shown_flags()], current)
    if name == "prompt" and not before:
        return _fitting([*_commands(), Word("help", "a command's help")], current)
    return _of(at, current, "", typed) if at is not None else Answer([])


def _commands() -> Iterator[Word]:
    return (Word(name, command.summary) for name, command in COMMANDS.items())


def _of(action: argparse.Action, current: str, before: str, words: Sequence[str]) -> Answer:
    """Values of one argument; `words` are the words before it that belong to no flag."""
    if isinstance(action.type, OneOf):
        return _fitting([Word(before + value) for value in action.type.values], current)
    places = str(action.metavar or "").split(" ")
    here = places[min(len(words), len(places) - 1)] if len(places) > 1 else places[0]
    found: list[Word] = []
    for name in re.split(r"[|\[]", here):
        if name.startswith("@") and current.startswith(f"{before}@"):
            return Answer([], "files", f"{before}@")
        kind = name.strip("]@…").partition("=")[0]
        if kind == "DIR":
            return Answer([], "dirs", before)
        if kind.startswith("FILE") and not name.startswith("@"):
            return Answer([], "files", before)
        source = _KINDS.get(f"--{action.dest}") or _KINDS.get(kind)
        found += [Word(kind)] if kind.islower() else source(words) if source else []
    if not here and action.type is Path:
        return Answer([], "dirs", before)
    if here == "MODEL" and current.startswith(f"{before}script:"):
        return Answer([], "files", f"{before}script:")
    return _fitting([Word(before + word.value, word.about) for word in found], current)


def _fitting(words: Sequence[Word], current: str) -> Answer:
    return Answer([word for word in words if word.value.startswith(current)])


def _runs(_: Sequence[str]) -> list[Word]:
    newest = Client.for_this_user().runs(limit=_MOST)
    runs = [Word(row.run, one_line(f"{row.status}: {row.title}", _TITLE)) for row in newest]
    return [*runs, Word("latest", "the newest of this folder")] if runs else []


def _run(words: Sequence[str]) -> str:
    """The run named before this word; `-` if there is none."""
    return Client.for_this_user().run(words[0]).run if words else "-"


def _steps(words: Sequence[str]) -> list[Word]:
    run, client = _run(words), Client.for_this_user()
    nodes = {step.step: step.node for step in client.steps(run) if not step.depth}
    return [Word(str(one.step), nodes.get(one.step, one.source)) for one in client.checkpoints(run)]


def _requests(words: Sequence[str]) -> list[Word]:
    waiting = [request.fields for request in Client.for_this_user().requests(_run(words))]
    rows = [(request_name(one), one["tool_name"], one["preview"]) for one in waiting]
    return [
        Word("all"),
        *(Word(name, one_line(f"{tool}: {preview}", _TITLE)) for name, tool, preview in rows),
    ]


def _workflows(_: Sequence[str]) -> list[Word]:
    files = [
        file for root in (Path.cwd(), Path.home()) for file in sorted((root / WORKFLOWS_FOLDER).glob("*.py"))
    ]
    own = {file.stem.replace("_", "-"): str(file) for file in files if not file.name.startswith("_")}
    installed = {point.name: point.value for point in find_entry_points(WORKFLOWS_GROUP)}
    return [Word(name, about) for name, about in {**installed, **own, **PIPELINES}.items()]


def _tools(_: Sequence[str]) -> list[Word]:
    from interlock.tools import NAMES

    return [Word(name) for name in sorted(NAMES)]


def _models(_: Sequence[str]) -> list[Word]:
    routed = Word("auto", "routed, per prompt")
    return [routed, *(Word(*one) for one in ALIASES.items()), Word("script:", "a file of replies")]


def _modes(_: Sequence[str]) -> list[Word]:
    from interlock.prompts import prompt_names

    return [Word(name.removeprefix("modes/")) for name in prompt_names() if name.startswith("modes/")]


def _calls(words: Sequence[str]) -> list[Word]:
    return [
        Word(str(number), call.tool)
        for number, call in enumerate(Client.for_this_user().calls(_run(words)), 1)
    ]


_KINDS: dict[str, Callable[[Sequence[str]], list[Word]]] = {
    "RUN": _runs,
    "STEP": _steps,
    "ID": _requests,
    "--call": _calls,
    "WORKFLOW": _workflows,
    "TOOL": _tools,
    "TOOLS": _tools,
    "MODEL": _models,
    "MODE": _modes,
}
"""An argument's placeholder, or a flag with a different set of values → the values that exist."""
