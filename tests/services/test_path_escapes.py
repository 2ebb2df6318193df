"""Escapes from the workspace, each tried with every tool that takes a path, on a real file system."""

import os
import socket
from pathlib import Path

import pytest
from escapes.desk import SECRET, Desk
from folders import put, tree

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.index.sources import read_source
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings
from interlock.state.workspace import PathRefused

NAMED = [
    *(".env", ".ENV", ".Env", ".env.", ".env ", ".env::$DATA", "ENV~1", "．ｅｎｖ", ".e\u200cnv"),
    ".en\u2060v",
    *(".git/config", ".Git/config", ".GIT/config", "．git/config", ".g\u200cit/config", ".gi\ufefft/config"),
    *("GIT~1/config", ".git /config", ".git./config", ".git\u200e/config", "src/.gIt/config"),
    ".gi\ufe0ft/config",
    *("\uff49d_rsa", "ID_RSA", "id_r\u017fa", ".netrc.", "gha-creds-\n.json", ".git\u00ad-credentials"),
]
"""Spellings that some file system treats as a private name."""


def out(desk: Desk) -> dict[str, str]:
    """Paths that lead outside, by kind."""
    root, outside = desk.root, desk.outside
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "twice").symlink_to("link/below")
    (root / "src" / "up").symlink_to("../..")
    (root / "down").symlink_to("src/deep")
    (root / "root").symlink_to("/proc/self/root")
    (root / "cwd").symlink_to("/proc/self/cwd")
    return {
        "dots": "../outside/secret.txt",
        "dots after a directory": "src/deep/../../../outside/secret.txt",
        "dots after what isn't there": "no/where/../../../outside/secret.txt",
        "absolute": str(outside / "secret.txt"),
        "url": f"file://{outside}/secret%2Etxt",
        "at": "@../outside/secret.txt",
        "link to a directory": "link/secret.txt",
        "link to a file": "file-link",
        "link through a link": "twice/secret.txt",
        "link upward": "src/up/outside/secret.txt",
        "dots after a link, as the kernel reads it": "link/../outside/secret.txt",
        "dots after a link, as people read it": "down/../../../outside/secret.txt",
        "dots after a link that both lead back": "link/../work/link/secret.txt",
        "slashes": f"//{outside}//secret.txt",
        "proc root": f"/proc/self/root{outside}/secret.txt",
        "proc root by a link": f"root{outside}/secret.txt",
        "proc of a thread": f"/proc/thread-self/root{outside}/secret.txt",
        "proc cwd": f"/proc/self/cwd{'/..' * 30}{outside}/secret.txt",
        "proc cwd by a link": f"cwd{'/..' * 30}{outside}/secret.txt",
        "environment": "/proc/self/environ",
        "memory": "/proc/self/mem",
        "standard input": "/dev/stdin",
        "descriptor": "/dev/fd/0",
        "tilde": "~/.netrc",
    }


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path.resolve())


def attempts(desk: Desk, path: str) -> dict[str, str]:
    """Each tool's answer."""
    directory = path.rpartition("/")[0] or path
    done = {
        "read_file": desk.call("read_file", file_path=path),
        "read_many_files": desk.call("read_many_files", include=[path, directory, f"{directory}/*"]),
        "list_directory": desk.call("list_directory", dir_path=directory),
        "glob": desk.call("glob", pattern="*", dir_path=directory),
        "write_file": desk.call("write_file", file_path=path, content="overwritten"),
        "replace": desk.call("replace", file_path=path, old_string=SECRET, new_string="replaced"),
    }
    for name in ("read_file", "write_file", "replace"):
        assert done[name].status == "error", f"{name} {path!r}: {done[name].content}"
    return {name: result.content for name, result in done.items()}


def test_no_path_leads_out(desk: Desk) -> None:
    for way, path in out(desk).items():
        for tool, told in attempts(desk, path).items():
            assert SECRET not in told, (way, tool)
            assert "below" not in told.splitlines(), (way, tool)
    assert desk.snapshot() == desk.before


def test_no_search_and_no_command_starts_outside(desk: Desk) -> None:
    for way, path in out(desk).items():
        directory = path.rpartition("/")[0]
        ended = desk.call("run_shell_command", command="pwd -P; cat secret.txt", dir_path=directory or ".")
        assert ended.status == "error" or f"\n{desk.root}\n" in ended.content, way
        assert SECRET not in ended.content, way
    found = desk.call("grep_search", pattern=SECRET)
    assert found.content.startswith("No matches")
    assert desk.call("grep_search", pattern=SECRET, dir_path="link", no_ignore=True).status == "error"


