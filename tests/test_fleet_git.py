"""Runs on git repositories: cloned by workers, taken over with their files, delivered."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Done, Run, run
from folders import put, tree
from patience import until
from scripted import call, shell, tools
from test_fleet import HASTY, Worker, fleet, is_told

from interlock.fleet.commits import CloneCommits, Commits, restore_commits
from interlock.fleet.mirrors import Mirror
from interlock.state.errors import RunError
from interlock.state.repository import parse_repository
from interlock.state.settings import FleetSettings

__all__ = ["fleet", "run"]

MAKE = "echo made > made.txt; chmod 750 made.txt; ln -s made.txt link; mkdir -p deep/empty; rm old.txt; touch x.o"
Begin = Callable[..., str]
COMMANDS = (MAKE, 'echo once >> "$COUNT"; sleep 0.3', "echo more >> made.txt; ls -A")
SCRIPT = [*(tools(shell(command)) for command in COMMANDS), {"text": "Made it."}]


def git(*arguments: str, at: Path) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    done = subprocess.run(("git", *own, *arguments), cwd=at, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a tracked, an ignored and an old file."""
    work = tree(tmp_path / "source", {".gitignore": "*.o\n", "old.txt": "old\n", "a.txt": "one\n"})
    put(work / "test_a.sh", "exit 1\n")
    git("init", "-q", "-b", "main", at=work)
    git("add", ".", at=work)
    git("commit", "-qm", "first", at=work)
    git("clone", "-q", "--bare", str(work), str(tmp_path / "origin.git"), at=tmp_path)
    return tmp_path / "origin.git"


@pytest.fixture
def settings(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's own settings: a scripted model, and the folder that runs may clone from."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COUNT", str(tmp_path / "count.txt"))
    script = put(tmp_path / "script.json", SCRIPT)
    trusting = {"localRepositories": [str(tmp_path)], "trustedRepositories": ["*"], "sandbox": "untrusted"}
    allowed = {"environmentVariableRedaction": {"allowed": ["COUNT"]}}
    given = {"model": {"name": f"script:{script}"}, "fleet": trusting, "security": allowed}
    return put(home / ".interlock" / "settings.json", given)


@pytest.fixture
def begin(fleet: Run, settings: Path, origin: Path) -> Begin:
    def start(*flags: str) -> str:
        done = fleet("run", "main", "--detach", "--repo", f"file://{origin}@main", "-y", *flags, "make it")
        assert done.code == 0, done.err
        return done.out.strip()

    return start


def delivered(fleet: Run, name: str, workspaces: Path) -> Done:
    """What `wait` says of a run once a worker has pushed its branch, as a person approves it."""
    with Worker("--workspaces", str(workspaces)):
        while (told := fleet("wait", name)).code == 75:
            fleet("resume", fleet("approvals", "--json").json[0]["run"], "--approve", "all")
    return told


def test_a_host_that_takes_over_has_the_same_files_and_no_effect_is_doubled(
    fleet: Run, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, count = begin(), tmp_path / "count.txt"
    one, two = tmp_path / "one", tmp_path / "deep" / "two"  # which the workers make
    first = Worker("--workspaces", str(one))
    until(count.exists)
    was = _tree(one / name)
    first.end(signal.SIGKILL)
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "another-state"))
    # The call that was killed has no snapshot after it, and this state has none of the clone's objects.
    assert "+made" in fleet("diff", name, "--files").out
    with Worker("--workspaces", str(two), program=HASTY):
        assert fleet("wait", name).code == 75
        assert _tree(two / name) == {path: was[path] for path in was if path != "x.o"}
        is_told(fleet, name)
    assert count.read_text() == "once\n"
    assert fleet("show", name, "--verify").code == 0
    assert "moved to another host" in fleet("export", name, "--format", "markdown").out


