"""skills: the skills (agentskills.io) of the project and the user, and the tools that read and find them."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, JsonValue, create_model

from interlock.services.context.definition_files import (
    FILE_ERRORS,
    LARGEST,
    DefinitionFile,
    FileUse,
    Folders,
    Loaded,
    describe_problem,
    find_definition_files,
    first_paragraph,
    list_within_budget,
    note_unknown_fields,
    shorten,
)
from interlock.services.context.front_matter import parse_front_matter, to_flag, to_list, to_text
from interlock.services.context.imports import resolve_readable_in_roots
from interlock.services.context.rule_conditions import matches_patterns
from interlock.services.context.tool_names import read_tool_fields
from interlock.services.files.agent_files import find_agent_files
from interlock.services.files.filesystem import read_truncated_text
from interlock.services.files.protected import resolve_links, to_absolute_path
from interlock.state.calls import ToolError, ToolResult
from interlock.state.command import list_shell_lines
from interlock.state.context import CustomCommand
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Tool, ToolContext
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.control import ACTIVATE_SKILL, FIND_SKILLS, ActivateSkillArgs, FindSkillsArgs

SKILL = "SKILL.md"
_MOST_FILES = 100
"""Maximum number of files listed per skill."""
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1_024
"""Characters of a description that count (Agent Skills: the same)."""
_BUDGET = 8_000
"""Characters that the descriptions of all skills share (Codex: the same)."""
_FOUND = 20
"""Skills that a search returns."""


class Skill(NamedTuple):
    """The part of a skill that the model sees before activating it."""

    name: str
    """By which it is called: its own name, with the place before it if another skill has that name."""
    description: str
    file: DefinitionFile
    own_name: str = ""
    """By which it is called if no other has this name."""
    for_model: bool = True
    """Whether the model may call for it."""
    for_person: bool = True
    """Whether a person may call for it as `/name`."""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    """Patterns of the files that it is for: it is listed once a call reads or edits one. Empty: it is listed always."""
    denied_tools: tuple[str, ...] = ()
    """Tools that may not be called until the next prompt."""
    allowed_tools: tuple[str, ...] = ()
    """What the user's own skill allows without asking until the next prompt, in Claude Code's words."""

    @property
    def folder(self) -> Path:
        """Its folder, which holds its other files."""
        return self.file.path.parent

    @property
    def command_name(self) -> str:
        """The name by which a person calls it, behind the slash."""
        return "-".join(self.name.split())


def load_skills(folders: Folders) -> Loaded[Skill]:
    """Load the skills of the project, if it is trusted, and of the user. All of one name are listed, by names that tell
    them apart."""
    return load_skills_of_files(find_definition_files("skills", folders), folders.root)


def load_skills_of_files(files: Iterable[DefinitionFile], root: Path) -> Loaded[Skill]:
    """Read the skills of these files. `root`: the folder below which nested ones are named by theirs."""
    loaded = Loaded[Skill]()
    texts: dict[str, list[tuple[str, Path]]] = {}
    folders: set[Path] = set()
    for file in files:
        if not folders.isdisjoint(file.path.parent.parents):  # a file of another skill
            continue
        try:
            text = file.read_text()
            skill, notes = read_skill(file, text)
        except FILE_ERRORS as error:
            loaded.files.append(FileUse(file, "", describe_problem(error)))
            continue
        folders.add(file.path.parent)
        same = texts.setdefault(skill.own_name, [])
        if copy := next((p for t, p in same if t == text and _has_same_files(p.parent, skill.folder)), None):
            loaded.files.append(FileUse(file, "", f"the same as {copy}"))
            continue
        same.append((text, file.path))
        name = _choose_free_name(file, skill.own_name, root, loaded.by_name)
        loaded.by_name[name] = skill._replace(name=name)
        loaded.files.append(FileUse(file, name, notes=tuple(notes)))
    return loaded


def load_nested_skills(root: Path, folder: Path) -> Loaded[Skill]:
    """Load the skills of a folder below a root, which count for what a run does there."""
    files = (DefinitionFile(path, folder, row, False) for row, path in find_agent_files("skills", folder))
    return load_skills_of_files(files, root)


def find_nested_skill(root: Path, name: str) -> Skill | None:
    """Return the skill of a folder below a root that is called by this name: `apps/web:deploy`."""
    place = PurePath(name.partition(":")[0])
    if ":" not in name or place.is_absolute() or ".." in place.parts:
        return None
    for folder in [below for below in (place, *place.parents) if below.parts]:
        if found := load_nested_skills(root, root / folder).by_name.get(name):
            return found if found.for_model else None
    return None


def list_files_below_root(paths: Iterable[str], workspace: Workspace) -> list[Path]:
    """Return those of some files that lie in a workspace and that tools may read, by their real paths, each once."""
    root, found = workspace.root, dict[Path, None]()
    for path in paths:
        try:
            real = resolve_links(to_absolute_path(path, root))
            if real.is_relative_to(root) and workspace.resolve_readable(path) == real:
                found[real] = None
        except PathRefused:
            continue
    return [*found]


def list_folders_below_root(paths: Iterable[str], workspace: Workspace) -> list[Path]:
    """Return the folders between a workspace and some files of it that tools may read, each once."""
    root, found = workspace.root, dict[Path, None]()
    for file in list_files_below_root(paths, workspace):
        below = [root / folder for folder in file.relative_to(root).parents if folder.parts]
        found |= dict.fromkeys(reversed(below))
    return [*found]


def describe_nested_skills(root: Path, folder: Path) -> str:
    """Return the skills of a folder below a root, a line each with its file; empty if it has none."""
    found = [skill for skill in load_nested_skills(root, folder).by_name.values() if skill.for_model]
    described = [(f"{s.name} ({s.file.path.relative_to(root)})", s.description) for s in found]
    return "\n".join(list_within_budget(described, _BUDGET, _LONGEST_DESCRIPTION)[0])


def find_skills_for_files(skills: Iterable[Skill], paths: Iterable[str], workspace: Workspace) -> list[Skill]:
    """Return the skills that are for some files of a workspace (`paths`), if calls that name such files may read
    them."""
    limited = [skill for skill in skills if skill.for_model and skill.paths]
    files = list_files_below_root(paths, workspace) if limited else []
    names = [file.relative_to(workspace.root).as_posix() for file in files]
    return [
        skill for skill in limited if any(matches_patterns(name, skill.paths, "anywhere") for name in names)
    ]


def _choose_free_name(file: DefinitionFile, own: str, root: Path, taken: Mapping[str, object]) -> str:
    """Return the skill's own name, or that with the place that tells it from those before it."""
    nested = (
        ""
        if file.base == root or not file.base.is_relative_to(root)
        else file.base.relative_to(root).as_posix()
    )
    program = f"~{file.program}" if file.in_home else file.program
    beside = file.path.parent.relative_to(file.folder).parent.as_posix()
    near = f"{nested}/{program}".lstrip("/")
    ways = [nested, near, f"{near}/{beside}", str(file.path.parent)]
    return next(name for way in ways if (name := f"{way}:{own}".lstrip(":")) not in taken)


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
    folder_name = file.path.parent.name
    name = " ".join(to_text(fields.get("name")).split()) or folder_name
    if len(name) > _LONGEST_NAME:
        notes.append(f"its name is longer than {_LONGEST_NAME} characters: it is called {folder_name!r}")
        name = folder_name
    when = to_text(fields.get("when_to_use") or fields.get("when-to-use"))
    said = " ".join(f"{to_text(fields.get('description'))} {when}".split())
    description = said or first_paragraph(body)
    if not description:
        raise ValueError("; ".join(["it has no 'description' and no text", *notes]))
    if len(description) > _LONGEST_DESCRIPTION:
        notes.append(f"its description is cut after {_LONGEST_DESCRIPTION:,} characters")
        description = shorten(description, _LONGEST_DESCRIPTION)
    tools = read_tool_fields(fields, in_home=file.in_home)
    notes += tools.notes
    typed = next((fields[key] for key in ("user-invocable", "user-invokable") if key in fields), None)
    skill = Skill(
        name=replace_surrogates(name),
        description=replace_surrogates(description),
        file=file,
        own_name=replace_surrogates(name),
        for_model=to_flag(fields.get("disable-model-invocation")) is not True,
        for_person=to_flag(typed) is not False,
        argument_hint=to_text(fields.get("argument-hint")),
        argument_names=tuple(to_list(fields.get("arguments"), separators=", ")),
        paths=tuple(to_list(fields.get("paths") or fields.get("globs"))),
        denied_tools=tools.denied,
        allowed_tools=tools.allowed,
    )
    return skill, [*notes, *note_unknown_fields(fields, file.row)]


