"""Escapes from the workspace through the command line: everything is allowed, yet nothing gets out."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from escapes.desk import SECRET, Desk

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def test_with_everything_allowed_no_call_leads_out_or_to_secrets(cli: Cli, tmp_path: Path) -> None:
    desk = Desk(tmp_path.resolve())
    inside = (".g\u200cit/config", ".git/config", "src/.GIT/config", ".env", "src/.env")
    for name in inside:
        (desk.root / name).parent.mkdir(exist_ok=True)
        (desk.root / name).write_text(SECRET)
    (desk.root / "link").symlink_to(desk.outside)
    (desk.root / "link-to-file").symlink_to(desk.outside / "secret.txt")
    paths = ["../outside/secret.txt", "link/secret.txt", f"/proc/self/root{desk.outside}/secret.txt", *inside]
    paths += ["link/../outside/secret.txt", "/dev/stdin", f"{desk.outside}/secret.txt", "link-to-file"]
    paths += ["src/../../outside/secret.txt", "/etc/passwd", "/proc/self/environ", "~/.ssh/id_rsa", "a\0b"]
    calls = [{"name": "read_file", "args": {"file_path": path}} for path in paths]
    calls += [{"name": "write_file", "args": {"file_path": path, "content": "x"}} for path in paths]
    change = {"old_string": SECRET[:5], "new_string": "not"}
    calls += [{"name": "replace", "args": {"file_path": path, **change}} for path in paths]
    calls.append({"name": "run_shell_command", "args": {"command": "cat secret.txt", "dir_path": "link"}})
    given = json.dumps({"calls": calls})
    done = cli("run", "tools", "--input", given, "-y", cwd=desk.root)
    assert done.stdout, done.stderr
    answers = json.loads(done.stdout)["responses"]
    assert [answer["status"] for answer in answers] == ["error"] * len(calls)
    assert SECRET not in done.stdout + done.stderr
    assert desk.snapshot() == desk.before
    assert {name: (desk.root / name).read_text() for name in inside} == dict.fromkeys(inside, SECRET)