@pytest.mark.sweep
def test_a_host_that_takes_over_compares_with_the_tests_that_the_run_began_with(
    fleet: Run, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = 'touch "$COUNT"; sleep 600'
    replies = [
        tools(shell("echo true > test_a.sh; cp test_a.sh test_b.sh")),
        tools(shell(wait)),
        {"text": "Done."},
    ]
    put(tmp_path / "script.json", replies)
    name = begin("--check", "sh test_a.sh")
    first = Worker("--workspaces", str(tmp_path / "one"))
    until((tmp_path / "count.txt").exists)
    first.end(signal.SIGKILL)
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "another-state"))
    with Worker("--workspaces", str(tmp_path / "two"), program=HASTY):
        assert fleet("wait", name).code == 75
        fleet("resume", name, "--answer", "1=skip")
        assert fleet("wait", name).code == 75
        (request,) = fleet("approvals", "--json").json
    assert "with test_a.sh, test_b.sh as before" in request["reason"], request


ASKS = """[[rule]]
toolName = "run_shell_command"
commandPrefix = "git push"
decision = "ask_user"
priority = 900
"""


@pytest.mark.sweep
def test_a_run_pushes_a_branch_with_what_it_changed_once_a_person_approves_and_leaves_a_patch(
    fleet: Run, begin: Begin, tmp_path: Path, origin: Path
) -> None:
    (clones := tmp_path / "one").mkdir()
    (rules := tmp_path / "asks.toml").write_text(ASKS)
    name = begin("--deliver", "branch", "--policy", str(rules))
    with Worker("--workspaces", str(clones)):
        told = fleet("wait", name)
        (request,) = fleet("approvals", "--json").json
        assert (told.code, told.out.splitlines()) == (
            75,
            [
                f"{name}  done; {request['run']} pushes what it changed",
                "  not delivered: 'deep/', 'x.o' (ignored by git, private or over 20 MB)",
                f"{request['run']}  waiting",
            ],
        )
        assert request["args"]["command"] == f"git push file://{origin} HEAD:refs/heads/interlock/{name}"
        assert git("branch", at=origin) == "* main"
        hook = put(origin / "hooks/pre-receive", "#!/bin/sh\nexit 1\n")
        fleet("resume", request["run"], "--approve", str(request["number"]))
        assert fleet("wait", name).code == 1
        again = f"interlock resume {name} --detach"
        assert f"To push again: {again}" in fleet("show", request["run"]).out
        hook.unlink()
        fleet(*again.split()[1:])
        assert fleet("wait", name).code == 75
        (request,) = fleet("approvals", "--json").json
        fleet("resume", request["run"], "--approve", str(request["number"]))
        assert fleet("wait", name).code == 0
        assert f"interlock/{name}" in git("branch", at=origin)
        assert not (clones / name).exists()
    branch = f"interlock/{name}"
    assert git("diff", "--name-status", "main", branch, at=origin).split() == [
        *("A", "link", "A", "made.txt", "D", "old.txt")
    ]
    assert git("show", f"{branch}:made.txt", at=origin) == "made\nmore"
    assert git("log", "-1", "--format=%s", branch, at=origin) == "make it"
    git("clone", "-q", str(origin), "again", at=tmp_path)
    (tmp_path / "changes.patch").write_text(fleet("export", name, "--format", "patch").out)
    git("apply", "../changes.patch", at=tmp_path / "again")
    assert (tmp_path / "again" / "made.txt").read_text() == "made\nmore\n"


