"""Missing permissions are reported in one line; a superuser gives up its rights for these tests."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tool_calls import Calls

NOBODY = 65534
EDIT = {"old_string": "x", "new_string": "y"}
CALLS = {
    "read": ("read_file", {"file_path": "file"}, "permission_denied"),
    "read below": ("read_file", {"file_path": "closed/inner"}, "permission_denied"),
    "list": ("list_directory", {"dir_path": "closed"}, "permission_denied"),
    "glob": ("glob", {"pattern": "**"}, "success"),
    "write": ("write_file", {"file_path": "file", "content": "y"}, "permission_denied"),
    "edit": ("replace", {"file_path": "file", **EDIT}, "permission_denied"),
    "new below": ("write_file", {"file_path": "closed/deep/new", "content": "y"}, "permission_denied"),
    "new in fixed": ("write_file", {"file_path": "fixed/deep/new", "content": "y"}, "permission_denied"),
    "edit in fixed": ("replace", {"file_path": "fixed/inner", **EDIT}, "permission_denied"),
}


def told(folder: Path) -> dict[str, str]:
    """What each call comes to for an ordinary user."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    calls = Calls(folder / "work")
    calls.write({"file": "x", "closed/inner": "x", "fixed/inner": "x"})
    for name, mode in (("file", 0o000), ("closed", 0o000), ("fixed", 0o555)):
        (calls.folder / name).chmod(mode)
    found = {}
    for name, (tool, args, _) in CALLS.items():
        result = calls(tool, **args)
        assert "\n" not in result.content or result.status == "success", result
        found[name] = result.error["type"] if result.error else result.status
    for name in ("closed", "fixed"):
        (calls.folder / name).chmod(0o700)
    return found


def test_missing_permissions_are_told_in_one_line(tmp_path: Path) -> None:
    imported = Calls(tmp_path / "work")  # an ordinary user may not be let in where Python's own modules are
    imported.write({"file": "x"})
    for tool, args, _ in CALLS.values():
        imported(tool, **args)
    reads, writes = os.pipe()
    with TemporaryDirectory() as folder:  # pytest's own is closed to others
        if (child := os.fork()) == 0:
            try:
                os.write(writes, json.dumps(told(Path(folder))).encode())
            finally:
                os._exit(0)
        os.close(writes)
        with os.fdopen(reads) as answer:
            found = json.loads(answer.read() or "null")
        os.waitpid(child, 0)
    assert found == {name: expected for name, (_, _, expected) in CALLS.items()}
