"""The sandbox around shell commands, with real bubblewrap: what a command sees, can change, and can connect to."""

import asyncio
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from escapes.desk import Desk
from folders import put, tree
from patience import until
from sandboxes import needs_sandbox, sandbox_for

from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.sandbox.quarantine import quarantine_leftovers
from interlock.state.errors import SandboxError
from interlock.state.tooling import ProcessEnd

CONFIG = "[core]\n\trepositoryformatversion = 0\n"


class Place:
    """A workspace beside a home directory with a secret in it."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.home = folder / "home"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh/id_ed25519").write_text("KEY OF A PERSON")
        self.work.mkdir()

    def sh(
        self, command: str, env: dict[str, str] | None = None, included: tuple[Path, ...] = (), **tools: Any
    ) -> ProcessEnd:
        """Run a command in the workspace, as `run_shell_command` does."""
        whole = {"PATH": os.environ["PATH"], "HOME": str(self.home), **(env or {})}
        sandbox = sandbox_for(self.work, included=included, env=whole, **tools)
        outputs = OutputFiles(self.work.parent)
        processes = SupervisedProcesses(outputs=outputs, env=whole, sandbox=sandbox)
        try:
            return asyncio.run(processes.run(["bash", "-c", command], cwd=self.work, timeout_s=30))
        finally:
            processes.close()

    def tree(self) -> dict[str, str]:
        files = (p for p in self.work.rglob("*") if ".git/objects" not in str(p))
        return {str(p.relative_to(self.work)): p.read_text() if p.is_file() else "/" for p in files}

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd or self.work, capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    needs_sandbox()
    return Place(tmp_path)


def test_the_workspace_can_be_written_and_nothing_else(place: Place) -> None:
    ended = place.sh(
        "echo mine > made; for d in / /usr /etc /opt /proc/sys; do touch $d/x 2>/dev/null && echo wrote $d; done;"
        " echo pwned > /proc/sys/kernel/hostname; echo x > /proc/sysrq-trigger;"
        " f=/proc/sys/kernel/core_pattern; c=$(cat $f); echo $c > $f && echo wrote $c;"
        " unshare -U true && echo wrote a map; umount /proc/sys && echo wrote mounts; true"
    )
    assert "wrote" not in ended.output
    assert (place.work / "made").read_text() == "mine\n"
    assert not Path("/x").exists() and socket.gethostname() != "pwned"


MEMORY = Path("/dev/shm")


@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="needs /dev/shm")
def test_a_workspace_in_memory_is_there_and_nothing_else_of_dev() -> None:
    needs_sandbox()
    with TemporaryDirectory(dir=MEMORY) as folder, TemporaryDirectory(dir=MEMORY) as other:
        place = Place(Path(folder))
        put(place.work / ".git/config", CONFIG)
        ended = place.sh(
            f"echo mine > made; echo > .git/config; ls {other} /dev/sda /dev/kmsg /dev/mem; ls /dev/shm"
        )
        assert (place.work / "made").read_text() == "mine\n"
        assert (place.work / ".git/config").read_text() == CONFIG
        assert ended.output.count("No such file") == 4
        assert ended.output.endswith(f"\n{place.work.parent.name}\n")


def test_only_programs_and_their_configuration_are_there_and_no_process_or_right_of_others(
    place: Place,
) -> None:
    ended = place.sh("ls -A / /tmp /run $HOME")
    assert ended.exit_code == 0
    assert not {*ended.output.split()} & {"srv", "mnt", "media", "sys", "boot", "docker.sock", "dbus", ".ssh"}
    assert place.sh("cat $HOME/.ssh/id_ed25519").exit_code == 1
    assert place.sh(f"ls {place.home.parent}").output == "home\nwork\n"
    ended = place.sh("cat /etc/shadow /etc/gshadow; cat /etc/passwd > /dev/null && echo plain")
    hidden = sum(Path(f"/etc/{name}").exists() for name in ("shadow", "gshadow"))
    assert ended.output.count("Permission denied") == hidden
    assert ended.output.endswith("plain\n") and ":*:" not in ended.output
    ended = place.sh("ls -d /proc/[0-9]* | wc -l; grep -cE 'Cap...:.*[1-9a-f]' /proc/self/status; ls /dev")
    processes, capabilities, *devices = ended.output.split()
    assert int(processes) < 8 and capabilities == "0"
    assert not any(name.startswith(("sd", "vd", "loop", "kvm", "fuse", "mem")) for name in devices)


def test_tmp_and_home_are_empty_scratch_that_is_gone_afterwards(place: Place) -> None:
    made = place.sh("echo 1 > /tmp/interlock-scratch; echo 2 > $HOME/x; cat $TMPDIR/*-scratch $HOME/x")
    assert made.output == "1\n2\n"
    assert not Path("/tmp/interlock-scratch").exists() and not (place.home / "x").exists()
    assert place.sh("ls -A $HOME").output == ""


def test_included_and_named_folders_are_there_as_they_were_named(place: Place, tmp_path: Path) -> None:
    for name in ("included", "free", "home/toolchain"):
        put(tmp_path / name / "f", name)
    command = "cat ../{included,free,home/toolchain}/f; for d in included free home/toolchain; do touch ../$d/new; done"
    ended = place.sh(
        command,
        included=(tmp_path / "included",),
        sandboxAllowedPaths=[str(tmp_path / "free"), "~/toolchain:ro"],
    )
    assert ended.output.startswith("includedfreehome/toolchain") and "toolchain/new" in ended.output
    assert (tmp_path / "included/new").exists() and (tmp_path / "free/new").exists()
    assert not (tmp_path / "home/toolchain/new").exists()


RIGHTS = [
    *("echo '[core] fsmonitor = ./evil' >> .git/config", "git config core.fsmonitor ./evil"),
    *("echo evil > .git/hooks/pre-commit", "mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit"),
    "mkdir evil; cp -r .git/. evil; echo '[core] fsmonitor = x' >> evil/config; echo ../evil > .git/commondir",
    "mv .git g && mkdir .git && cp -r g/. .git && echo evil > .git/hooks/x",
    *("rm -rf .git/hooks; ln -s ../evil .git/hooks", "echo evil > .git/modules/lib/config"),
    *("echo ../../../evil > .git/worktrees/other/commondir", "echo evil > .husky/pre-commit"),
    "mv .husky h; mkdir .husky; echo evil > .husky/pre-commit",
    "echo '{\"hooks\": 1}' > .gemini/settings.json",
    "mkdir .interlock; echo '[[rule]]' > .interlock/policies.toml",
    *("rm -rf .gemini; mv .gemini x; ln -s x .gemini", "echo {} > .mcp.json"),
    *("mkdir .roo; echo {} > .roo/mcp.json", "echo GEMINI_SANDBOX=0 > .env", "echo > .geminiignore"),
    *("echo evil > tool/bin/git; mv tool t2", "mkdir -p later/bin && echo evil > later/bin/git"),
    "echo '[core] fsmonitor = x' >> lib/.git/config",
    "mv lib l2 && mkdir -p lib/.git && echo evil > lib/.git/config",
    "umount .git/config; mount -o remount,rw,bind .git/hooks; echo evil >> .git/config",
]


@pytest.mark.parametrize("attack", RIGHTS)
def test_a_command_can_not_give_itself_rights_that_outlast_it(place: Place, attack: str) -> None:
    place.git("init")
    place.git("config", "core.hooksPath", ".husky")
    place.git("init", "lib")
    own = {".git/modules/lib/config": CONFIG, ".git/worktrees/other/commondir": "../..\n", ".husky/": ""}
    ours = {".geminiignore": "secret\n", ".gemini/settings.json": "{}", "tool/bin/git": "ours"}
    tree(place.work, {**own, **ours})
    before = place.tree()
    path = f"{place.work}/tool/bin:{place.work}/later/bin:{os.environ['PATH']}"
    place.sh(f"{attack} 2>/dev/null; true", env={"PATH": path})
    after = place.tree()
    allowed = ("evil", "g/", "h/", "x", "l2", "t2")
    new = {name for name in after.keys() - before.keys() if not name.startswith(allowed)}
    made = {name for name in new if ".sandboxed" not in name and name != "later"}
    assert {name: text for name, text in after.items() if name in before} == before
    assert made == set()


def test_what_is_protected_by_name_is_set_aside_once_the_command_has_ended(place: Place) -> None:
    (place.work / "sub/old").mkdir(parents=True)
    (place.work / "sub/old/AGENTS.md").write_text("ours")
    place.git("init", "lib")
    ended = place.sh(
        "echo > sub/AGENTS.md; mkdir -p new/a; echo > new/a/GEMINI.md; echo > sub/.gitattributes; mkdir sub/.vscode;"
        " cp -r sub/old copy; ln -s ../x sub/GEMINI.md; mkdir shut; echo > shut/AGENTS.md; chmod 0 shut;"
        " echo > x.code-workspace; for r in plain set hook to; do cp -r lib/.git $r; git init -q repo-$r; done;"
        " git -C repo-set config core.fsmonitor x; echo > repo-hook/.git/hooks/post-commit;"
        " rm -r repo-to/.git; echo gitdir: ../set > repo-to/.git"
    )
    found = {str(p.relative_to(place.work)) for p in place.work.rglob("*") if "sandboxed" in p.name}
    made = {"sub/AGENTS.md", "new/a/GEMINI.md", "sub/.gitattributes", "sub/.vscode", "copy/AGENTS.md"}
    made |= {"sub/GEMINI.md", "shut/AGENTS.md", *(f"repo-{r}/.git" for r in ("set", "hook", "to"))}
    made.add("x.code-workspace")
    inside = {
        f"repo-{r}/.git.sandboxed/HEAD.sandboxed" for r in ("set", "hook")
    }  # by any name, it is a repository
    assert found == {f"{name}.sandboxed" for name in made} | inside
    assert not any(os.path.lexists(place.work / name) for name in made)
    assert (place.work / "repo-plain/.git/HEAD").exists() and (place.work / "sub/old/AGENTS.md").exists()
    assert "commands can't make" in ended.hint and "and 6 more" in ended.hint


def test_the_workspace_looks_to_a_command_as_it_is(place: Place) -> None:
    """Nothing stands in the place of what it may not make."""
    place.git("init", "--template=")
    place.git("config", "core.hooksPath", ".husky/_")
    path = f"{place.work}/later/bin:{os.environ['PATH']}"
    listing = "ls -A; find . -name AGENTS.md -o -name '*.yml' -o -name later"
    assert place.sh(listing, env={"PATH": path}).output == ".git\n"
    assert place.sh("mkdir .gemini sub; echo > AGENTS.md; ls -A", env={"PATH": path}).output.split() == [
        *(".gemini", ".git", "AGENTS.md", "sub")
    ]
    assert sorted(p.name for p in place.work.iterdir()) == [
        *(".gemini.sandboxed", ".git", "AGENTS.md.sandboxed", "sub")
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write there at all")
def test_a_sandbox_with_a_hole_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.services.sandbox.sandbox.read_only_proc_arguments", list[str])
    with pytest.raises(SandboxError, match="isn't closed here: a command in it could write /proc/"):
        sandbox_for(place.work)


def test_neither_a_repository_with_commands_nor_a_missing_hook_folder_can_be_left(place: Place) -> None:
    place.sh("git init -q && git config core.fsmonitor ./evil")
    assert {p.name for p in place.work.iterdir()} == {".git.sandboxed"}
    shutil.rmtree(place.work / ".git.sandboxed")
    place.git("init", "--template=")
    place.git("config", "core.hooksPath", "tools/hooks")
    place.git("config", "include.path", "../team.gitconfig")
    place.sh(
        "mkdir -p .git/hooks tools/hooks; echo evil | tee .git/hooks/x tools/hooks/pre-commit team.gitconfig"
    )
    left = {str(p.relative_to(place.work)) for p in (*place.work.glob("*"), *place.work.glob("tools/*"))}
    assert left == {".git", "tools", "tools/hooks.sandboxed", "team.gitconfig.sandboxed"}
    assert not (place.work / ".git/hooks").exists()
    assert place.sh("git status --short").exit_code == 0


def test_a_repository_of_another_name_gives_no_rights_either(place: Place) -> None:
    """Git takes any folder for one that looks like it, also where a person only enters it."""
    for name, template in (("old.git", ()), ("bare.git", ("--template=",))):
        place.git("init", "-q", "--bare", *template, name)
    texts = [(place.work / name / "config").read_text() for name in ("old.git", "bare.git")]
    place.sh(
        "set='[core] fsmonitor = x'; for r in old bare; do mkdir -p $r.git/hooks; echo x > $r.git/hooks/post-update;"
        " echo $set >> $r.git/config; echo ../evil > $r.git/commondir; mv $r.git $r.moved; done;"
        " for r in set hook fine; do git init -q --bare $r.git; done; echo $set >> set.git/config;"
        " echo > hook.git/hooks/post-update; mkdir split; cp fine.git/HEAD split; echo ../set.git > split/commondir"
    )
    assert [(place.work / name / "config").read_text() for name in ("old.git", "bare.git")] == texts
    assert (
        not list(place.work.glob("*.git/hooks/post-update"))[1:]
        and not (place.work / "bare.git/hooks").exists()
    )
    aside = {str(p.relative_to(place.work)) for p in place.work.rglob("*.sandboxed")}
    assert aside == {
        *("old.git/commondir.sandboxed", "bare.git/commondir.sandboxed", "split/HEAD.sandboxed"),
        *("set.git/HEAD.sandboxed", "hook.git/HEAD.sandboxed"),
    }
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    pushed = place.sh(
        "git init -q -b a; git commit -q --allow-empty -m x; git push -q old.git a && git push -q fine.git a",
        env=identity,
    )
    assert pushed.exit_code == 0, pushed.output


def test_git_gets_no_command_from_where_the_user_or_an_extension_points_it(place: Place) -> None:
    """The user's own hook folder, a configuration for one work tree, a submodule that isn't there yet, a rebase."""
    config = place.work.parent / "gitconfig"
    config.write_text("[core]\n\thooksPath = .githooks\n[include]\n\tpath = own.gitconfig\n")
    env = {"GIT_CONFIG_GLOBAL": str(config)}
    place.git("init", "-q")
    place.git("config", "extensions.worktreeConfig", "true")
    place.git("-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "one")
    todo = "mkdir .git/rebase-merge; printf 'pick 1 a\\nexec ./evil\\n' > .git/rebase-merge/git-rebase-todo"
    place.sh(
        "mkdir .githooks; echo evil > .githooks/pre-commit; echo '[core] fsmonitor = x' > .git/config.worktree;"
        f" mkdir -p .git/modules/lib; echo '[core] fsmonitor = x' > .git/modules/lib/config; {todo}",
        env=env,
    )
    names = (".githooks", ".git/config.worktree", ".git/modules", ".git/rebase-merge")
    assert [name for name in names if (place.work / name).exists()] == []
    assert (place.work / ".githooks.sandboxed/pre-commit").exists()
    put(place.work / ".githooks/pre-commit", "ours")
    place.sh("echo evil > .githooks/pre-commit; mv .githooks x; mkdir .githooks", env=env)
    assert (place.work / ".githooks/pre-commit").read_text() == "ours"
    place.sh("mkdir .git/rebase-merge; echo 'pick 1 a' > .git/rebase-merge/git-rebase-todo")
    assert (place.work / ".git/rebase-merge").exists(), "a rebase without commands goes on later"


def test_a_protected_link_is_neither_turned_nor_is_what_it_leads_to_changed(place: Place) -> None:
    put(place.work / "docs/agents.md", "ours")
    put(place.work / "sub/x", "")
    for name in ("AGENTS.md", "sub/CLAUDE.md"):
        (place.work / name).symlink_to(place.work / "docs/agents.md")
    place.sh(
        "echo evil > docs/agents.md; mv docs d2; echo evil > e; ln -sf e AGENTS.md; ln -sf ../e sub/CLAUDE.md"
    )
    assert (place.work / "docs/agents.md").read_text() == "ours"
    assert not os.path.lexists(place.work / "AGENTS.md")
    assert {p.name for p in place.work.rglob("*.sandboxed")} == {"AGENTS.md.sandboxed", "CLAUDE.md.sandboxed"}


def test_what_is_found_by_a_protected_link_can_not_be_changed(place: Place) -> None:
    """Also where settings themselves are behind a link, which a command may turn."""
    tree(place.work, {"tools/x/SKILL.md": "ours", "own/settings.json": "ours", "x": "ours"})
    (place.work / ".claude/skills").mkdir(parents=True)
    links = {".claude/skills/x": "../../tools/x", ".claude/skills/y": "../../later/y", ".gemini": "own"}
    for name, target in links.items():
        (place.work / name).symlink_to(target)
    os.link(place.work / "x", place.work / ".claude/a.md")
    place.sh(
        "echo evil | tee tools/x/SKILL.md tools/x/new own/settings.json x; mv tools t2; mkdir -p later/y;"
        " touch later/y/a; mkdir evil; rm .gemini; ln -s evil .gemini"
    )
    found = {name: text for name, text in place.tree().items() if text != "/"}
    kept = ("tools/x/SKILL.md", "own/settings.json", "x", ".claude/a.md")
    assert {name: found.get(name) for name in kept} == dict.fromkeys(kept, "ours")
    assert not (place.work / "tools/x/new").exists() and not (place.work / "later/y").exists()
    assert (place.work / ".gemini.sandboxed").is_symlink() and not os.path.lexists(place.work / ".gemini")


def test_commits_work_and_leave_the_repository_as_git_would(place: Place) -> None:
    place.git("init", "-b", "main")
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "b", "GIT_COMMITTER_NAME": "a"}
    ended = place.sh(
        "echo one > a && git add -A && git commit -qm one && git checkout -qb side && git mv a b && git commit -qam two"
        " && git stash list && git gc -q && git status --short && git log --format=%s",
        env={**identity, "GIT_COMMITTER_EMAIL": "b"},
    )
    assert (ended.exit_code, ended.output) == (0, "two\none\n")
    assert place.git("status", "--short", "--branch") == "## side\n"
    assert place.git("ls-files") == "b\n" and not (place.work / ".git/commondir").exists()
    place.git("fsck", "--strict")


def test_a_linked_worktree_can_commit_and_its_repository_gives_no_rights(
    place: Place, tmp_path: Path
) -> None:
    main = tmp_path / "main"
    place.git("init", "-b", "main", str(main))
    place.git("commit", "--allow-empty", "-m", "first", cwd=main)
    place.work.rmdir()
    place.git("worktree", "add", "-b", "side", str(place.work), cwd=main)
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    ended = place.sh("echo one > a && git add a && git commit -qm two && git log --format=%s", env=identity)
    assert (ended.exit_code, ended.output) == (0, "two\nfirst\n")
    config = (main / ".git/config").read_text()
    place.sh(
        "c=$(git rev-parse --git-common-dir); g=$(git rev-parse --git-dir); git config a.b c;"
        " echo x > $c/hooks/post-commit; echo ../evil > $c/commondir;"
        " echo ../../evil > $g/commondir; echo gitdir: /tmp > .git; echo x > $c/../file"
    )
    assert (main / ".git/config").read_text() == config and not (main / "file").exists()
    assert not (main / ".git/hooks/post-commit").exists() and not (main / ".git/commondir").exists()
    assert place.git("log", "--format=%s", "-1") == "two\n"


@pytest.mark.parametrize("linked", [False, True])
def test_git_finds_borrowed_objects_in_a_trusted_folder_and_no_command_can_name_others(
    place: Place, tmp_path: Path, linked: bool
) -> None:
    for name in ("lender", "secret"):
        place.git("init", "-q", "-b", "main", str(tmp_path / name))
        place.git("commit", "-q", "--allow-empty", "-m", name, cwd=tmp_path / name)
    place.work.rmdir()
    clone = tmp_path / "clone" if linked else place.work
    place.git("clone", "-q", "--shared", str(tmp_path / "lender"), str(clone), cwd=tmp_path)
    if linked:
        place.git("worktree", "add", "-q", "-b", "side", str(place.work), cwd=clone)
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    commits = "echo one > a && git add a && git commit -qm two && git log --format=%s"
    assert place.sh(commits, env=identity).exit_code != 0, "nobody trusts the folder"
    ended = place.sh(commits, env=identity, is_trusted=True)
    assert (ended.exit_code, ended.output) == (0, "two\nlender\n")
    (clone / ".git/objects/info/alternates").rename(tmp_path / "kept")
    names = f"a=$(git rev-parse --git-common-dir)/objects/info/alternates; echo {tmp_path}/secret/.git/objects > $a"
    for command in (names, f"rm -rf $(git rev-parse --git-common-dir)/objects/info; {names}", "true"):
        place.sh(command, is_trusted=True)
        assert not (clone / ".git/objects/info/alternates").exists()
    assert place.sh(f"ls {tmp_path}/secret", is_trusted=True).exit_code == 2


def test_a_new_repository_borrows_no_objects(place: Place, tmp_path: Path) -> None:
    place.git("init", "-q", str(tmp_path / "secret"))
    place.sh(
        f"git init -q; echo {tmp_path}/secret/.git/objects > .git/objects/info/alternates", is_trusted=True
    )
    assert not (place.work / ".git/objects/info/alternates").exists()
    assert place.sh(f"ls {tmp_path}/secret", is_trusted=True).exit_code == 2


def test_a_git_file_alone_opens_no_folder(place: Place, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/.git/worktrees/w"
    tree(theirs, {"commondir": "../..", "gitdir": str(tmp_path / "another/.git"), "../../objects/": ""})
    (place.work / ".git").write_text(f"gitdir: {theirs}\n")
    assert place.sh(f"ls {tmp_path}/theirs").exit_code == 2
    # The workspace's own git file may name itself, but no other repository.
    ours = place.work / "own/worktrees/w"
    put(ours / "gitdir", str(place.work / ".git"))
    (ours / "commondir").write_text(str(tmp_path / "theirs/.git"))
    (place.work / ".git").write_text(f"gitdir: {ours}\n")
    assert place.sh(f"ls {tmp_path}/theirs").exit_code == 2


def test_private_files_of_the_workspace_can_not_be_opened(place: Place) -> None:
    """A folder of dependencies isn't searched for them."""
    for name in (".env", "sub/.env", "sub/deep/id_rsa", ".netrc", "shared.env"):
        put(place.work / name, "SECRET")
    put(place.work / "node_modules/p/index.js", "code")
    (place.work / "linked").mkdir()
    (place.work / "linked/.env").symlink_to("../shared.env")
    ended = place.sh(
        "cat .env sub/.env sub/deep/id_rsa .netrc shared.env linked/.env; mv sub s2; cat s2/.env; ln s2/.env hard;"
        " cat hard; rm -f .env; cp .env copy; cat copy; grep -r SEC .; cat node_modules/p/index.js"
    )
    assert "SECRET" not in ended.output and ended.output.endswith("code")
    assert (place.work / ".env").read_text() == "SECRET" and (place.work / "s2/.env").read_text() == "SECRET"


