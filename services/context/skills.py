"""skills: the skills (`skills/NAME/SKILL.md`, agentskills.io) of the project and the user, and the tool that reads them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from interlock.services.context.definition_files import (
    LARGEST,
    SKILL,
    DefinitionFile,
    Loaded,
    Place,
    Row,
    describe_problem,
    list_definition_files,
    unused_fields_notes,
)
from interlock.services.context.front_matter import parse_front_matter, to_flag, to_list, to_text
from interlock.services.context.memory import resolve_readable_in_roots
from interlock.services.files.filesystem import UnreadableError, read_truncated_text
from interlock.state.calls import ToolError, ToolResult
from interlock.state.command import list_shell_lines
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Tool, ToolContext, restrict_field
from interlock.tools.control import ACTIVATE_SKILL, ActivateSkillArgs

SKILL_PLACES = tuple(
    Place(f"{folder}/skills", SKILL, deep=True, home=home)
    for folder, home in (
        *((".interlock", None), (".agents", None), (".gemini", None), (".claude", None), (".codex", None)),
        *((".github", ".copilot/skills"), (".cursor", None), (".cline", None), (".clinerules", "")),
        *((".opencode", ".config/opencode/skills"), (".roo", None), (".windsurf", "")),
    )
)
_MOST_FILES = 100
"""Maximum number of files listed per skill."""
_LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_024
"""Characters of a description that count (Agent Skills: the same)."""
_BUDGET = 8_000
"""Characters that the descriptions of all skills share (Codex: the same)."""
_SHORTEST = 40
"""Characters below which a description says too little to be listed."""
_MOST_NAMED = 300
"""Skills listed by their names alone."""
_FOUND = 20
"""Skills that a search returns."""
_OBEYED = {
    *("name", "description", "when_to_use", "when-to-use", "argument-hint", "arguments", "disallowed-tools"),
    *("disable-model-invocation", "user-invocable", "user-invokable", "paths", "globs", "allowed-tools"),
}
_INERT = {"license", "compatibility", "metadata", "version", "author", "icon", "color", "display-name", "tags"}
"""Fields that say something to people only."""


class Skill(NamedTuple):
    """The part of a skill that the model sees before activating it."""

    name: str
    """By which it is called: its own name, with the place before it if another skill has that name."""
    description: str
    folder: Path
    own_name: str = ""
    """By which it is called if no other has this name."""
    source: str = ""
    for_model: bool = True
    """Whether the model may call for it."""
    for_person: bool = True
    """Whether a person may call for it as `/name`."""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Patterns of the files for which it is listed; empty: always."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools of other programs' names that may not be called while it is followed."""
    allowed_tools: tuple[str, ...] = ()
    in_home: bool = False


def load_skills(root: Path, home: Path, trusted: bool, parents: Sequence[Path] = ()) -> Loaded[Skill]:
    """Load the skills of the project, if it is trusted, and of the user. Of one name all are listed, by names that tell
    them apart."""
    files = list_definition_files(SKILL_PLACES, root, home, trusted, parents)
    return build_loaded_skills(files, root)


def build_loaded_skills(files: Iterable[DefinitionFile], root: Path) -> Loaded[Skill]:
    """Read the skills of these files."""
    loaded = Loaded[Skill]()
    texts: dict[str, list[tuple[str, Path]]] = {}
    for file in files:
        try:
            text = file.read_text()
            skill, notes = read_skill(file, text)
        except (OSError, ValueError, OverflowError, TypeError, RecursionError) as error:
            problem = describe_problem(error)
            loaded.rows.append(Row(file, "", problem))
            if file.is_own:
                loaded.problems.append(f"{file.path} was ignored: {problem}.")
            continue
        same = texts.setdefault(skill.own_name, [])
        if copy := next((p for t, p in same if t == text and _has_same_files(p.parent, skill.folder)), None):
            loaded.rows.append(Row(file, "", f"the same as {copy}"))
            continue
        same.append((text, file.path))
        name = _choose_free_name(file, skill.own_name, root, loaded.by_name)
        loaded.by_name[name] = skill._replace(name=name)
        loaded.rows.append(Row(file, name, notes=tuple(notes)))
    return loaded