@pytest.mark.sweep
def test_a_runs_own_commits_branch_and_index_survive_a_takeover_and_are_delivered(
    fleet: Run, begin: Begin, tmp_path: Path, origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = "git -c user.name=agent -c user.email=agent@host"
    waits = f"touch {tmp_path}/third; until test -e {tmp_path}/go; do sleep .1; done"
    tells = "git log --format=%s > log.txt; git status --short > status.txt; git tag > tags.txt"
    lines = (
        f"git checkout -q -b topic && echo two > a.txt && {me} commit -qam second && {me} tag mine",
        "echo staged > staged.txt && git add staged.txt && echo changed > staged.txt",
        f"{waits}; {tells}; {me} commit -qm third",
    )
    put(tmp_path / "script.json", [*(tools(shell(line)) for line in lines), {"text": "Done."}])
    name = begin("--deliver", "branch")
    one, two = tmp_path / "one", tmp_path / "two"
    first = Worker("--workspaces", str(one))
    until((tmp_path / "third").exists)
    first.end(signal.SIGKILL)
    put(tmp_path / "go")
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "another-state"))
    with Worker("--workspaces", str(two), program=HASTY):
        told = fleet("wait", name)
        while told.code == 75:
            (request,) = fleet("approvals", "--json").json
            answer = (
                ["--answer", f"{request['number']}=redo"] if "redo" in str(request) else ["--approve", "all"]
            )
            assert fleet("resume", request["run"], *answer).code in (0, 75)
            told = fleet("wait", name)
    assert told.code == 0, told.out + told.err
    branch = f"interlock/{name}"
    subjects = git("log", "--format=%an %s", branch, at=origin).splitlines()
    assert [line for line in subjects if "agent" in line] == ["agent third", "agent second"]
    assert subjects[-1].endswith("first")
    assert git("show", f"{branch}:log.txt", at=origin).split() == ["second", "first"]
    assert "AM staged.txt" in git("show", f"{branch}:status.txt", at=origin)
    assert git("show", f"{branch}:tags.txt", at=origin) == "mine"
    assert git("show", "--format=", "--name-only", f"{branch}~1", at=origin) == "staged.txt"
    assert git("show", f"{branch}~1:staged.txt", at=origin) == "staged", "as it was in the index"
    assert git("show", f"{branch}:staged.txt", at=origin) == "changed"
    assert git("show", f"{branch}:a.txt", at=origin) == "two"
    assert "+two" in fleet("export", name, "--format", "patch").out


@pytest.mark.sweep
def test_commits_with_a_file_that_may_hold_a_key_are_pushed_as_one_without_it(
    fleet: Run, begin: Begin, tmp_path: Path, origin: Path
) -> None:
    me = "git -c user.name=agent -c user.email=agent@host"
    add = f"echo x > server.pem && git add . && {me} commit -qm one"
    line = f"{add} && git rm -q server.pem && echo two > a.txt && {me} commit -qam two"
    put(tmp_path / "script.json", [tools(shell(line)), {"text": "Done."}])
    name = begin("--deliver", "branch")
    assert delivered(fleet, name, tmp_path / "one").code == 0
    branch = f"interlock/{name}"
    assert git("log", "--format=%s", f"main..{branch}", at=origin) == "make it"
    assert git("log", "--format=", "--name-only", f"main..{branch}", at=origin) == "a.txt"
    assert git("show", f"{branch}:a.txt", at=origin) == "two"


