"""load: agent definitions, one Markdown file each: YAML front matter between `---` lines, then the system prompt."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from interlock.services.settings import FOLDERS
from interlock.state.investigate import INVESTIGATOR, Report
from interlock.state.subagent import AgentDefinition

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$\r?\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_NAMES = {
    "timeout_mins": "max_time_minutes",
    "timeoutMins": "max_time_minutes",
    "maxTurns": "max_turns",
    "maxTimeMinutes": "max_time_minutes",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
}
"""Other spellings → ours; the first is gemini-cli's."""
_UNUSED = {"kind", "display_name", "color"}
"""Keys of gemini-cli and Claude Code that say nothing to us."""
_LARGEST = 256_000
"""Bytes of a definition."""


def load_agents(root: Path, home: Path, trusted: bool) -> tuple[dict[str, AgentDefinition], list[str]]:
    """Name → definition, and one line for each file that can't be used. Later folders win.

    Order: the package, the user's folders, the project's (only of a trusted folder).
    """
    found = {d.name: d for d in map(_shipped, sorted(Path(__file__).parent.glob("*.md")))}
    problems: list[str] = []
    for folder in _folders(root, home, trusted):
        for path in sorted((folder / "agents").glob("*.md")):
            try:
                definition = _read(path)
            except (OSError, ValueError, OverflowError, TypeError, RecursionError) as error:
                problems.append(f"{path} was ignored: {_told(error)}")
            else:
                found[definition.name] = definition
    return found, problems


def _folders(root: Path, home: Path, trusted: bool) -> Sequence[Path]:
    mine = [home / name for name in FOLDERS]
    return [*mine, *(root / name for name in FOLDERS)] if trusted else mine


def _shipped(path: Path) -> AgentDefinition:
    definition = _read(path).model_copy(update={"source": "interlock"})
    if definition.name != INVESTIGATOR:
        return definition
    return definition.model_copy(update={"output_schema": Report.model_json_schema()})


def _read(path: Path) -> AgentDefinition:
    """Raises `ValueError` saying what is wrong."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    parts = _FRONT.match(path.read_text(encoding="utf-8"))
    if parts is None:
        raise ValueError("expected YAML front matter between two lines '---' at the top")
    front = _front(parts[1])
    fields = {_NAMES.get(key, key): value for key, value in front.items() if key not in _UNUSED}
    fields.setdefault("name", path.stem)
    if fields.get("tools") in ("*", ["*"]):
        del fields["tools"]
    if isinstance(tools := fields.get("tools"), str):  # Claude Code's spelling
        fields["tools"] = [name.strip() for name in tools.split(",") if name.strip()]
    return AgentDefinition.model_validate({**fields, "system_prompt": parts[2].strip(), "source": str(path)})


def _front(text: str) -> Mapping[str, Any]:
    import yaml

    try:
        events = cast("Iterable[object]", yaml.parse(text))  # pyright: ignore[reportUnknownMemberType]
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            raise ValueError("its front matter holds a YAML alias (*name): write the value out")
        loaded: object = yaml.safe_load(text)
    except RecursionError as error:
        raise ValueError("its front matter is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise ValueError("its front matter is no mapping of names to values")
    return cast(Mapping[str, Any], loaded)


def _told(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place!r}: {first['msg']}; it knows {', '.join(AgentDefinition.model_fields)}."
    return f"{' '.join(str(error).split())}."
