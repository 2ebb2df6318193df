"""Plain reading commands need no approval; whatever may write, run something or read elsewhere does."""

import asyncio
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from folders import put, table, tree

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.services.secrets.environment import tool_environment
from interlock.state.calls import CallView, Verdict
from interlock.state.settings import Settings

IDENTITY = {
    **os.environ,
    **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
GROUPS: dict[str, Any] = table(__file__, "reading_lines.yaml")
PLAIN, ASKED = GROUPS["plain"], GROUPS["asked"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reading") / "work"
    names = (
        "a.txt",
        "b.txt",
        ".env",
        "ignored.log",
        "src/b.py",
        "secret/id_rsa",
        "node_modules/x.js",
        "deep/.env",
    )
    odd = ("deep/a.txt", "dash/--include=x.txt", "deep/--from-file=/etc/passwd", "twin/x")
    tree(root, dict.fromkeys((*names, *odd), "foo\n"))
    tree(root, {"tests/": "", "links/": "", ".gitignore": "*.log\nnode_modules\nsecret\n"})
    for name in ("link", "links/x"):
        (root / name).symlink_to("/etc/passwd")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def policy_of(root: Path, **tools: object) -> RulePolicy:
    return RulePolicy(WorkspaceRules([], Settings.model_validate({"tools": tools}), FolderWorkspace(root)))


def decision(policy: RulePolicy, line: str, mode: str = "default", **args: str) -> str:
    call = CallView(id="1", name="run_shell_command", args={"command": line, **args})
    return policy.check(call, "execute", mode).decision


def test_plain_reading_commands_are_allowed_and_what_may_write_run_something_or_read_elsewhere_asks(
    root: Path,
) -> None:
    policy = policy_of(root)
    assert [x for x in PLAIN if decision(policy, x) != "allow"] == []
    assert [x for x in PLAIN if decision(policy, x, "auto_edit") != "allow"] == []
    assert [x for x in ASKED if decision(policy, x) != "ask"] == []


def test_a_setting_turns_the_rule_off_and_plan_mode_has_none(root: Path) -> None:
    policy = policy_of(root, readingCommands=False)
    assert {decision(policy, line) for line in PLAIN} == {"ask"}
    assert decision(policy_of(root), "ls", "plan") == "deny"


def test_policy_check_names_the_rule_and_the_setting(root: Path) -> None:
    call = CallView(id="1", name="run_shell_command", args={"command": "ls src && rm x"})
    shown = policy_of(root).explain_decision(call, "execute", "default")
    first, second = shown.parts
    assert first.rule.startswith("built-in rule") and "tools.readingCommands" in first.reason
    assert (first.decision, second.decision) == ("allow", "ask")
    met = {c.met for c in shown.considered if c.rule == first.rule}
    assert met == {"yes"}


def test_a_folder_that_the_call_names_is_held_to_the_same_paths(root: Path) -> None:
    policy = policy_of(root)
    assert decision(policy, "cat b.py", dir_path="src") == "allow"
    assert decision(policy, "cat ../.env", dir_path="src") == "ask"
    assert decision(policy, "ls", dir_path="..") == "ask"


def test_a_path_that_leads_each_process_elsewhere_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/proc/self/cwd` is the folder of the program when it decides, and that of the command when it runs."""
    for folder in ("sub", "tools"):
        put(tmp_path / folder / "b.txt", "b\n")
    (tmp_path / "sub" / "a.txt").symlink_to("/etc/passwd")
    (tmp_path / "sub" / "here").symlink_to("/proc/self/cwd")
    (tmp_path / "sub" / "far").symlink_to("../sub/here")
    monkeypatch.chdir(tmp_path)
    policy = policy_of(tmp_path)
    for path in (
        "/proc/self/cwd/a.txt",
        "/proc/self/cwd",
        "/proc/thread-self/cwd/a.txt",
        f"/proc/self/fd/99/../../../..{tmp_path}/a.txt",
        "here/a.txt",
        "far/tools/../a.txt",
    ):
        assert decision(policy, f"cat {path}", dir_path="sub") == "ask", path
        assert decision(policy, f"wc -l < {path}", dir_path="sub") == "ask", path
        assert decision(policy, f"echo x > {path}", "auto_edit", dir_path="sub") == "ask", path
    mine = policy_of(tmp_path, allowed=["run_shell_command(cp)"])
    assert decision(mine, "cd tools && cp x /proc/self/cwd/b.txt") == "ask"
    assert decision(mine, "cp x /dev/stderr") == decision(policy, "cat b.txt", dir_path="sub") == "allow"


GIT = GROUPS["git"]
EVIL = "printf '[core]\\n\\tfsmonitor = ./evil\\n' >>"


@pytest.mark.parametrize(
    ("prepared", "done", "asked", "allowed"),
    [
        *(
            ("git init -q; mkdir sub", f"printf %s {shlex.quote(setting)} >> .git/config", line, "ls")
            for setting in GIT["settings"]
            for line in ("git status", "cd sub && git diff")[: 1 if setting != GIT["settings"][0] else 2]
        ),
        *GIT["from then on"],
    ],
)
def test_git_is_asked_about_from_the_moment_it_may_run_or_show_something_else(
    tmp_path: Path, prepared: str, done: str, asked: str, allowed: str
) -> None:
    root = tmp_path / "work"
    root.mkdir()
    subprocess.run(prepared.replace("EVIL", EVIL), shell=True, cwd=root, check=True)
    assert [decision(policy_of(root), line) for line in (asked, allowed)] == ["allow", "allow"]
    subprocess.run(done.replace("EVIL", EVIL), shell=True, cwd=root, check=True)
    assert [decision(policy_of(root), line) for line in (asked, allowed)] == ["ask", "allow"]


@pytest.mark.parametrize(("prepared", "asked", "allowed"), GIT["at once"])
def test_git_is_asked_about_where_it_is_not_clear_what_it_reads(
    tmp_path: Path, prepared: str, asked: str, allowed: str
) -> None:
    subprocess.run(prepared.replace("EVIL", EVIL), shell=True, cwd=tmp_path, check=True)
    assert [decision(policy_of(tmp_path), line) for line in (asked, allowed)] == ["ask", "allow"]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits: a.txt; .env; .env renamed to b.txt; kept.txt (in .geminiignore); b.txt changed. A stash with an .env."""
    root = tmp_path_factory.mktemp("history") / "work"

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(root), *words], check=True, capture_output=True, text=True, env=IDENTITY
        )
        return done.stdout.strip()

    def commit(**files: str) -> None:
        for name, text in files.items():
            (root / name.replace("_", ".")).write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", "x")
        git("tag", f"t{git('rev-list', '--count', 'HEAD')}")

    root.mkdir()
    git("init", "-q", "-b", "main")
    commit(a_txt="1\n")
    commit(_env="KEY=secret\nmore\nand more\n", c_txt="c\n")
    git("tag", "blob", git("rev-parse", "HEAD:.env"))
    git("mv", ".env", "b.txt")
    commit(a_txt="2\n")
    commit(_geminiignore="kept.txt\n", kept_txt="kept\n")
    (root / ".env").write_text("KEY=other\n")
    git("add", "-A")
    git("stash", "-q")
    commit(b_txt="none\n", a_txt="3\n")
    return root


@pytest.mark.parametrize("verdict", ["ask", "allow"])
def test_git_shows_no_file_of_its_history_that_tools_may_not_read(history: Path, verdict: str) -> None:
    policy, lines = policy_of(history), GIT["history"][verdict]
    assert [line for line in lines if decision(policy, line) != verdict] == []


def test_the_loop_goes_on_while_git_is_asked(
    history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git answers only after the loop has done something else."""
    git, asked, answer = tmp_path / "git", tmp_path / "asked", tmp_path / "answer"
    wait = f"touch {asked}; while [ ! -e {answer} ]; do sleep 0.02; done"
    put(git, f'#!/bin/sh\n{wait}\nexec {shutil.which("git")} "$@"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    async def other_work() -> None:
        while not asked.exists():
            await asyncio.sleep(0.01)
        answer.touch()

    async def both() -> tuple[Verdict, None]:
        call = CallView(id="1", name="run_shell_command", args={"command": "git log -p -1 -- a.txt"})
        return await asyncio.gather(
            policy_of(history).decide_by_rules_and_checkers(call, "execute", "default"), other_work()
        )

    assert asyncio.run(both())[0].decision == "allow"


@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore", "sub/.rgignore", "../.ignore"])
@pytest.mark.parametrize("line", ["!.env", "!.e*", "!*", "!sub/.env"])
def test_ripgrep_is_asked_about_where_an_ignore_file_brings_a_secret_back(
    tmp_path: Path, name: str, line: str
) -> None:
    root = tmp_path / "work"
    put(root / "sub" / ".env", "foo\n")
    (root / name).write_text("x\n!.gitkeep\n")
    assert decision(policy_of(root), "rg foo") == "allow"
    (root / name).write_text(f"x\n{line}\n")
    assert decision(policy_of(root), "rg foo") == "ask"


@pytest.mark.parametrize(
    "place", [".git/info/exclude", "home/.config/git/ignore", "home/mine", "sub/.git/info/exclude"]
)
def test_ripgrep_is_asked_about_where_git_s_own_lists_bring_a_secret_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    root, home = tmp_path / "work", tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    put(home / ".gitconfig", f"[core]\n\texcludesFile = {home}/mine\n")
    put(root / "sub" / ".env", "foo\n")
    for folder in (root, root / "sub"):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    assert decision(policy_of(root), "rg foo") == "allow"
    put(tmp_path / place if place.startswith("home") else root / place, "!.env\n")
    assert decision(policy_of(root), "rg foo") == "ask"


@pytest.mark.parametrize(
    ("setting", "made"),
    [("hooksPath = .githooks", ".githooks/post-index-change"), ("fsmonitor = tools/watch", "tools/watch")],
)
def test_git_is_asked_about_where_the_user_s_settings_run_what_lies_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, made: str
) -> None:
    root, settings = tmp_path / "work", tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    settings.write_text("[core]\n\thooksPath = /nowhere\n\tfsmonitor = true\n")
    assert decision(policy_of(root), "git status") == "allow"
    settings.write_text(f"[core]\n\t{setting}\n")
    put(root / made, "#!/bin/sh\n")
    assert decision(policy_of(root), "git status") == "ask"


PRIVATE = GROUPS["private"]


def test_a_file_that_tools_may_not_read_is_asked_about_in_every_mode_unless_a_rule_names_the_command(
    root: Path,
) -> None:
    policy, own = policy_of(root), policy_of(root, allowed=["run_shell_command(cat .env)"])
    (root / "linked").unlink(missing_ok=True)
    (root / "linked").symlink_to(".env")
    assert [x for x in PRIVATE["shown"] if decision(policy, x, "yolo") != "ask"] == []
    assert [x for x in PRIVATE["not shown"] if decision(policy, x, "yolo") != "allow"] == []
    assert [decision(own, "cat .env", mode) for mode in ("default", "yolo")] == ["allow", "allow"]
    assert decision(own, "cat deep/.env", "yolo") == "ask"


def test_the_history_of_a_private_file_is_asked_about_in_every_mode(history: Path) -> None:
    policy = policy_of(history)
    for line in (
        "git show t2",
        "git log -L1,2:b.txt",
        "git show t2:.env",
        "cat kept.txt",
        "git log -p --all",
    ):
        assert decision(policy, line, "yolo") == "ask", line
    for line in ("git show t1", "git status", "git log --oneline", "git log -L1,1:a.txt"):
        assert decision(policy, line, "yolo") == "allow", line


def test_git_takes_no_folder_of_files_for_a_repository(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    env = tool_environment({"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    ran = subprocess.run(["git", "rev-parse"], cwd=bare, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode != 0 and "bareRepository" in ran.stderr


def test_a_program_that_the_project_brings_along_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for place in (tmp_path / "bin" / "ls", tmp_path / "ls", tmp_path / "bin" / "nice", tmp_path / "nice"):
        place.write_text("#!/bin/sh\n")
    for path in (f"{tmp_path}/bin:/usr/bin", "bin:/usr/bin", "/usr/bin:.", "/usr/bin::"):
        monkeypatch.setenv("PATH", path)
        assert decision(policy_of(tmp_path), "ls") == "ask"
        assert decision(policy_of(tmp_path), "nice pwd") == "ask"
        assert decision(policy_of(tmp_path), "pwd && timeout 5 pwd") == "allow"