def test_a_clones_repository_is_read_without_its_links_settings_and_other_repositories(
    tmp_path: Path, origin: Path
) -> None:
    other = tree(tmp_path / "other", {"secret.txt": "of somebody else\n"})
    git("init", "-q", "-b", "main", at=other)
    git("add", ".", at=other)
    git("commit", "-qm", "theirs", at=other)
    theirs = git("rev-parse", "HEAD", at=other)
    mine = FleetSettings.model_validate({"localRepositories": [str(tmp_path)]})
    mirror = Mirror.for_repository(parse_repository(f"file://{origin}"), tmp_path / "clones", mine)
    commit = mirror.fetch_commit()

    def clone(name: str) -> Path:
        (folder := tmp_path / name).mkdir()
        mirror.clone_commit_into(commit, folder)
        return folder

    def read(folder: Path) -> bytes | None:
        return CloneCommits(folder, mirror, commit).read_commits_if_changed()

    assert read(clone("untouched")) is None
    borrows = clone("borrows")
    put(borrows / ".git/objects/info/alternates", f"{other}/.git/objects\n")
    git("update-ref", "refs/heads/theirs", theirs, at=borrows)
    with pytest.raises(RunError, match="own commits can't be kept"):
        read(borrows)
    links = clone("links")
    for folder in (other / ".git/objects").iterdir():
        shutil.rmtree(links / ".git/objects" / folder.name, ignore_errors=True)
        (links / ".git/objects" / folder.name).symlink_to(folder)
    put(links / ".git/refs/heads/theirs", f"{theirs}\n")
    with pytest.raises(RunError, match="own commits can't be kept"):
        read(links)
    elsewhere = clone("elsewhere")
    shutil.rmtree(elsewhere / ".git")
    (elsewhere / ".git").symlink_to(other / ".git")
    with pytest.raises(RunError, match="is no folder"):
        read(elsewhere)
    hooked = clone("hooked")
    ran = put(tmp_path / "evil", f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    ran.chmod(0o755)
    for name in ("core.fsmonitor", "core.alternateRefsCommand", "core.sshCommand", "core.hooksPath"):
        git("config", name, str(ran), at=hooked)
    put(hooked / "a.txt", "two\n")
    git("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/", "commit", "-qam", "mine", at=hooked)
    kept = Commits.from_bytes(read(hooked) or b"")
    assert kept.head_commit == git("-c", "core.fsmonitor=false", "rev-parse", "HEAD", at=hooked)
    assert not (tmp_path / "ran").exists()
    restore_commits(kept, again := clone("again"))
    assert git("log", "--format=%s", at=again) == "mine\nfirst"


def test_what_is_not_delivered_is_named(fleet: Run, begin: Begin, tmp_path: Path, origin: Path) -> None:
    line = "mkdir -p out deep; echo x | tee a.o out/b.o deep/.env kept.txt; truncate -s 21000000 deep/big.bin"
    put(tmp_path / "script.json", [tools(shell(line)), {"text": "Made it."}])
    put(tmp_path / "source" / "x.o")
    name = begin("--deliver", "branch")
    told = delivered(fleet, name, tmp_path / "one")
    assert told.code == 0, told.err
    left = ["a.o", "deep/", "out/"]
    assert "not delivered: 'a.o', 'deep/', 'out/' (ignored by git" in told.out
    assert "not delivered: 'a.o', 'deep/', 'out/'" in fleet("show", name).out
    assert fleet("show", name, "--json").json["not_delivered"] == left
    about = git("log", "-1", "--format=%B", f"interlock/{name}", at=origin)
    assert [line.split()[1] for line in about.splitlines() if line.startswith("Interlock-Not-Pushed")] == left
    patch = fleet("export", name, "--format", "patch").out
    assert patch.startswith("Not in this patch: 'a.o'\n")
    git("clone", "-q", str(origin), "again", at=tmp_path)
    (tmp_path / "changes.patch").write_text(patch)
    git("apply", "../changes.patch", at=tmp_path / "again")
    assert (tmp_path / "again" / "kept.txt").read_text() == "x\n"


def test_files_that_may_hold_keys_are_not_pushed_unasked_and_are_named(
    fleet: Run, begin: Begin, tmp_path: Path, origin: Path
) -> None:
    made = "mkdir deep; for f in server.pem deep/.env2 .env.example kept.txt; do echo x > $f; done; echo y >> a.txt"
    put(tmp_path / "script.json", [tools(shell(made)), {"text": "Made it."}])
    name = begin("--deliver", "branch")
    told = delivered(fleet, name, tmp_path / "one")
    assert told.code == 0, told.err
    assert "but not deep/.env2, server.pem: they may hold keys" in told.out
    branch = f"interlock/{name}"
    pushed = git("diff", "--name-only", "main", branch, at=origin).split()
    assert pushed == [".env.example", "a.txt", "kept.txt"]
    about = git("log", "-1", "--format=%B", branch, at=origin)
    assert "Interlock-Not-Pushed: server.pem" in about and "Interlock-Not-Pushed: deep/.env2" in about
    assert "+++ b/server.pem" in fleet("export", name, "--format", "patch").out, (
        "the patch is the person's own"
    )


@pytest.mark.sweep
def test_a_host_without_the_clone_shows_forks_and_undoes_what_a_run_did(
    fleet: Run, settings: Path, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [call("write_file", file_path="made.txt", content="made\n"), shell("echo two >> a.txt")]
    script = [*map(tools, calls), {"text": "Made it."}]
    put(tmp_path / "script.json", script)
    for name in ("one", "two", "laptop"):
        (tmp_path / name).mkdir()
    name = fleet("run", "main", "--detach", "--repo", f"file://{origin}", "make it").out.strip()
    first = Worker("--workspaces", str(tmp_path / "one"))
    for _ in calls:
        fleet("resume", name, "--approve", "all")
        assert fleet("wait", name).code == 75
    assert first.end() == 0
    shutil.rmtree(tmp_path / "one")
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "another-state"))
    monkeypatch.chdir(tmp_path / "laptop")
    assert "+made" in fleet("diff", name, "--files").out
    forked = fleet("fork", name, "--at", "3", "--json").json
    assert Path(forked["workspace"], "made.txt").read_text() == "made\n"
    assert "aren't on this host" in fleet("rewind", name, "--at", "1", "--yes").err
    assert fleet("undo", name).out == "D made.txt\n"
    with Worker("--workspaces", str(tmp_path / "two")):
        fleet("resume", name, "--approve", "all")
        assert fleet("wait", name).code == 0
    patch = fleet("export", name, "--format", "patch").out
    assert "+two" in patch and "made.txt" not in patch
    assert "can't be undone here" in fleet("undo", name).err