def build_skill_tools(skills: Mapping[str, Skill], root: Path | None = None) -> dict[str, Tool]:
    """Build the tool that activates skills, and one that finds those of which its description says too little.

    `root`: a trusted workspace, whose nested skills may be activated, too."""
    offered = {name: skill for name, skill in skills.items() if skill.for_model}
    if not offered:
        return {}
    described = [(name, skill.description) for name, skill in offered.items() if not skill.paths]
    lines, is_cut = list_within_budget(described, _BUDGET, _LONGEST_DESCRIPTION)
    if len(described) < len(offered):
        lines.append("Others are for some files, and are named once you read or edit one.")
    if is_cut:
        lines.append(f"Some descriptions are cut or left out: `{FIND_SKILLS.name}` shows them whole.")
    description = "\n".join([ACTIVATE_SKILL.description, "Skills:", *lines])
    find = partial(_find_skill, offered, root)
    args = _restrict_names(offered, find)
    activate = partial(_activate_skill, find)
    tools = {ACTIVATE_SKILL.name: replace(ACTIVATE_SKILL, description=description, args=args, run=activate)}
    if is_cut:
        tools[FIND_SKILLS.name] = replace(FIND_SKILLS, run=partial(_find_skills, offered))
    return tools


def _find_skill(skills: Mapping[str, Skill], root: Path | None, name: str) -> Skill | None:
    return skills.get(name) or (find_nested_skill(root, name) if root else None)


