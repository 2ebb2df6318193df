"""definitions: sub-agents (`agents/NAME.md`), skills (`skills/NAME/SKILL.md`) and commands (`commands/**/*.toml`) that
users define in files; the tools that expose them; and an inventory of all files that configure agents."""

import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, JsonValue, ValidationError

from interlock.services.config.formats import parse_yaml, split_front_matter
from interlock.services.config.settings import FOLDERS
from interlock.services.context.imports import resolve_readable_in_roots
from interlock.services.context.instructions import FoundFile, describe_instructions, describe_unknown_mode
from interlock.services.files.filesystem import UnreadableError, read_truncated_text
from interlock.services.files.stamps import glob_paths, record_read
from interlock.state.calls import ToolError, ToolResult
from interlock.state.command import MOST_PIECES, split_template
from interlock.state.context import Commands, CustomCommand
from interlock.state.names import ELSEWHERE
from interlock.state.settings import ContextSettings
from interlock.state.subagent import BUILT_IN, INVESTIGATOR, AgentDefinition, Report
from interlock.state.text import (
    did_you_mean,
    first_validation_error,
    replace_surrogates,
    schema_violation,
)
from interlock.state.tooling import Tool, ToolContext, restrict_field
from interlock.tools.control import (
    ACTIVATE_SKILL,
    CODEBASE_INVESTIGATOR,
    COMPLETE_TASK,
    INVOKE_AGENT,
    ActivateSkillArgs,
    InvokeAgentArgs,
)
from interlock.tools.table import ALIASES, TASK_LOOP, TOOLS

T = TypeVar("T")
AGENT_TOOLS = ("invoke_agent", "codebase_investigator")
PLAN_TOOLS = ("enter_plan_mode", "exit_plan_mode")
ONLY_AGENTS = ("complete_task", "update_scratchpad")
"""Available to sub-agents only."""


def build_agent_tools(definitions: Mapping[str, AgentDefinition]) -> dict[str, Tool]:
    """Build the tools that start agents; their descriptions list the agents available."""
    if not definitions:
        return {}
    listed = "\n".join(f"- {d.name}: {d.description}{_describe_inputs(d)}" for d in definitions.values())
    tools = {
        "invoke_agent": replace(
            INVOKE_AGENT,
            description=f"{INVOKE_AGENT.description}\nAgents:\n{listed}",
            args=restrict_field(InvokeAgentArgs, "agent_name", tuple(definitions), "no agent has this name"),
        )
    }
    if INVESTIGATOR in definitions:
        tools[INVESTIGATOR] = CODEBASE_INVESTIGATOR
    return tools


def _describe_inputs(definition: AgentDefinition) -> str:
    properties = (definition.input_schema or {}).get("properties")
    return f" Inputs: {', '.join(properties)}." if isinstance(properties, dict) else ""


def select_agent_tools(definition: AgentDefinition, tools: Mapping[str, Tool], depth: int) -> dict[str, Tool]:
    """Return the tools a sub-agent may call; at depth 0 it can't start agents."""
    never = {"ask_user", *PLAN_TOOLS, *(() if depth > 0 else AGENT_TOOLS)}
    if definition.tools is None:
        chosen: Sequence[str] = [
            n for n in tools if n not in (*AGENT_TOOLS, *ONLY_AGENTS, *TASK_LOOP, *never)
        ]
    else:
        wanted = {n if n in tools else ALIASES.get(n, n) for n in definition.tools}
        chosen = [n for n in tools if n in wanted and n not in never]
    end, schema = COMPLETE_TASK, definition.output_schema
    end = end if schema is None else replace(end, args=_build_report_args_model(schema))
    return {**{name: tools[name] for name in chosen}, "complete_task": end}


def can_call_server_tool(definition: AgentDefinition, name: str) -> bool:
    """Return whether a sub-agent may call this MCP server tool: it may call all tools, or lists this one or its
    server."""
    named = definition.tools
    return named is None or any(
        n == name or (n.startswith("mcp_") and n.endswith("_*") and name.startswith(n[:-1])) for n in named
    )


def _build_report_args_model(schema: Mapping[str, JsonValue]) -> type[BaseModel]:
    """Build an argument model `{report}` validated against a JSON Schema and declared to the model with it."""

    def validate_report(report: Any) -> Any:
        if wrong := schema_violation(schema, report):
            raise ValueError(wrong)
        return report

    class CompleteTaskArgs(BaseModel, extra="forbid"):
        report: Annotated[Any, AfterValidator(validate_report)]

        @classmethod
        def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            whole = {"type": "object", "properties": {"report": inner}, "required": ["report"]}
            return {**whole, "$defs": schema.get("$defs", {})}

    return CompleteTaskArgs


