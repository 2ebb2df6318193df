"""Missing permissions are reported in one line; a superuser gives up its rights for these tests."""

import json
import os
import textwrap
from pathlib import Path

import warm
from folders import put

SCRIPT = """
    import asyncio, json, os, tempfile
    from pathlib import Path
    from interlock.services.files.filesystem import OutputFiles
    from interlock.services.toolset import BuiltinToolset
    from interlock.services.files.workspace import FolderWorkspace
    from interlock.state.calls import CallKey, CallView, ToolResult
    from interlock.state.tooling import ToolRun
    from interlock.state.settings import Settings
    import langgraph.errors, difflib

    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "file").write_text("x")
        (root / "file").chmod(0o000)
        (root / "closed").mkdir()
        (root / "closed" / "inner").write_text("x")
        (root / "closed").chmod(0o000)
        (root / "fixed").mkdir()
        (root / "fixed" / "inner").write_text("x")
        (root / "fixed").chmod(0o555)
        outputs = OutputFiles(root / "state")
        tools = BuiltinToolset(workspace=FolderWorkspace(root), processes=None, outputs=outputs, settings=Settings())
        def do(tool, **args):
            call = CallView(id="c", name=tool, args=args)
            if tools.invalid(call):
                return "invalid"
            run = ToolRun(key=CallKey(message="m", index=0), call=call, emit=lambda _: None)
            result = asyncio.run(tools.run(run))
            assert "\\n" not in result.content or result.status == "success", result
            return result.error["type"] if result.error else result.status
        edit = {"old_string": "x", "new_string": "y"}
        print(json.dumps({
            "read": do("read_file", file_path="file"),
            "read below": do("read_file", file_path="closed/inner"),
            "list": do("list_directory", dir_path="closed"),
            "glob": do("glob", pattern="**"),
            "write": do("write_file", file_path="file", content="y"),
            "edit": do("replace", file_path="file", **edit),
            "new below": do("write_file", file_path="closed/deep/new", content="y"),
            "new in fixed": do("write_file", file_path="fixed/deep/new", content="y"),
            "edit in fixed": do("replace", file_path="fixed/inner", **edit),
            "now": tools.now(str(root / "file")),
        }))
        for name in ("closed", "fixed"):
            (root / name).chmod(0o700)
"""


def test_missing_permissions_are_told_in_one_line(tmp_path: Path) -> None:
    program = put(tmp_path / "program.py", textwrap.dedent(SCRIPT))
    done = warm.run([], cwd=Path("/"), env=os.environ, program=program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "read": "permission_denied",
        "read below": "permission_denied",
        "list": "permission_denied",
        "glob": "success",
        "write": "permission_denied",
        "edit": "permission_denied",
        "new below": "permission_denied",
        "new in fixed": "permission_denied",
        "edit in fixed": "permission_denied",
        "now": "unreadable",
    }
