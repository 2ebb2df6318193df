"""untrusted: what a folder that nobody trusted leaves out: said so, and refused where the run needs it (exit 55)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from interlock.engine.options import Options
from interlock.services.agents import load_agents
from interlock.services.dotenv import load_dotenv
from interlock.services.hooks.definition import Hook
from interlock.services.hooks.events import event_named
from interlock.services.models import check_credentials
from interlock.services.seen_hooks import new_hooks
from interlock.services.settings import FOLDERS
from interlock.services.settings_file import read_object
from interlock.services.trust import ignored_line, project_files, shown_path
from interlock.state.errors import CredentialsError, UntrustedError, UserError
from interlock.state.hooks import HookEvent
from interlock.state.run import WorkflowInput
from interlock.state.settings import Settings
from interlock.state.subagent import AgentDefinition


def told(root: Path, options: Options, trusted: bool, hooks: list[Hook]) -> list[str]:
    """Warnings: what was ignored, or which of the project's hooks are new."""
    if trusted:
        return new_hooks(root, options.user_home, hooks)
    return ignored_line(project_files(root, options.user_home), root)


def check_model(
    settings: Settings, env: Mapping[str, str], options: Options, root: Path, trusted: bool
) -> None:
    """As `check_credentials`; a key or an alias that only ignored files have is an `UntrustedError`."""
    try:
        check_credentials(settings, env, options.model)
    except UserError as error:
        if trusted:
            raise
        found = _key(root, options) if isinstance(error, CredentialsError) else _alias(root, options.model)
        if found is None:
            raise
        raise needed(*found, root) from error


def check_agent(
    given: WorkflowInput, root: Path, options: Options, agents: Mapping[str, AgentDefinition]
) -> None:
    """Raises `UntrustedError` for an agent that is named and that only the project has."""
    name = getattr(given, "agent", None)
    if isinstance(name, str) and name not in agents:
        theirs = load_agents(root, options.user_home, True)[0].get(name)
        if theirs is not None:
            raise needed(f"Agent {name!r}", Path(theirs.source), root)


def check_hooks(event: HookEvent, root: Path, options: Options) -> None:
    """Raises `UntrustedError` for hooks of the event that only the project has."""
    for file in project_files(root, options.user_home):
        named = [
            line.removeprefix("hook ").partition(":")[0] for line in file.runs if line.startswith("hook ")
        ]
        if event in map(event_named, named):
            raise needed(f"A hook for {event}", file.path, root)


def needed(what: str, file: Path, root: Path) -> UntrustedError:
    return UntrustedError(
        f"{what} stands only in {shown_path(file, root)}, which was ignored: the folder {str(root)!r} isn't trusted. "
        "See what would count, and trust it: interlock trust"
    )


def _key(root: Path, options: Options) -> tuple[str, Path] | None:
    """The first variable of an ignored `.env` that would be a key; keys of all providers end so."""
    home = options.user_home
    own = load_dotenv(start=root, home=home, env={}, trusted=False).values
    theirs = load_dotenv(start=root, home=home, env={}, trusted=True)
    names = [n for n in theirs.values if n.endswith("_API_KEY") and n not in own]
    return (f"The key {names[0]}", theirs.files[0]) if names else None


def _alias(root: Path, model: str | None) -> tuple[str, Path] | None:
    for file in (root / folder / "settings.json" for folder in FOLDERS):
        section = (read_object(file) or {}).get("model")
        aliases = cast(dict[str, Any], section).get("aliases") if isinstance(section, dict) else None
        if isinstance(aliases, dict) and model in aliases:
            return f"Model {model!r}", file
    return None
