"""commands: custom commands (`/name`) of all programs, and skills, which a person calls in the same way."""

import tomllib
from collections.abc import Mapping
from typing import Any

from interlock.services.context.definition_files import (
    FILE_ERRORS,
    DefinitionFile,
    Folders,
    Loaded,
    describe_problem,
    find_definition_files,
    find_ignored_files,
    first_paragraph,
    load_definitions,
    note_unknown_fields,
    shorten,
)
from interlock.services.context.front_matter import parse_front_matter, to_list, to_text
from interlock.services.context.memory import UNTRUSTED
from interlock.services.context.skills import Skill, build_skill_command
from interlock.services.context.tool_names import read_tool_fields
from interlock.state.command import MOST_PIECES, split_template
from interlock.state.context import Commands, CustomCommand
from interlock.state.text import replace_surrogates

_LONGEST_DESCRIPTION = 200
"""Characters of a text's first paragraph that stand for a description."""


def load_commands(folders: Folders, skills: Mapping[str, Skill]) -> Commands:
    """Load custom commands: `git/commit.toml` becomes `/git:commit`. A skill comes before a command of its name."""
    loaded = load_command_files(folders)
    broken = {
        _derive_command_name(use.file): f"{use.file.path} was ignored: {use.problem}."
        for use in loaded.files
        if use.problem and _derive_command_name(use.file) not in loaded.by_name
    }
    usable, hidden = loaded.by_name, dict[str, str]()
    for skill in skills.values():
        name = skill.command_name
        if not skill.for_person:
            hidden[name] = f"only the model may call it (user-invocable in {skill.file.path})."
            continue
        try:
            usable[name] = _require_few_pieces(build_skill_command(skill))
        except FILE_ERRORS as error:
            broken[name] = f"{skill.file.path} was ignored: {describe_problem(error)}."
    other_names = {
        other: use.name for use in loaded.files if use.name for other in _list_other_names(use.file, use.name)
    }
    other_names |= {s.folder.name: s.command_name for s in skills.values() if s.name == s.own_name}
    other_names = {
        other: name for other, name in other_names.items() if other not in usable and name in usable
    }
    return Commands(usable, broken, _explain_untrusted_names(folders), hidden, other_names)


def load_command_files(folders: Folders) -> Loaded[CustomCommand]:
    """Load the commands that have files of their own."""
    return load_definitions(find_definition_files("commands", folders), _read_command)


def _explain_untrusted_names(folders: Folders) -> dict[str, str]:
    names = [(file.path.parent.name, file) for file in find_ignored_files("skills", folders)]
    names += [(_derive_command_name(file), file) for file in find_ignored_files("commands", folders)]
    return {name: f"{file.path} was ignored: {UNTRUSTED}." for name, file in names}


def _derive_command_name(file: DefinitionFile) -> str:
    path = file.path.relative_to(file.folder)
    stem = path.name.removesuffix(".prompt.md") if path.name.endswith(".prompt.md") else path.stem
    return ":".join("-".join(part.split()) for part in (*path.parent.parts, stem))


def _list_other_names(file: DefinitionFile, name: str) -> list[str]:
    """Return what else the program that it was written for takes for the command's name."""
    match file.row.program:
        case "Codex":
            return [f"prompts:{name}"]
        case "Cline" | "Windsurf":
            return [file.path.name]
        case _:
            return [
                name.rpartition(":")[2],
                *([_derive_command_name(file)] if _derive_command_name(file) != name else []),
            ]


def _read_command(file: DefinitionFile) -> tuple[str, CustomCommand, list[str]]:
    """Return name, command and notes on what doesn't count of it. Raise `ValueError` saying why it is none."""
    text = replace_surrogates(file.read_text())
    read = _read_toml_command if file.path.suffix == ".toml" else _read_markdown_command
    command, notes = read(file, text)
    return command.name, _require_few_pieces(command), notes


def _require_few_pieces(command: CustomCommand) -> CustomCommand:
    """Return the command. Raise `ValueError` if it inserts too many shell lines and files."""
    pieces = split_template(command.prompt, command.dialect)
    if (count := sum(piece.kind in ("shell", "file") for piece in pieces)) > MOST_PIECES:
        raise ValueError(f"it inserts {count} shell lines and files, expected at most {MOST_PIECES}")
    return command


def _read_toml_command(file: DefinitionFile, text: str) -> tuple[CustomCommand, list[str]]:
    values: Mapping[str, Any] = tomllib.loads(text)
    prompt, description = values.get("prompt"), values.get("description", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"'prompt' is {prompt!r}, expected the text of the prompt")
    if not isinstance(description, str):
        raise ValueError(f"'description' is {description!r}, expected a string")
    name = _derive_command_name(file)
    command = CustomCommand(name=name, prompt=prompt, description=description, source=str(file.path))
    return command, note_unknown_fields(values, file.row)


def _read_markdown_command(file: DefinitionFile, text: str) -> tuple[CustomCommand, list[str]]:
    fields, body, problem = parse_front_matter(text)
    if not body.strip():
        raise ValueError("it has no text")
    tools = read_tool_fields(fields, in_home=file.in_home)
    notes = [*([problem] if problem else []), *tools.notes]
    own = "-".join(to_text(fields.get("name")).split()) if "name" in file.row.fields else ""
    command = CustomCommand(
        name=own or _derive_command_name(file),
        prompt=body.strip(),
        description=" ".join(to_text(fields.get("description")).split())
        or shorten(first_paragraph(body), _LONGEST_DESCRIPTION),
        source=str(file.path),
        dialect=file.row.dialect,
        argument_hint=to_text(fields.get("argument-hint")),
        argument_names=tuple(to_list(fields.get("arguments"), separators=", ")),
        mode=to_text(fields.get("mode")) if "mode" in file.row.fields else "",
        denied_tools=tools.denied,
        allowed_tools=tools.allowed,
    )
    return command, [*notes, *note_unknown_fields(fields, file.row)]
