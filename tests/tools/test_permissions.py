"""Missing permissions are reported in one line; a superuser gives up its rights for these tests."""

from pathlib import Path

from ordinary_user import told_to_ordinary_user
from tool_calls import Calls

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


def test_missing_permissions_are_told_in_one_line(call: Calls) -> None:
    call.write({"file": "x"})
    for tool, args, _ in CALLS.values():  # so that all is imported
        call(tool, **args)
    found = told_to_ordinary_user(told)
    assert found == {name: expected for name, (_, _, expected) in CALLS.items()}
