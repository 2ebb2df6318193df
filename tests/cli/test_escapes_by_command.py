"""Escapes from the workspace through the command line: everything is allowed, yet nothing gets out."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from escapes.desk import SECRET, Desk

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def test_with_everything_allowed_no_call_leads_out(cli: Cli, tmp_path: Path) -> None:
    desk = Desk(tmp_path.resolve())
    (desk.root / "link").symlink_to(desk.outside)
    (desk.root / ".g\u200cit").mkdir()
    (desk.root / ".g\u200cit" / "config").write_text(SECRET)
    paths = ["../outside/secret.txt", "link/secret.txt", f"/proc/self/root{desk.outside}/secret.txt"]
    paths += ["link/../outside/secret.txt", "/dev/stdin", ".g\u200cit/config"]
    calls = [{"name": "read_file", "args": {"file_path": path}} for path in paths]
    calls += [{"name": "write_file", "args": {"file_path": path, "content": "x"}} for path in paths]
    calls.append({"name": "run_shell_command", "args": {"command": "cat secret.txt", "dir_path": "link"}})
    given = json.dumps({"calls": calls})
    done = cli("run", "tools", "--input", given, "-y", cwd=desk.root)
    assert done.stdout, done.stderr
    answers = json.loads(done.stdout)["responses"]
    assert [answer["status"] for answer in answers] == ["error"] * len(calls)
    assert SECRET not in done.stdout + done.stderr
    assert desk.snapshot() == desk.before