_NAMES = {
    "timeout_mins": "max_time_minutes",
    "timeoutMins": "max_time_minutes",
    "maxTurns": "max_turns",
    "maxTimeMinutes": "max_time_minutes",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
}
"""Alternative spellings → ours; the first is gemini-cli's."""
_UNUSED = {"kind", "display_name", "color"}
"""Keys of gemini-cli and Claude Code that have no meaning here."""
_LARGEST = 256_000
"""Maximum file size in bytes."""
Loaded = tuple[dict[str, T], list[str]]
"""Definitions by name, and one line per unusable file."""


def _load_definitions(
    list_files: Callable[[Path], Iterable[Path]],
    read_definition: Callable[[Path, Path], tuple[str, T]],
    root: Path,
    home: Path,
    trusted: bool,
) -> tuple[dict[str, T], dict[tuple[Path, Path], str]]:
    """Load the user's files, then a trusted project's, which win. `read_definition` takes a file and its home or
    project, by which problems are named, too."""
    found: dict[str, T] = {}
    problems: dict[tuple[Path, Path], str] = {}
    for base in (home, root) if trusted else (home,):
        for path in list_files(base):
            record_read(path)
            try:
                info = path.stat()
                if not S_ISREG(info.st_mode):
                    raise ValueError("it isn't a regular file")
                if info.st_size > _LARGEST:
                    raise ValueError(f"it is larger than {_LARGEST} bytes")
                name, definition = read_definition(path, base)
            except (OSError, ValueError, OverflowError, TypeError, RecursionError) as error:
                problems[path, base] = f"{path} was ignored: {_describe_error(error)}"
            else:
                found[name] = definition
    return found, problems


def _describe_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        place, what = first_validation_error(error)
        return f"{place!r}: {what}; it knows {', '.join(AgentDefinition.model_fields)}."
    return f"{' '.join(str(error).split())}."


def _list_files_in_settings_folders(pattern: str, base: Path) -> list[Path]:
    """List matching files of one home or project, in ascending precedence."""
    return [path for folder in FOLDERS for path in glob_paths(base / folder, pattern)]


def load_agents(root: Path, home: Path, trusted: bool) -> Loaded[AgentDefinition]:
    """Load agents; users' definitions override the built-in ones."""
    found, broken = _load_definitions(
        partial(_list_files_in_settings_folders, "agents/*.md"), _read_agent, root, home, trusted
    )
    problems = [*broken.values()]
    for name, agent in found.items():
        odd = [
            t
            for t in agent.tools or ()
            if t not in {*TOOLS, *ALIASES, *ELSEWHERE} and not t.startswith("mcp_")
        ]
        problems += [
            f"{agent.source}: agent {name!r} names {t!r}, no tool here.{did_you_mean(t, [*TOOLS])}"
            for t in odd
        ]
    return {**_load_builtin_agents(), **found}, problems


@cache
def _load_builtin_agents() -> Mapping[str, AgentDefinition]:
    found: dict[str, AgentDefinition] = {}
    for path in sorted(Path(__file__).parent.glob("*.md")):
        definition = _read_agent_definition(path, tomllib.loads).model_copy(update={"source": BUILT_IN})
        if definition.name == INVESTIGATOR:
            definition = definition.model_copy(update={"output_schema": Report.model_json_schema()})
        found[definition.name] = definition
    return found


def _read_agent(path: Path, _: Path) -> tuple[str, AgentDefinition]:
    definition = _read_agent_definition(path)
    return definition.name, definition


def _read_agent_definition(path: Path, parse: Callable[[str], object] = parse_yaml) -> AgentDefinition:
    """Raises `ValueError` saying what is wrong."""
    front, body = split_front_matter(path.read_text(encoding="utf-8"), parse)
    fields = {_NAMES.get(key, key): value for key, value in front.items() if key not in _UNUSED}
    fields.setdefault("name", path.stem)
    if fields.get("tools") in ("*", ["*"]):
        del fields["tools"]
    if isinstance(tools := fields.get("tools"), str):  # Claude Code's spelling
        fields["tools"] = [name.strip() for name in tools.split(",") if name.strip()]
    return AgentDefinition.model_validate({**fields, "system_prompt": body.strip(), "source": str(path)})


NAME = "SKILL.md"
_MOST = 100
"""Maximum number of files listed per skill."""
_DESCRIPTION = 1024
"""Maximum characters (Agent Skills: the same)."""


class Skill(NamedTuple):
    """The part of a skill that the model sees before activating it."""

    name: str
    description: str
    folder: Path


def load_skills(root: Path, home: Path, trusted: bool) -> Loaded[Skill]:
    found, broken = _load_definitions(
        partial(_list_files_in_settings_folders, f"skills/*/{NAME}"), _read_skill, root, home, trusted
    )
    return found, [*broken.values()]


def _read_skill(file: Path, _: Path) -> tuple[str, Skill]:
    front, _rest = split_front_matter(file.read_text(encoding="utf-8-sig"))
    name, description = front.get("name", file.parent.name), front.get("description")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"'name' is {name!r}, expected a string")
    if not isinstance(description, str) or not 0 < len(description.strip()) <= _DESCRIPTION:
        raise ValueError(f"'description' is missing, or no text of at most {_DESCRIPTION} characters")
    skill = Skill(
        replace_surrogates(name.strip()), replace_surrogates(" ".join(description.split())), file.parent
    )
    return skill.name, skill