def _choose_free_name(file: DefinitionFile, own: str, root: Path, taken: Mapping[str, object]) -> str:
    """Return the skill's own name, or that with the place that tells it from those before it."""
    beside = file.path.parent.relative_to(file.top).parent.as_posix()
    nested = file.base.relative_to(root).as_posix() if file.base.is_relative_to(root) else ""
    where = f"~{file.program}" if file.in_home else file.program
    for prefix in (nested.strip("."), where, f"{where}/{beside}", str(file.path.parent)):
        if nested.strip(".") and prefix != nested:
            prefix = f"{nested}/{prefix}"
        name = f"{prefix}:{own}" if prefix else own
        if name not in taken:
            return name
    return str(file.path)


def _has_same_files(one: Path, other: Path) -> bool:
    """Return whether two folders hold files of the same names and sizes."""
    return [*_list_names_and_sizes(one)] == [*_list_names_and_sizes(other)]


def _list_names_and_sizes(folder: Path) -> Iterable[tuple[str, int]]:
    for name in _list_other_files(folder):
        try:
            yield name, (folder / name).stat().st_size
        except OSError:
            yield name, -1


def read_skill(file: DefinitionFile, text: str) -> tuple[Skill, list[str]]:
    """Return a skill of a text, and notes on what doesn't count of it. Raise `ValueError` if it is none."""
    fields, body, problem = parse_front_matter(text)
    notes = [problem] if problem else []
    folder = file.path.parent
    name = " ".join(to_text(fields.get("name")).split()) or folder.name
    if len(name) > _LONGEST_NAME:
        notes.append(f"its name is longer than {_LONGEST_NAME} characters: it is called {folder.name!r}")
        name = folder.name
    when = to_text(fields.get("when_to_use") or fields.get("when-to-use"))
    said = " ".join(f"{to_text(fields.get('description'))} {when}".split())
    description = said or first_paragraph(body)
    if not description:
        raise ValueError("it has no 'description' and no text")
    if len(description) > LONGEST_DESCRIPTION:
        notes.append(f"its description is cut after {LONGEST_DESCRIPTION:,} characters")
        description = shorten(description, LONGEST_DESCRIPTION)
    allowed = tuple(to_list(fields.get("allowed-tools"), separators=", \t\n"))
    if allowed:
        notes.append(f"allowed-tools grants nothing here: {', '.join(allowed)}")
    typed = next((fields[key] for key in ("user-invocable", "user-invokable") if key in fields), None)
    skill = Skill(
        name=replace_surrogates(name),
        description=replace_surrogates(description),
        folder=folder,
        own_name=replace_surrogates(name),
        source=str(file.path),
        for_model=to_flag(fields.get("disable-model-invocation")) is not True,
        for_person=to_flag(typed) is not False,
        argument_hint=to_text(fields.get("argument-hint")),
        argument_names=tuple(to_list(fields.get("arguments"), separators=", ")),
        paths=tuple(to_list(fields.get("paths") or fields.get("globs"))),
        disallowed_tools=tuple(to_list(fields.get("disallowed-tools"), separators=", \t\n")),
        allowed_tools=allowed,
        in_home=file.in_home,
    )
    return skill, [*notes, *unused_fields_notes(fields, _OBEYED | _INERT)]


def first_paragraph(body: str) -> str:
    """Return the first paragraph of a Markdown text that is no heading, on one line."""
    for block in body.replace("\r\n", "\n").split("\n\n"):
        lines = [line.strip() for line in block.split("\n") if not line.lstrip().startswith(("#", "<!--"))]
        if text := " ".join(filter(None, lines)):
            return text
    return ""


