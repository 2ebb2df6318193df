"""workspace_settings: the workspace that settings describe."""

from pathlib import Path
from typing import Any

from interlock.services.protected_paths import ProtectedPaths
from interlock.services.workspace import FolderWorkspace
from interlock.state.errors import ConfigError, UserError
from interlock.state.settings import Settings


def open_workspace(
    root: Path, settings: Settings, outputs: Path | None = None, protected: ProtectedPaths | None = None
) -> FolderWorkspace:
    """The workspace that settings describe. Raises `UserError` or `ConfigError` naming a directory that isn't there."""
    if not root.is_dir():
        raise UserError(f"No directory {str(root)!r}; start in the directory that you want to work on.")
    included = [root / Path(name).expanduser() for name in settings.context.include_directories]
    for directory in included:
        if not directory.is_dir():
            raise ConfigError(f"Included directory {str(directory)!r} isn't there; expected a directory.")
    filtering: dict[str, Any] = settings.context.file_filtering
    return FolderWorkspace(
        root,
        included,
        git_ignore=filtering.get("respectGitIgnore", True),
        agent_ignore=filtering.get("respectGeminiIgnore", True),
        custom_ignore=[Path(name) for name in filtering.get("customIgnoreFilePaths", ())],
        outputs=outputs,
        protected=protected,
    )