def build_skill_tools(skills: Mapping[str, Skill]) -> dict[str, Tool]:
    """Build the tool that activates skills; its description lists those available."""
    if not skills:
        return {}
    listed = "\n".join(f"- {skill.name}: {skill.description}" for skill in skills.values())
    description = f"{ACTIVATE_SKILL.description}\nSkills:\n{listed}"
    run = partial(_activate_skill, skills)
    args = restrict_field(ActivateSkillArgs, "name", tuple(skills), "no skill has this name")
    return {ACTIVATE_SKILL.name: replace(ACTIVATE_SKILL, description=description, args=args, run=run)}


async def _activate_skill(skills: Mapping[str, Skill], args: ActivateSkillArgs, _: ToolContext) -> ToolResult:
    skill = skills[args.name]
    folder, name = Path(os.path.realpath(skill.folder)), args.file or NAME
    try:
        real, top = resolve_readable_in_roots(folder / name, [folder])
        text = replace_surrogates(read_truncated_text(real, _LARGEST, top))
    except UnreadableError as error:
        raise ToolError(
            "no_skill_file", f"{name!r} of skill {skill.name!r} can't be read: {error}."
        ) from None
    if args.file is None:
        text = f"{split_front_matter(text)[1].strip()}\n{_describe_other_skill_files(folder)}"
    return ToolResult(status="success", content=text, meta={"summary": skill.name})


def _describe_other_skill_files(folder: Path) -> str:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != NAME)
    names = [path.relative_to(folder).as_posix() for path in islice(files, _MOST)]
    return f"\n[Other files of this skill, in {folder}: {', '.join(names)}]" if names else ""


command_files = partial(_list_files_in_settings_folders, "commands/**/*.toml")


def load_commands(root: Path, home: Path, trusted: bool) -> Commands:
    """Load custom commands; `git/commit.toml` becomes `/git:commit`."""
    usable, broken = _load_definitions(command_files, _read_command, root, home, trusted)
    others = {} if trusted else {_command_name(path, root): path for path in command_files(root)}
    untrusted = {name: f"{path} was ignored: {_UNTRUSTED}." for name, path in others.items()}
    named = {_command_name(*at): problem for at, problem in broken.items()}
    return Commands(usable, named, untrusted, load_skills(root, home, trusted)[0].keys())


def _command_name(path: Path, base: Path) -> str:
    return ":".join(path.relative_to(base).with_suffix("").parts[2:])


def _read_command(path: Path, base: Path) -> tuple[str, CustomCommand]:
    name = _command_name(path, base)
    values: Mapping[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    prompt, description = values.get("prompt"), values.get("description", "")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"'prompt' is {prompt!r}, expected the text of the prompt")
    if not isinstance(description, str):
        raise ValueError(f"'description' is {description!r}, expected a string")
    if (count := sum(piece.kind != "text" for piece in split_template(prompt))) > MOST_PIECES:
        raise ValueError(f"it has {count} of !{{…}} and @{{…}}, expected at most {MOST_PIECES}")
    return name, CustomCommand(name, prompt, description, str(path))


_IGNORE = (".geminiignore", ".rooignore")
_UNTRUSTED = "the folder isn't trusted (interlock trust)"
_PROMPT = "system-prompt-"


def describe_instruction_files(
    root: Path, home: Path, settings: ContextSettings, mode_slugs: Collection[str], trusted: bool
) -> Iterator[FoundFile]:
    """List the agent files found, in a fixed order, without side effects; `mode_slugs`: slugs of existing modes."""
    yield from describe_instructions(root, home, settings, mode_slugs, trusted=trusted)
    yield from _summarize_command_files(root, home, trusted)
    for name in _IGNORE:
        if (root / name).is_file():
            yield FoundFile(True, "ignore", f"{name}: kept from tools and references")
    for path in sorted((root / ".roo").glob(f"{_PROMPT}*")):
        name = path.relative_to(root).as_posix()
        problem = describe_unknown_mode(path.name.removeprefix(_PROMPT), mode_slugs) or (
            "" if trusted else _UNTRUSTED
        )
        what = f"not used; {problem}" if problem else "in place of the mode's system prompt"
        yield FoundFile(not problem, "prompt", f"{name}: {what}")


def _summarize_command_files(root: Path, home: Path, trusted: bool) -> Iterator[FoundFile]:
    commands = load_commands(root, home, trusted)
    yield from (FoundFile(False, "commands", problem) for problem in commands.broken.values())
    if commands.usable:
        yield FoundFile(True, "commands", ", ".join(f"/{name}" for name in sorted(commands.usable)))
    if count := len(commands.untrusted):
        yield FoundFile(
            False, "commands", f"{count} of this folder not used: it isn't trusted (interlock trust)"
        )