@pytest.mark.parametrize("name", NAMED)
def test_a_private_name_in_any_spelling_stays_closed(desk: Desk, name: str) -> None:
    path = put(desk.root / name, f"{SECRET}\n")
    told = attempts(desk, name)
    assert not any(SECRET in text for text in told.values())
    assert path.read_text() == f"{SECRET}\n"
    assert SECRET not in desk.call("read_many_files", include=["**"], use_default_excludes=False).content


def test_a_search_finds_nothing_under_a_private_name(desk: Desk) -> None:
    for name in NAMED:
        put(desk.root / name, f"{SECRET}\n")
    (desk.root / "plain").write_text(f"{SECRET}\n")
    found = desk.call("grep_search", pattern=SECRET, no_ignore=True, names_only=True)
    assert found.content.splitlines()[1:] == ["plain"]


@pytest.mark.parametrize(
    "name", [".environment", "env", ".gitea/x", "git", "e.env", "id_rsa.pub", "ｇit", "a:b"]
)
def test_names_that_are_like_private_ones_are_open(desk: Desk, name: str) -> None:
    (desk.root / name).parent.mkdir(exist_ok=True)
    assert desk.call("write_file", file_path=name, content="x").status == "success"
    assert desk.call("read_file", file_path=name).content == "x"


def test_nothing_that_never_ends_is_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.root)  # socket names must be short
    os.mkfifo("pipe")
    for name, target in (("to-pipe", "pipe"), ("to-null", "/dev/null")):
        (desk.root / name).symlink_to(target)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name in ("pipe", "to-pipe", "socket", "to-null"):
            attempts(desk, name)
            assert desk.call("grep_search", pattern="x", dir_path=name).status == "error"
        os.mkfifo(".geminiignore")
        os.mkfifo("src/.gitignore")
        (desk.root / ".git").mkdir()
        assert desk.call("glob", pattern="**").status == "success"


def test_a_loop_of_links_ends(desk: Desk) -> None:
    (desk.root / "one").symlink_to("two")
    (desk.root / "two").symlink_to("one")
    (desk.root / "src" / "self").symlink_to(".")
    (desk.root / "src" / "one").symlink_to("../one")
    for path in ("one", "one/x", "two/../one", "src" + "/self" * 60 + "/one/x"):
        attempts(desk, path)
    (desk.root / "src" / "x").write_text("here")
    assert desk.call("glob", pattern="**").content.splitlines()[1:] == ["src/x"]


@pytest.mark.parametrize("path", ["n" * 300, "d/" * 3000 + "x", "\ud800", "a\0b", "file:///%00", " "])
def test_names_that_no_file_has_are_told_and_made_nowhere(desk: Desk, path: str) -> None:
    attempts(desk, path)
    assert [p.name for p in desk.root.iterdir()] == ["src"]


HIDDEN = {".geminiignore": "keep/\nown.txt\n"}


@pytest.mark.parametrize(
    ("files", "private", "other"),
    [
        ({}, ".env", "notes.txt"),
        ({}, "src/.netrc", "src/deep/plain"),
        ({}, "src/deep/.env", "notes.txt"),
        (HIDDEN, "keep/deep/data.csv", "src/plain"),
        (HIDDEN, "own.txt", "src/plain"),
    ],
)
def test_another_name_of_a_file_that_is_private_or_hidden_by_the_user_is_closed_too(
    desk: Desk, files: dict[str, str], private: str, other: str
) -> None:
    tree(desk.root, {**files, private: SECRET, "store": "fine"})
    os.link(desk.root / private, desk.root / other)
    os.link(desk.root / "store", desk.root / "src" / "installed")  # as package managers install every file
    assert desk.call("read_file", file_path="src/installed").content == "fine"
    told = attempts(desk, other)
    assert "same file as" in told["read_file"]
    assert not any(SECRET in text for text in told.values())
    assert desk.call("grep_search", pattern=SECRET).content.startswith("No matches")
    assert read_source(FolderWorkspace(desk.root), other) is None
    policy = RulePolicy(WorkspaceRules([], Settings(), FolderWorkspace(desk.root)))
    for line in (f"rg {SECRET}", "rg -l x", f"grep -r {SECRET} src .", f"cat {other}", "diff -r src ."):
        call = CallView(id="1", name="run_shell_command", args={"command": line})
        assert files or policy.check(call, "execute", "default").decision == "ask", line


