"""snapshots: what a workspace's files were, taken and put back; one shadow repository a workspace."""

import json
import threading
from pathlib import Path
from typing import Any, cast

from interlock.services.files.filesystem import replace_file
from interlock.services.snapshots.repository import Repository, repository_name
from interlock.services.snapshots.tree import Tree
from interlock.state.settings import SnapshotSettings
from interlock.state.workspace import Workspace


class WorkspaceSnapshots:
    """Snapshots of one workspace by one process; taken one at a time."""

    def __init__(self, home: Path, workspace: Workspace, limits: SnapshotSettings) -> None:
        self.name = repository_name(workspace.root)
        self._folder = home / "snapshots" / self.name
        self.repository = Repository(self._folder)
        self._workspace, self._limits = workspace, limits
        self._tree: Tree | None = None
        self._commit, self._layout = "", b""
        self._saved = ""
        self._lock = threading.Lock()

    def take(self, ref: str, changed: str = "") -> str:
        """The commit that holds the files as they are now. Raises `SnapshotError`, `TooManyFilesError`.

        `changed`: the one file, relative to the workspace, that can have changed since the last.
        """
        with self._lock:
            tree = self._tree or self._known()
            self._tree = None  # not known any more, should this fail
            layout = b""

            def laid_out() -> bytes:
                nonlocal layout
                layout = layout or tree.layout()
                return layout

            changes = tree.changes(changed.rpartition("/")[0] if changed else None)
            self._commit = self.repository.commit(ref, self._commit, changes, laid_out, self._layout)
            self._layout, self._tree = layout or self._layout, tree
            if not self._saved:
                self._save(tree)
            return self._commit

    def close(self) -> None:
        """Another process goes on from what this one knows; what isn't saved is looked at again."""
        with self._lock:
            if self._tree is not None and self._saved != self._commit:
                self._save(self._tree)
                self.repository.pack()

    @property
    def _index(self) -> Path:
        return self._folder / "interlock-index.json"

    def _known(self) -> Tree:
        try:
            known = cast(dict[str, Any], json.loads(self._index.read_bytes()))
            tree = Tree(self._workspace, self._limits, known["folders"])
            self._commit, self._layout = known["commit"], known["layout"].encode()
        except (OSError, ValueError, KeyError, TypeError):  # none yet, or one of another version
            self._commit, self._layout = "", b""
            return Tree(self._workspace, self._limits)
        self._saved = self._commit
        return tree

    def _save(self, tree: Tree) -> None:
        known = {"commit": self._commit, "layout": self._layout.decode(), "folders": tree.known()}
        replace_file(self._index, json.dumps(known).encode())
        self._saved = self._commit