def shorten(text: str, most: int) -> str:
    """Return at most `most` characters of a text, cut between words, with an ellipsis."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut else cut}…"


def list_within_budget(described: Sequence[tuple[str, str]], budget: int) -> tuple[list[str], bool]:
    """Return a line for each name with its description, and whether some lack a part. Long descriptions are shortened
    first; if all would be too short to say anything, later ones are left out."""
    lengths = sorted(len(text) for _, text in described)
    most, left, rest = LONGEST_DESCRIPTION, budget, len(lengths)
    for length in lengths:
        if length * rest > left:
            most = left // rest
            break
        left, rest = left - length, rest - 1
    full = len(described) if most >= _SHORTEST else max(budget // _SHORTEST, 1)
    most = max(most, _SHORTEST)
    lines = [f"- {name}: {shorten(text, most)}" for name, text in described[:full]]
    lines += [f"- {name}" for name, _ in described[full : full + _MOST_NAMED]]
    if more := len(described) - full - _MOST_NAMED:
        lines += [f"- and {more} more"] if more > 0 else []
    return lines, full < len(described) or lengths[-1:] > [most]


def build_skill_tools(skills: Mapping[str, Skill]) -> dict[str, Tool]:
    """Build the tool that activates skills; its description lists those available."""
    offered = {name: skill for name, skill in skills.items() if skill.for_model}
    if not offered:
        return {}
    always = [(name, skill.description) for name, skill in offered.items() if not skill.paths]
    lines, is_cut = list_within_budget(always, _BUDGET)
    if rest := [skill for skill in offered.values() if skill.paths]:
        lines += [f"- {skill.name} (for {', '.join(skill.paths)})" for skill in rest]
    if is_cut or rest:
        lines.append("Not all descriptions are here whole: `search` finds a skill by any word of its description.")
    description = "\n".join([ACTIVATE_SKILL.description, "Skills:", *lines])
    args = restrict_field(ActivateSkillArgs, "name", ("", *offered), "no skill has this name")
    run = partial(_activate_skill, offered)
    return {ACTIVATE_SKILL.name: replace(ACTIVATE_SKILL, description=description, args=args, run=run)}


async def _activate_skill(skills: Mapping[str, Skill], args: ActivateSkillArgs, _: ToolContext) -> ToolResult:
    if not args.name:
        return ToolResult(status="success", content=find_skills_by_words(skills.values(), args.search or ""))
    skill = skills[args.name]
    text = read_skill_file(skill, args.file or SKILL)
    if args.file is None:
        text = f"{describe_skill_body(skill, text)}\n{describe_other_skill_files(skill.folder)}"
        if lines := list_shell_lines(text, "claude"):
            text += f"\n[It wants the output of these commands first; run them: {'; '.join(lines)}]"
    meta = {"summary": skill.name, **({"denied_tools": [*skill.disallowed_tools]} if skill.disallowed_tools else {})}
    return ToolResult(status="success", content=text, meta={**meta})


def find_skills_by_words(skills: Iterable[Skill], words: str) -> str:
    """Return the skills whose names and descriptions hold most of the words, one a line."""
    wanted = words.casefold().split()
    scored = [(sum(w in f"{s.name} {s.description}".casefold() for w in wanted), s) for s in skills]
    found = sorted((one for one in scored if one[0] or not wanted), key=lambda one: -one[0])
    lines = [f"- {skill.name}: {skill.description}" for _, skill in found[:_FOUND]]
    if len(found) > _FOUND:
        lines.append(f"… {len(found) - _FOUND} more; search with other words.")
    return "\n".join(lines) or f"No skill says {words!r}."


def read_skill_file(skill: Skill, name: str) -> str:
    """Return the text of a file in the skill's folder. Raise `ToolError` if it can't be read."""
    folder = Path(os.path.realpath(skill.folder))
    try:
        real, top = resolve_readable_in_roots(folder / name, [folder])
        return replace_surrogates(read_truncated_text(real, LARGEST, top))
    except UnreadableError as error:
        text = f"{name!r} of skill {skill.name!r} can't be read: {error}."
        raise ToolError("no_skill_file", text) from None


def describe_skill_body(skill: Skill, text: str) -> str:
    """Return the instructions of a skill's file, with its folder where they name it."""
    body = parse_front_matter(text).body.strip()
    return body.replace("${CLAUDE_SKILL_DIR}", os.path.realpath(skill.folder))


def describe_other_skill_files(folder: Path) -> str:
    """Return a note that names the other files of a skill; empty if it has none."""
    real = Path(os.path.realpath(folder))
    names = [*islice(_list_other_files(real), _MOST_FILES)]
    return f"\n[Other files of this skill, in {real}: {', '.join(names)}]" if names else ""


def _list_other_files(folder: Path) -> Iterable[str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SKILL)
    return (path.relative_to(folder).as_posix() for path in files)