@pytest.fixture
def server() -> Iterator[int]:
    """Greets every connection."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"hello\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_the_network_is_there_only_when_settings_allow_it(place: Place, server: int) -> None:
    command = f"cat < /dev/tcp/127.0.0.1/{server}"
    assert place.sh(command, sandboxNetworkAccess=True).output == "hello\n"
    ended = place.sh(command)
    assert "hello" not in ended.output and ended.exit_code == 1
    assert ended.hint == "Sandbox: commands have no network here."


def test_agents_of_the_desktop_and_the_state_directory_are_not_reachable(
    place: Place, tmp_path: Path
) -> None:
    """The latter also where a setting names it."""
    path, state = tmp_path / "agent.sock", place.work.parent / "state"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(path))
        ended = place.sh(
            f"echo ${{SSH_AUTH_SOCK-gone}} ${{DOCKER_HOST-gone}}; ls {path} || echo no socket",
            env={"SSH_AUTH_SOCK": str(path), "DOCKER_HOST": f"unix://{path}"},
            sandboxNetworkAccess=True,
        )
    assert ended.output.startswith("gone gone\n") and ended.output.endswith("no socket\n")
    put(state / "interlock.db", "DECISIONS")
    assert place.sh(f"cat {state}/interlock.db").exit_code == 1
    opened = f"cat {state}/interlock.db; ls {state}; touch {state}/x"
    assert "DECISIONS" not in place.sh(opened, sandboxAllowedPaths=[str(state)]).output
    assert not (state / "x").exists()


def test_a_background_command_is_in_the_sandbox_too(place: Place) -> None:
    async def scene(processes: SupervisedProcesses) -> str:
        command = "touch /usr/x $HOME/x sub/AGENTS.md; mkdir .gemini; echo made; sleep 60"
        await processes.start_in_background(["bash", "-c", command], cwd=place.work, label="server")
        file = Path(processes.list_background_processes()[0]["output_file"])
        while "made" not in file.read_text():
            await asyncio.sleep(0.02)
        with workspace.open_parent_directory(
            place.work / "sub/GEMINI.md", create_missing=True
        ):  # a tool, which somebody allowed
            (place.work / "sub/GEMINI.md").write_text("")
        ended = await processes.run(["bash", "-c", "echo 1"], cwd=place.work, timeout_s=30)
        assert ended.output == "1\n"
        return file.read_text()

    (place.work / "sub").mkdir()
    workspace = FolderWorkspace(place.work)
    sandbox = sandbox_for(place.work, env={"HOME": str(place.home)})
    processes = SupervisedProcesses(
        outputs=OutputFiles(place.work.parent),
        env={"PATH": os.environ["PATH"], "HOME": str(place.home)},
        sandbox=replace(sandbox, protected=workspace.protected_paths),
    )
    try:
        output = asyncio.run(scene(processes))
    finally:
        processes.close()
    assert output.count("Read-only file system") == 1 and not (place.home / "x").exists()
    assert place.tree() == {
        ".gemini.sandboxed": "/",
        "sub": "/",
        "sub/AGENTS.md.sandboxed": "",
        "sub/GEMINI.md": "",
    }


def test_what_a_background_command_made_is_set_aside_before_another_run_obeys_it(place: Place) -> None:
    state = place.work.parent / "state"
    state.mkdir()

    async def scene(processes: SupervisedProcesses) -> list[str]:
        command = "mkdir .gemini; echo {} > .gemini/settings.json; echo > .env; touch made; sleep 60"
        await processes.start_in_background(["bash", "-c", command], cwd=place.work, label="server")
        await asyncio.to_thread(until, (place.work / "made").exists)
        warnings = [*quarantine_leftovers(state, place.work)]
        assert processes.list_background_processes()[0]["running"]
        return warnings

    env = {"PATH": os.environ["PATH"], "HOME": str(place.home)}
    sandbox = sandbox_for(place.work, env=env)
    processes = SupervisedProcesses(outputs=OutputFiles(place.work.parent), env=env, sandbox=sandbox)
    try:
        warnings = asyncio.run(scene(processes))
    finally:
        processes.close()
    assert {p.name for p in place.work.iterdir()} == {".gemini.sandboxed", ".env.sandboxed", "made"}
    assert len(warnings) == 2 and "A command of another run made '.gemini' in its sandbox" in warnings[0]
    assert not list((state / "sandbox").iterdir())


def test_what_a_tool_made_is_set_aside_if_an_older_command_changed_it(place: Place) -> None:
    desk = Desk(place.work.parent)
    workspace = FolderWorkspace(desk.root)
    desk.in_workspace(workspace)

    async def scene(processes: SupervisedProcesses) -> None:
        evil = "echo evil >> src/AGENTS.md; touch done; sleep 60"
        waits = f"touch ready; until [ -e src/go ]; do sleep 0.05; done; {evil}"
        await processes.start_in_background(["bash", "-c", waits], cwd=desk.root, label="server")
        await asyncio.to_thread(until, (desk.root / "ready").exists)
        for name in ("AGENTS.md", "CLAUDE.md"):
            written = await asyncio.to_thread(
                desk.call, "write_file", file_path=f"src/{name}", content="ours"
            )
            assert written.status == "success", written.content
        put(desk.root / "src/go")
        await asyncio.to_thread(until, (desk.root / "done").exists)

    env = {"PATH": os.environ["PATH"], "HOME": str(place.home)}
    sandbox = replace(sandbox_for(desk.root, env=env), protected=workspace.protected_paths)
    processes = SupervisedProcesses(outputs=OutputFiles(place.work.parent), env=env, sandbox=sandbox)
    try:
        asyncio.run(scene(processes))
    finally:
        processes.close()
    assert {p.name for p in (desk.root / "src").glob("*.md*")} == {"AGENTS.md.sandboxed", "CLAUDE.md"}


def test_what_a_killed_run_left_is_removed_and_an_empty_folder_of_the_users_is_not(place: Place) -> None:
    (place.work / ".gemini").mkdir()
    (place.work / ".interlock").mkdir(0o1555)
    place.sh("true")
    assert place.tree() == {".gemini": "/"}


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("touch /usr/x", "Sandbox: only the workspace can be written, and not all of it."),
        ("touch /usr/x; true", ""),
        ("exit 3", ""),
        ("echo 'Could not resolve host: a.b'; exit 6", "Sandbox: commands have no network here."),
    ],
)
def test_a_failure_that_the_sandbox_may_have_caused_says_so(place: Place, command: str, hint: str) -> None:
    assert place.sh(command).hint == hint


def test_a_sandbox_that_can_not_be_made_any_more_runs_nothing_but_our_own_programs(
    place: Place, tmp_path: Path
) -> None:
    sandbox = sandbox_for(place.work)
    (place.work / ".git").symlink_to(tmp_path)
    outputs, env = OutputFiles(tmp_path), {"PATH": os.environ["PATH"]}
    run: Callable[..., Any] = SupervisedProcesses(outputs=outputs, env=env, sandbox=sandbox).run
    ended = asyncio.run(run(["touch", "made"], cwd=place.work, timeout_s=30))
    assert ended.how == "not_started" and "is a link" in ended.output
    put(place.work / ".env", "SECRET")
    ours = asyncio.run(run(["cat", ".env"], cwd=place.work, timeout_s=30, trusted_helper=True))
    assert ours.output == "SECRET"
    assert not (place.work / "made").exists()
