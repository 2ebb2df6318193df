"""skills: what users' files teach: skills, `skills/NAME/SKILL.md`, and commands, `commands/**/*.toml`.

Both of the user's folders and of a trusted project's.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from interlock.services.config.formats import front_matter
from interlock.services.config.settings import FOLDERS
from interlock.services.context.memory import checked
from interlock.services.files.filesystem import UnreadableError, read_text
from interlock.state.calls import ToolError, ToolResult
from interlock.state.context import CustomCommand
from interlock.state.text import clean
from interlock.state.tooling import Tool, ToolContext, naming
from interlock.tools import activate_skill

NAME = "SKILL.md"
_LARGEST = 256_000
"""Bytes of a file that a model is given."""
_MOST = 100
"""Files of a skill that are listed."""
_DESCRIPTION = 1024
"""Characters (Agent Skills: the same)."""


class Skill(NamedTuple):
    """What a model is told of it before it asks."""

    name: str
    description: str
    folder: Path


def skill_files(base: Path) -> list[Path]:
    """Of one home or project, the folder that counts more last."""
    return [file for folder in FOLDERS for file in sorted((base / folder / "skills").glob(f"*/{NAME}"))]


def load_skills(root: Path, home: Path, trusted: bool) -> tuple[dict[str, Skill], list[str]]:
    """Name → skill, and one line for each file that can't be used. Later folders win: the project's over the user's."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for base in (home, root) if trusted else (home,):
        for file in skill_files(base):
            try:
                skill = _read(file)
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{file} was ignored: {' '.join(str(error).split())}")
            else:
                found[skill.name] = skill
    return found, problems


def _read(file: Path) -> Skill:
    """Raises `ValueError` saying what is wrong."""
    if file.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    front, _ = front_matter(file.read_text(encoding="utf-8-sig"))
    name, description = front.get("name", file.parent.name), front.get("description")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"'name' is {name!r}, expected a text")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _DESCRIPTION:
        raise ValueError(f"'description' is missing, or no text of at most {_DESCRIPTION} characters")
    return Skill(clean(name.strip()), clean(" ".join(description.split())), file.parent)


def skill_tools(skills: Mapping[str, Skill]) -> dict[str, Tool]:
    """The tool that reads them, naming those there are."""
    if not skills:
        return {}
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills.values())
    description = f"{activate_skill.TOOL.description}\nSkills:\n{listed}"
    run = partial(_run, skills)
    args = naming(activate_skill.ActivateSkillArgs, "name", tuple(skills), "no skill has this name")
    return {
        activate_skill.TOOL.name: replace(activate_skill.TOOL, description=description, args=args, run=run)
    }


async def _run(
    skills: Mapping[str, Skill], args: activate_skill.ActivateSkillArgs, _: ToolContext
) -> ToolResult:
    skill = skills[args.name]
    folder, name = Path(os.path.realpath(skill.folder)), args.file or NAME
    try:
        real, top = checked(folder / name, [folder])
        text = clean(read_text(real, _LARGEST, top))
    except UnreadableError as error:
        raise ToolError(
            "no_skill_file", f"{name!r} of skill {skill.name!r} can't be read: {error}."
        ) from None
    if args.file is None:
        text = f"{front_matter(text)[1].strip()}\n{_others(folder)}"
    return ToolResult(status="success", content=text, meta={"summary": skill.name})


def _others(folder: Path) -> str:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != NAME)
    names = [path.relative_to(folder).as_posix() for path in islice(files, _MOST)]
    return f"\n[Other files of this skill, in {folder}: {', '.join(names)}]" if names else ""


def command_files(base: Path) -> list[Path]:
    """Of one home or project, the folder that counts more last."""
    found = [base / folder / "commands" for folder in FOLDERS]
    return [path for folder in found for path in sorted(folder.rglob("*.toml")) if path.is_file()]


def load_commands(root: Path, home: Path, trusted: bool) -> tuple[dict[str, CustomCommand], list[str]]:
    """Name → command, and one line for each file that can't be used. Later folders win: the project's over the user's.

    `git/commit.toml` is `/git:commit`.
    """
    found: dict[str, CustomCommand] = {}
    problems: list[str] = []
    for base in (home, root) if trusted else (home,):
        for path in command_files(base):
            name = _command_name(path, base)
            try:
                found[name] = _read_command(path, name)
            except (OSError, ValueError, RecursionError) as error:
                problems.append(f"{path} was ignored: {' '.join(str(error).split())}")
    return found, problems


def _command_name(path: Path, base: Path) -> str:
    below = path.relative_to(base).parts[2:]
    return ":".join((*below[:-1], path.stem))


def _read_command(path: Path, name: str) -> CustomCommand:
    """Raises `ValueError` saying what is wrong."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    values: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    prompt, description = values.get("prompt"), values.get("description", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"'prompt' is {prompt!r}, expected the text of the prompt")
    if not isinstance(description, str):
        raise ValueError(f"'description' is {description!r}, expected a text")
    return CustomCommand(name, prompt, description, str(path))