def _restrict_names(skills: Collection[str], find: Callable[[str], Skill | None]) -> type[ActivateSkillArgs]:
    """Return the arguments of a call, with a name that some skill has: the tool's description lists them."""

    def require_skill(name: str) -> str:
        if find(name) is None:
            raise ValueError(f"no skill has this name; there are {', '.join(skills)}")
        return name

    named = Field(description=ActivateSkillArgs.model_fields["name"].description)
    fields: Any = {"name": (Annotated[str, AfterValidator(require_skill)], named)}
    return create_model("ActivateSkillArgs", __base__=ActivateSkillArgs, **fields)


async def _activate_skill(
    find: Callable[[str], Skill | None], args: ActivateSkillArgs, _: ToolContext
) -> ToolResult:
    skill = find(args.name)
    if skill is None:
        raise ToolError("no_skill", f"No skill {args.name!r}.")
    text = _read_skill_file(skill, args.file or SKILL)
    if args.file is None:
        text = _fill_skill_folder(skill, text)
        lines = list_shell_lines(text, "claude")
        text += f"\n{describe_other_skill_files(skill.folder)}"
        if lines:
            text += f"\n[It wants the output of these commands first; run them: {'; '.join(lines)}]"
    meta: dict[str, JsonValue] = {"summary": skill.name}
    for key, tools in (("denied_tools", skill.denied_tools), ("allowed_tools", skill.allowed_tools)):
        if tools:
            meta[key] = [*tools]
    return ToolResult(status="success", content=text, meta=meta)


async def _find_skills(skills: Mapping[str, Skill], args: FindSkillsArgs, _: ToolContext) -> ToolResult:
    return ToolResult(
        status="success",
        content=find_skills_by_words(skills.values(), args.words),
        meta={"summary": args.words},
    )


def find_skills_by_words(skills: Iterable[Skill], words: str) -> str:
    """Return the skills whose names and descriptions hold most of the words, one a line."""
    wanted = words.casefold().split()
    scored = [(sum(w in f"{s.name} {s.description}".casefold() for w in wanted), s) for s in skills]
    found = sorted((one for one in scored if one[0] or not wanted), key=lambda one: -one[0])
    lines = [f"- {skill.name}: {skill.description}" for _, skill in found[:_FOUND]]
    if len(found) > _FOUND:
        lines.append(f"… {len(found) - _FOUND} more; search with other words.")
    return "\n".join(lines) or f"No skill says {words!r}."


def _read_skill_file(skill: Skill, name: str) -> str:
    """Return the text of a file in the skill's folder. Raise `ToolError` if it can't be read."""
    folder = Path(os.path.realpath(skill.folder))
    try:
        if name == SKILL:
            return replace_surrogates(skill.file.read_text())
        real, top = resolve_readable_in_roots(folder / name, [folder])
        return replace_surrogates(read_truncated_text(real, LARGEST, top))
    except FILE_ERRORS as error:
        text = f"{name!r} of skill {skill.name!r}: {describe_problem(error)}."
        raise ToolError("no_skill_file", text) from None


def _fill_skill_folder(skill: Skill, text: str) -> str:
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


def build_skill_command(skill: Skill) -> CustomCommand:
    """Return a skill as a person calls it: `/name` puts its text into the prompt. Raise one of `FILE_ERRORS`."""
    return CustomCommand(
        name=skill.command_name,
        prompt=parse_front_matter(replace_surrogates(skill.file.read_text())).body.strip(),
        appendix=replace_surrogates(describe_other_skill_files(skill.folder)),
        description=skill.description,
        source=str(skill.file.path),
        dialect="claude",
        argument_hint=skill.argument_hint,
        argument_names=skill.argument_names,
        denied_tools=skill.denied_tools,
        allowed_tools=skill.allowed_tools,
        skill_folder=os.path.realpath(skill.folder),
    )