def test_a_link_in_place_of_the_workspace_is_not_followed(desk: Desk) -> None:
    (desk.root / "secret.txt").write_text("ours")
    desk.root.rename(desk.root.with_name("moved"))
    desk.root.symlink_to(desk.outside)
    here = sorted(desk.root.iterdir())
    told = attempts(desk, "secret.txt")
    assert not any(SECRET in text for text in told.values())
    assert desk.call("write_file", file_path="new", content="x").status == "error"
    assert sorted(desk.root.iterdir()) == here
    assert sorted(p.name for p in desk.root.with_name("moved").iterdir()) == ["secret.txt", "src"]
    assert desk.snapshot() == desk.before


def test_a_link_in_place_of_a_folder_above_the_workspace_is_not_followed(tmp_path: Path) -> None:
    desk = Desk(tmp_path.resolve() / "above")
    put(tmp_path / "else" / "work" / "secret.txt", SECRET)
    (tmp_path / "above").rename(tmp_path / "kept")
    (tmp_path / "above").symlink_to("else")
    attempts(desk, "secret.txt")
    assert [p.name for p in desk.root.iterdir()] == ["secret.txt"]


def test_a_workspace_that_a_command_makes_anew_is_used_and_the_model_hears_of_it(desk: Desk) -> None:
    (desk.root / "old.txt").write_text("old")
    again = (
        f"cd .. && rm -rf {desk.root.name} && mkdir {desk.root.name} && echo new > {desk.root.name}/new.txt"
    )
    assert "was removed and made anew" in desk.call("run_shell_command", command=again).content
    assert desk.call("run_shell_command", command="ls").content == "Output:\nnew.txt"
    assert desk.call("read_file", file_path="new.txt").content == "new"
    assert desk.call("write_file", file_path="more.txt", content="").error is None
    gone = desk.call("run_shell_command", command=f"rm -r ../{desk.root.name}").content
    assert f"folder '{desk.root}' is gone" in gone
    for tool, args in (
        ("run_shell_command", {"command": "ls"}),
        ("write_file", {"file_path": "a", "content": ""}),
    ):
        answered = desk.call(tool, **args)
        assert answered.status == "error" and "was deleted or moved away" in answered.content, answered
    assert not desk.root.exists()


def test_a_workspace_given_by_a_link_stays_what_the_link_led_to(tmp_path: Path) -> None:
    made = Desk(tmp_path.resolve())
    (tmp_path / "other").mkdir()
    door = tmp_path / "other" / "work"
    door.symlink_to(made.root)
    (tmp_path / "other" / "outside").mkdir()
    desk = Desk(tmp_path.resolve() / "other")
    door.unlink()
    door.symlink_to(made.outside)
    assert desk.call("read_file", file_path="secret.txt").status == "error"
    assert desk.call("read_file", file_path=str(door / "secret.txt")).status == "error"
    assert desk.call("write_file", file_path="new", content="x").status == "success"
    assert (made.root / "new").read_text() == "x"


def test_an_included_directory_is_held_as_the_workspace_is(tmp_path: Path) -> None:
    shared = tmp_path.resolve() / "shared"
    shared.mkdir()
    desk = Desk(tmp_path.resolve(), included=[shared])
    assert desk.call("write_file", file_path=str(shared / "a" / "b"), content="x").status == "success"
    (shared / "link").symlink_to(desk.outside)
    attempts(desk, str(shared / "link" / "secret.txt"))
    attempts(desk, str(shared / ".." / "outside" / "secret.txt"))
    shared.rename(tmp_path / "moved")
    shared.symlink_to(desk.outside)
    attempts(desk, str(shared / "secret.txt"))
    assert desk.snapshot() == desk.before


def test_a_workspace_of_everything_has_no_inside_of_the_machine() -> None:
    everything = FolderWorkspace(Path("/"))
    for path in ("/proc/self/environ", "/proc/1/cmdline", "/sys/kernel", "/dev/stdin"):
        with pytest.raises(PathRefused, match="outside"):
            everything.resolve_readable(path)
    assert everything.resolve_readable("/etc/hosts") == Path("/etc/hosts").resolve()
