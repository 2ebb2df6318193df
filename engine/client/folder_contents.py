"""folder_contents: what a folder brings to its runs, to show and to change: memory files, MCP servers."""

import os
from pathlib import Path
from typing import Any

from interlock.engine.client import load_folder_settings
from interlock.engine.driver.run_rules import load_run_instructions
from interlock.services.configuration import load_default_configuration
from interlock.services.context.memory import MemoryFile
from interlock.services.files.disk import make_directories_durably, read_text_file
from interlock.services.files.filesystem import replace_private_file_holding_lock
from interlock.services.trust.project_files import ProjectFile, list_files_shown_for_trust
from interlock.state.errors import InterlockError, UserError
from interlock.state.settings import Settings
from interlock.state.text import replace_surrogates
from interlock.tools.save_memory import add_fact_to_text


def load_memory_files(root: Path) -> tuple[list[MemoryFile], list[str]]:
    """Return the memory files that apply in a folder, the nearest last, and a warning if it isn't trusted and has files
    that count only then."""
    configuration = load_default_configuration(root)
    return load_run_instructions(configuration).used_memory(), configuration.warnings_about_ignored_files


def list_files_to_trust(root: Path) -> list[ProjectFile]:
    """Return what a person sees before the folder is trusted, with what each file would do."""
    try:
        settings = load_default_configuration(root, trusted=True).loaded_settings.settings.context
    except InterlockError:  # the row of the file says so
        settings = None
    return list_files_shown_for_trust(root, Path.home(), settings)


def add_memory_line(root: Path, text: str, *, for_all_folders: bool) -> tuple[Path, bool]:
    """Add a line to the folder's memory file, or to the user's own; return the file, and whether it lacked the line.

    Raises `UserError`.
    """
    names = load_folder_settings(root).context.file_names
    name = next((name for name in names if not for_all_folders and (root / name).is_file()), names[0])
    file = Path.home() / ".gemini" / name if for_all_folders else root / name
    file = Path(os.path.realpath(file))  # a symbolic link stays one
    try:
        before = read_text_file(file) if file.exists() else ""
        after = add_fact_to_text(before, replace_surrogates(text))
        make_directories_durably(file.parent, 0o755)
        replace_private_file_holding_lock(file, after.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Can't change {str(file)!r}: {error}. Nothing was added.") from None
    return file, after != before


def check_and_upsert_mcp_server(file: Path, name: str, server: dict[str, Any], folder: Path) -> bool:
    """Write an MCP server to a settings file if it is a valid one; return whether it replaced one.

    Raises `UserError` and `ConfigError`.
    """
    from interlock.services.mcp import add_server_to_settings, build_server_specs

    settings = Settings.model_validate({"mcpServers": {name: server}})
    if problem := build_server_specs(settings, folder)[name].problem:
        raise UserError(f"MCP server {name!r}: {problem}. Nothing was written.")
    return add_server_to_settings(file, name, server)
