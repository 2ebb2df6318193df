"""prompts: loads prompt files: TOML front matter between `+++` lines, then Markdown with `{{slot}}`s.

A file has one body, or the two parts `# System` and `# User`. Slots hold no logic: the code that asks decides what
to include, a section a file.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

from interlock.state.errors import SetupError

_FRONT = re.compile(r"\A\+\+\+\n(.*?)^\+\+\+\n", re.DOTALL | re.MULTILINE)
_SLOT = re.compile(r"\{\{(\w+)\}\}")
_PARTS = re.compile(r"\A# System\n(.*?)^# User\n(.*)\Z", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)?")
_KEYS = {"purpose", "inputs"}


@dataclass(frozen=True)
class Prompt:
    """One prompt file. `system` is None when the file has one body, which is then `user`."""

    name: str
    purpose: str
    inputs: frozenset[str]
    user: str
    system: str | None = None

    def render(self, **values: str) -> str:
        """Return the body with its slots filled. Raises `SetupError` for missing and extra inputs."""
        if self.system is not None:
            raise SetupError(f"Prompt {self.name!r} has the parts System and User; use parts(), not text().")
        return self._fill_slots(self.user, values)

    def render_system_and_user(self, **values: str) -> tuple[str, str]:
        """(system, user) with their slots filled. Raises `SetupError` for missing and extra inputs."""
        if self.system is None:
            raise SetupError(f"Prompt {self.name!r} has one body; use text(), not parts().")
        return self._fill_slots(self.system, values), self._fill_slots(self.user, values)

    def _fill_slots(self, text: str, values: Mapping[str, str]) -> str:
        if self.inputs.symmetric_difference(values):
            raise SetupError(
                f"Prompt {self.name!r} needs inputs {sorted(self.inputs)}, got {sorted(values)}."
            )
        # One pass, by a function: a value that holds {{x}} or \1 stays as it is.
        return _SLOT.sub(lambda match: values[match[1]], text)


def parse_prompt(name: str, source: str) -> Prompt:
    """Return a prompt from its file's text. Raises `SetupError` naming what is wrong with it."""
    source = source.replace("\r\n", "\n")
    front = _FRONT.match(source)
    if front is None:
        _raise_malformed(name, "expected TOML front matter between two lines '+++' at the top")
    purpose, inputs = _parse_front_matter(name, front[1])
    body = source[front.end() :].strip() + "\n"
    used = set(_SLOT.findall(body))
    if used != inputs:
        _raise_malformed(name, f"front matter declares inputs {sorted(inputs)}, the text uses {sorted(used)}")
    parts = _PARTS.match(body)
    if parts is None:
        return Prompt(name, purpose, frozenset(inputs), body.strip())
    return Prompt(name, purpose, frozenset(inputs), user=parts[2].strip(), system=parts[1].strip())


@cache
def load_prompt(name: str) -> Prompt:
    """The shipped prompt `name`, e.g. `main/preamble`. Raises `SetupError` if there is none or it is malformed."""
    if not _NAME.fullmatch(name):
        raise SetupError(f"Prompt name {name!r} is not of the form folder/name in lower case.")
    try:
        source = files(__name__).joinpath(*f"{name}.md".split("/")).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SetupError(f"No prompt {name!r}; there are {', '.join(list_prompt_names())}.") from None
    return parse_prompt(name, source)


def render_prompt(name: str, **values: str) -> str:
    """Return the shipped one-body prompt `name` with its slots filled."""
    return load_prompt(name).render(**values)


def hash_prompts(folder: str) -> str:
    """Of the texts of a folder's prompts: another one where a word of them is."""
    found = (load_prompt(name) for name in list_prompt_names() if name.startswith(f"{folder}/"))
    texts = ((prompt.name, prompt.system, prompt.user) for prompt in found)
    return hashlib.sha256(repr([*texts]).encode()).hexdigest()[:16]


def list_prompt_names() -> list[str]:
    """Return names of all shipped prompts, sorted."""
    found: list[str] = []
    for entry in files(__name__).iterdir():
        if entry.is_dir():
            found += [f"{entry.name}/{e.name}" for e in entry.iterdir() if e.name.endswith(".md")]
        elif entry.name.endswith(".md"):
            found.append(entry.name)
    return sorted(name.removesuffix(".md") for name in found)


def _parse_front_matter(name: str, source: str) -> tuple[str, set[str]]:
    try:
        front: dict[str, Any] = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        _raise_malformed(name, f"front matter isn't TOML: {error}")
    if front.keys() != _KEYS:
        _raise_malformed(name, f"front matter needs the keys {sorted(_KEYS)}, has {sorted(front)}")
    purpose, inputs = front["purpose"], front["inputs"]
    if not isinstance(purpose, str) or not purpose.strip():
        _raise_malformed(name, f"purpose is {purpose!r}, expected one sentence")
    if not isinstance(inputs, list) or not all(isinstance(i, str) for i in inputs):  # pyright: ignore[reportUnknownVariableType]
        _raise_malformed(name, f"inputs is {inputs!r}, expected a list of slot names")
    return purpose, set(inputs)  # pyright: ignore[reportUnknownArgumentType]


def _raise_malformed(name: str, problem: str) -> NoReturn:
    raise SetupError(f"Prompt {name!r}: {problem}.")