def hang_in_diff(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let `git diff` wait as long as the file that is returned is there; another, `hang.ed`, tells that it does."""
    (hang := folder / "hang").touch()
    hangs = f'case "$*" in *" diff "*) while test -e {hang}; do touch {hang}.ed; sleep 0.1; done;; esac'
    wrapper = put(folder / "bin" / "git", f'#!/bin/sh\n{hangs}\nexec {shutil.which("git")} "$@"\n')
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return hang


@pytest.mark.sweep
def test_what_a_run_changed_is_delivered_though_its_worker_died_before_that(
    fleet: Run, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = hang_in_diff(tmp_path, monkeypatch)
    (clones := tmp_path / "one").mkdir()
    name, first = begin(), Worker("--workspaces", str(clones))
    until(lambda: Path(f"{hang}.ed").exists())
    assert fleet("wait", name, "--timeout", "1s").code == 124
    first.end(signal.SIGKILL)
    hang.unlink()
    with Worker("--workspaces", str(clones)):
        assert fleet("wait", name).code == 0
        assert "+made" in fleet("export", name, "--format", "patch").out


@pytest.mark.sweep
def test_what_a_host_couldnt_keep_of_git_is_named_with_that_host_once_another_one_delivers(
    fleet: Run, begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang = hang_in_diff(tmp_path, monkeypatch)
    put(
        tmp_path / "script.json",
        [tools(shell("find .git -maxdepth 1 -name HEA? -delete; touch x.o made.txt")), {"text": "Made it."}],
    )
    one, two = tmp_path / "one", tmp_path / "two"
    name, first = begin(), Worker("--workspaces", str(one))
    until(lambda: Path(f"{hang}.ed").exists())
    left = fleet("show", name, "--json").json["not_delivered"]
    assert left[:-1] == ["x.o"] and left[-1].startswith(".git: The clone's own git repository can't be read")
    first.end(signal.SIGKILL)
    hang.unlink()
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "another-state"))
    with Worker("--workspaces", str(two), program=HASTY):
        assert fleet("wait", name).code == 0
    place = f"{os.uname().nodename}:{one}"
    moved = fleet("show", name, "--json").json["not_delivered"]
    assert moved == ["x.o", f".git in {place}: its commits couldn't be kept"]


REFUSED = {
    "ext::sh -c 'touch /tmp/x'": "isn't a repository address",
    "ext::sh": "uses a transport that isn't allowed",
    "/srv/repository": "isn't a repository address",
    "-uhttps://example.com/a": "isn't a repository address",
    "https://example.com/a@-x": "isn't a branch, tag or commit",
    "https://me:secret@example.com/a": "holds a password or a token",
    "https://secret@example.com/a": "holds a password or a token",
}


def test_a_repository_that_is_not_there_is_refused_when_the_run_is_submitted(
    fleet: Run, tmp_path: Path, origin: Path
) -> None:
    git("init", "-q", "--bare", str(tmp_path / "empty.git"), at=tmp_path)
    wrong = {
        f"file://{tmp_path}/gone.git": "does not appear to be a git repository",
        f"file://{tmp_path}/empty.git": "it is empty",
        f"file://{origin}@nosuch": "has no branch or tag 'nosuch'",
    }
    for address, why in wrong.items():
        told = fleet("run", "main", "--detach", "--repo", address, "do it")
        assert (told.code, why in told.err, told.err.count("\n")) == (2, True, 1), told.err
    assert fleet("runs", "--json").json == []
    unreachable = fleet("run", "main", "--detach", "--repo", "http://127.0.0.1:1/a", "do it")
    assert unreachable.code == 0, "a worker may reach it"


def test_an_address_that_no_worker_may_clone_is_refused_without_its_password(fleet: Run, home: Path) -> None:
    for address, why in REFUSED.items():
        told = fleet("run", "main", "--detach", f"--repo={address}", "do it")
        assert (told.code, why in told.err, "secret" in told.err) == (2, True, False), told.err
        assert told.err.count("\n") == 1
    for flags in (["-C", "."], ["--include-directories", "."], ["-m", "script:x.json"]):
        told = fleet("run", "main", "--detach", "--repo", "https://example.com/a", *flags, "do it")
        assert (told.code, "names a file of this host" in told.err) == (2, True), told.err
    assert "Add --detach" in fleet("run", "main", "--repo", "https://example.com/a", "do it").err
    assert fleet("runs", "--json").json == []


def test_a_repository_that_cannot_be_cloned_says_why(tmp_path: Path, origin: Path) -> None:
    mine = FleetSettings.model_validate({"localRepositories": [str(tmp_path)]})

    def cloned(address: str, settings: FleetSettings = mine) -> str:
        with pytest.raises(RunError) as refused:
            Mirror.for_repository(parse_repository(address), tmp_path / "clones", settings).fetch_commit()
        return str(refused.value)

    assert "is a folder of the worker" in cloned(f"file://{origin}", FleetSettings.model_validate({}))
    assert "can't be cloned" in cloned(f"file://{tmp_path}/missing")
    assert "has no branch, tag or commit 'nope'" in cloned(f"file://{origin}@nope")
    git("init", "-q", "--bare", "empty.git", at=tmp_path)
    assert "it is empty" in cloned(f"file://{tmp_path}/empty.git")


def test_nothing_of_a_repository_is_executed_when_it_is_checked_out(
    home: Path, tmp_path: Path, origin: Path
) -> None:
    evil = tmp_path / "evil"
    (home / ".gitconfig").write_text(f'[filter "evil"]\nsmudge = touch {evil}\nclean = touch {evil}\n')
    source = tmp_path / "source"
    (source / ".gitattributes").write_text("* filter=evil\n")
    (source / ".gitmodules").write_text('[submodule "x"]\npath = x\nurl = ext::sh -c touch% evil\n')
    git("add", ".gitmodules", ".gitattributes", at=source)
    git("commit", "-qm", "evil", at=source)
    evil.unlink(missing_ok=True)  # the filter ran here: it works
    git("push", "-q", str(origin), "main", at=source)
    (origin / "hooks").mkdir(exist_ok=True)
    mine = FleetSettings.model_validate({"localRepositories": [str(tmp_path)]})
    mirror = Mirror.for_repository(parse_repository(f"file://{origin}@main"), tmp_path / "clones", mine)
    (folder := tmp_path / "clone").mkdir()
    mirror.clone_commit_into(mirror.fetch_commit(), folder)
    assert (folder / "a.txt").read_text() == "one\n"
    assert not evil.exists()


def _tree(folder: Path) -> dict[str, object]:
    """Path → mode, and bytes or target, of what isn't git's own."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if ".git" not in path.relative_to(folder).parts:
            what = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            found[str(path.relative_to(folder))] = (path.lstat().st_mode, what)
    return found
