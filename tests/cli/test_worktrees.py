"""Runs in git worktrees: made beside the repository, listed, merged, removed; and nothing in them is lost unasked."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Done, Run
from folders import put, tree
from scripted import says

from interlock.engine.options import Options
from interlock.engine.worktrees import enter_worktree
from interlock.services.trust.decisions import is_trusted, record_trust_decision
from interlock.state.errors import UserError

WRITES = [says("write_file", file_path="new.txt", content="made\n"), {"text": "done"}]
Start = Callable[..., Done]
GIT = ("git", "-c", "protocol.file.allow=always")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        [*GIT, "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a name for commits."""
    folder = tmp_path / "home"
    put(folder / ".gitconfig", "[user]\n\tname = a\n\temail = a@b.c\n[init]\n\tdefaultBranch = main\n")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    return folder


@pytest.fixture
def work(home: Path, tmp_path: Path) -> Path:
    """A repository with one commit, an ignored file, and an uncommitted change."""
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    tree(folder, {"a.py": "a\n", "sub/b.py": "b\n", ".gitignore": ".env\nbuild/\n"})
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def start(run: Run, work: Path, tmp_path: Path) -> Start:
    """Start a run that writes `new.txt`, with these flags."""
    script = put(tmp_path / "script.json", WRITES)

    def begin(*flags: str) -> Done:
        return run("-m", f"script:{script}", "-y", "-p", "go", "-o", "json", *flags)

    return begin


def worktree(work: Path, name: str) -> Path:
    return work.with_name(f"{work.name}.worktrees") / name


def test_a_run_works_on_a_branch_of_its_own_and_the_repository_stays_as_it_is(
    start: Start, run: Run, work: Path
) -> None:
    put(work / "a.py", "changed by hand\n")
    done = start("-w", "fix/login")
    assert done.code == 0, done.err
    place = worktree(work, "fix-login")
    assert (place / "new.txt").read_text() == "made\n" and not (work / "new.txt").exists()
    assert (place / "a.py").read_text() == "a\n" and (work / "a.py").read_text() == "changed by hand\n"
    assert git(place, "branch", "--show-current") == "worktree-fix/login\n"
    told = " ".join(done.json["warnings"])
    assert "worktree-fix/login" in told and "1 file with uncommitted changes" in told
    (listed,) = run("worktrees", "--json").json
    assert (listed["name"], listed["changed"]) == ("fix/login", ["new.txt"])
    assert listed["runs"] == [{"run": done.json["session_id"], "status": "done"}]


def test_a_name_that_is_there_is_used_again_with_its_branch(start: Start, run: Run, work: Path) -> None:
    start("-w", "one")
    put(worktree(work, "one") / "kept.txt", "kept")
    done = start("-w", "one")
    assert any("Uses the worktree" in line for line in done.json["warnings"])
    assert (worktree(work, "one") / "kept.txt").read_text() == "kept"
    git(work, "worktree", "remove", "--force", str(worktree(work, "one")))
    git(work, "commit", "-q", "--allow-empty", "-m", "second")
    (left,) = run("worktrees", "--json").json
    assert (left["branch"], left["path"], left["unmerged_commits"]) == ("worktree-one", None, 0)
    assert "Branches without a worktree: worktree-one." in run("worktrees").err
    done = start("-w", "one")
    assert any("which existed already" in line for line in done.json["warnings"])
    assert git(worktree(work, "one"), "log", "--format=%s") == "first\n"


def test_listed_untracked_files_come_along_if_the_folder_is_trusted(
    start: Start, work: Path, home: Path
) -> None:
    tree(
        work,
        {
            ".worktreeinclude": ".env\n*.local\n!no.local\n",
            ".env": "KEY=1",
            "yes.local": "1",
            "no.local": "1",
            'Dou\u0161a "1" \U0001f44d.local': "1",
        },
    )
    (work / os.fsdecode(b"caf\xe9.local")).touch()
    (work / "link.local").symlink_to("/etc/passwd")
    (work / ".env").chmod(0o600)
    done = start("-w", "untrusted")
    assert not (worktree(work, "untrusted") / ".env").exists()
    assert any("Interlock ignored .worktreeinclude" in line for line in done.json["warnings"])
    record_trust_decision(work, home, trusted=True)
    done = start("-w", "trusted")
    place = worktree(work, "trusted")
    assert (place / ".env").read_text() == "KEY=1" and (place / ".env").stat().st_mode & 0o777 == 0o600
    assert (place / "link.local").is_symlink() and not (place / "no.local").exists()
    assert (place / 'Dou\u0161a "1" \U0001f44d.local').exists() and (
        place / os.fsdecode(b"caf\xe9.local")
    ).exists()
    assert any("Copied 5 untracked files" in line for line in done.json["warnings"])


def test_a_worktree_with_work_is_kept_unless_somebody_says_otherwise(
    start: Start, run: Run, work: Path, home: Path
) -> None:
    put(work / ".worktreeinclude", ".env\n")
    put(work / ".env", "KEY=1")
    record_trust_decision(work, home, trusted=True)
    start("-w", "one")
    place = worktree(work, "one")
    refused = run("worktrees", "remove", "one")
    assert refused.code == 2 and "1 uncommitted file: new.txt" in refused.err
    git(place, "add", "new.txt")
    git(place, "commit", "-qm", "work")
    refused = run("worktrees", "remove", "one")
    assert refused.code == 2 and "1 commit not merged" in refused.err
    assert run("worktrees", "merge", "one").code == 0
    put(place / ".env", "KEY=2")
    refused = run("worktrees", "remove", "one")
    assert refused.code == 2 and "1 uncommitted file: .env" in refused.err
    put(place / ".env", "KEY=1")
    put(place / ".git.mine", "")
    done = run("worktrees", "remove", "one", "--force")
    assert done.code == 0 and not place.exists() and (work / "new.txt").exists()
    assert git(work, "branch", "--list", "worktree-*") == "" and "To bring it back" in done.err


def test_merge_commits_with_a_message_and_changes_nothing_where_there_are_conflicts(
    start: Start, run: Run, work: Path
) -> None:
    start("-w", "one")
    assert "-m MESSAGE" in run("worktrees", "merge", "one").err
    assert run("worktrees", "merge", "one", "-m", "from one").code == 0
    assert git(work, "log", "-1", "--format=%s") == "from one\n"
    put(worktree(work, "one") / "new.txt", "theirs\n")
    put(work / "new.txt", "ours\n")
    git(work, "commit", "-qam", "ours")
    refused = run("worktrees", "merge", "one", "-m", "again")
    assert refused.code == 2 and "conflicts in new.txt" in refused.err
    assert git(work, "status", "--porcelain") == "" and (work / "new.txt").read_text() == "ours\n"
    subprocess.run([*GIT, "-C", str(work), "merge", "worktree-one"], check=False, capture_output=True)
    assert "under way" in run("worktrees", "merge", "one").err
    assert (work / ".git/MERGE_HEAD").exists(), "a person's own merge stays"


def test_a_worktree_of_a_trusted_repository_is_trusted_and_no_content_can_forge_that(
    work: Path, home: Path
) -> None:
    place, other = work.parent / "beside", work.parent / "other"
    git(work, "worktree", "add", "-q", str(place))
    git(work, "worktree", "add", "-q", str(other))
    assert not is_trusted(place, home)
    record_trust_decision(work, home, trusted=True)
    assert is_trusted(place, home) and is_trusted(place / "sub", home)
    record_trust_decision(other, home, trusted=False)
    assert not is_trusted(other / "sub", home) and is_trusted(place, home)
    forged = put(work.parent / "forged/.git", (place / ".git").read_text()).parent
    assert not is_trusted(forged, home), "the repository names another folder"
    fake = work / "fixture.git"  # a bare repository, as a commit could bring it along
    tree(fake, {"objects/": "", "worktrees/x/commondir": "../..\n", "worktrees/x/gitdir": f"{forged}/.git\n"})
    put(forged / ".git", f"gitdir: {fake}/worktrees/x\n")
    assert not is_trusted(forged, home), "content of a trusted repository"
    record_trust_decision(work.parent, home, trusted=True)
    record_trust_decision(work, home, trusted=False)
    assert not is_trusted(place, home), "the repository's decision comes before that on the folder around"


def test_undo_fork_and_replay_hold_in_a_worktree(start: Start, run: Run, work: Path) -> None:
    name = start("-w", "one").json["session_id"]
    place = worktree(work, "one")
    assert run("replay", name).code == 0
    forked = run("fork", name, "--at", "1")
    assert forked.code == 0, forked.err
    (made,) = [p for p in place.parent.iterdir() if p != place]
    assert (made / "a.py").exists() and not (made / ".git").exists() and not (made / "new.txt").exists()
    assert run("undo", name).code == 0 and not (place / "new.txt").exists()
    assert git(place, "status", "--porcelain") == ""


def test_a_start_that_fails_leaves_no_worktree_and_a_kill_leaves_one_that_is_listed(
    start: Start, run: Run, work: Path, tmp_path: Path
) -> None:
    failed = run("-w", "one", "-m", "nobody:nothing", "-p", "go")
    assert failed.code != 0 and not worktree(work, "one").exists()
    assert git(work, "branch", "--list", "worktree-*") == ""

    enter_worktree(
        Options(tmp_path / "state", workspace=work, worktree={"name": "one"}), ""
    )  # and no run follows
    (listed,) = run("worktrees", "--json").json
    assert (listed["name"], listed["runs"]) == ("one", [])
    # Where git itself was killed, it leaves this behind.
    put(work / ".git/worktrees/one/locked", "initializing")
    assert run("worktrees", "--json").json[0]["incomplete"]
    assert "worktrees remove one" in start("-w", "one").err
    assert run("worktrees", "remove", "one").code == 0 and run("worktrees", "--json").json == []


def test_a_run_whose_worktree_is_gone_says_what_to_do(start: Start, run: Run, work: Path) -> None:
    name = start("-w", "one").json["session_id"]
    place = worktree(work, "one")
    shutil.rmtree(place)
    assert run("worktrees", "--json").json[0]["missing"]
    told = run("resume", name, "-p", "more").err
    assert f"git -C {work} worktree add {place} worktree-one" in told
    assert start("-w", "one").code == 0 and place.exists()
    shutil.rmtree(place)
    work.rename(work.with_name("moved"))
    assert "in a clone that has branch 'worktree-one'" in run("resume", name, "-p", "more").err


def test_submodules_are_there_without_the_network_or_named(
    start: Start, run: Run, work: Path, home: Path
) -> None:
    library = work.parent / "library"
    library.mkdir()
    git(library, "init", "-q")
    git(library, "commit", "-q", "--allow-empty", "-m", "lib")
    put(library / "lib.c", "int x;\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "lib")
    git(work, "submodule", "--quiet", "add", str(library), "deps/the lib")
    git(work, "commit", "-qm", "submodule")
    record_trust_decision(work, home, trusted=True)
    library.rename(work.parent / "gone")
    start("-w", "one")
    place = worktree(work, "one") / "deps/the lib"
    assert (place / "lib.c").read_text() == "int x;\n"
    assert git(place, "config", "remote.origin.url") == f"{library}\n"
    git(place, "commit", "-q", "--allow-empty", "-m", "only here")
    git(worktree(work, "one"), "add", ".")
    git(worktree(work, "one"), "commit", "-qm", "with the submodule")
    assert "Push them from there" in run("worktrees", "merge", "one").err
    inside = work / "deps/the lib"
    assert start("-C", str(inside), "-w", "in").code == 0, "from inside of the submodule"
    assert "worktrees" not in git(work, "status", "--porcelain", "-uall")
    assert run("worktrees", "remove", "in", "--force", "-C", str(inside)).code == 0
    assert not worktree(inside, "in").parent.exists()
    assert "commits of deps/the lib that no remote has" in run("worktrees", "remove", "one").err
    git(work, "submodule", "--quiet", "deinit", "--force", "--all")
    done = start("-w", "two")
    assert any("Empty submodules: deps/the lib" in line for line in done.json["warnings"])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a b", "can't be the name of a branch"),
        ("..", "can't be the name of a branch"),
        ("-x", "can't be the name of a branch"),
        ("é" * 60, "can't be the name of a branch"),
    ],
)
def test_a_name_that_git_does_not_take_is_refused(start: Start, work: Path, name: str, said: str) -> None:
    done = start(f"--worktree={name}")
    assert done.code == 2 and said in done.err and not worktree(work, "x").parent.exists()


def test_what_has_no_commit_or_is_no_repository_is_refused_with_what_to_do(
    start: Start, run: Run, work: Path
) -> None:
    shutil.rmtree(work / ".git")
    assert "needs a git repository" in start("-w").err
    git(work, "init", "-q")
    done = start("-w", "x")
    assert done.code == 2 and "no commit yet" in done.err
    with pytest.raises(UserError, match="a clone of its own"):
        enter_worktree(Options(work, worktree={"name": ""}, repository={"url": "x"}), "")
    assert "stays in its folder" in run("resume", "latest", "-w").err


def test_odd_repositories(start: Start, run: Run, work: Path, home: Path) -> None:
    git(work, "checkout", "-q", "--detach")
    assert start("-w", "detached").code == 0
    place = worktree(work, "detached")
    assert start("-C", str(place / "sub"), "-w", "ünter").code == 0, (
        "from a linked worktree, in its subfolder"
    )
    assert (worktree(work, "ünter") / "sub/new.txt").exists()
    bare = work.parent / "b are.git"
    git(work, "clone", "-q", "--bare", str(work), str(bare))
    done = start("-C", str(bare), "-w", "one")
    assert done.code == 0, done.err
    assert (worktree(bare, "one") / "new.txt").exists()
    assert "bare repository" in run("worktrees", "merge", "one", "-C", str(bare), "-m", "x").err


def test_settings_place_worktrees_and_start_each_conversation_in_one(
    start: Start, run: Run, work: Path, home: Path
) -> None:
    settings = {"worktree": {"enabled": True, "folder": ".trees", "include": ["*.local"]}}
    put(home / ".interlock/settings.json", settings)
    put(work / "x.local", "1")
    assert start().code == 0
    (listed,) = run("worktrees", "--json").json
    place = Path(listed["path"])
    assert (
        place.parent == work / ".trees" and (place / "x.local").exists() and not (work / "new.txt").exists()
    )
    assert git(work, "status", "--porcelain") == "?? x.local\n", "git passes over the worktrees"
    start("-C", str(place))
    assert len(run("worktrees", "--json").json) == 1, "a worktree is none to begin another in"


def test_programs_in_the_settings_of_an_untrusted_repository_do_not_run(
    start: Start, run: Run, work: Path, home: Path
) -> None:
    put(work / ".gitattributes", "*.py filter=evil\n")
    git(work, "add", ".")
    git(work, "commit", "-qm", "attributes")
    git(work, "config", "filter.evil.smudge", f"touch {work.parent}/ran; cat")
    put(work / ".git/hooks/post-checkout", f"#!/bin/sh\ntouch {work.parent}/hooked\n")
    for refused in (start("-w", "one"), run("worktrees")):
        assert refused.code == 55 and "interlock trust" in refused.err
    assert not (work.parent / "ran").exists()
    record_trust_decision(work, home, trusted=True)
    assert start("-w", "one").code == 0
    assert (work.parent / "ran").exists() and not (work.parent / "hooked").exists()


def test_files_of_lfs_without_content_are_named(start: Start, work: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 5\n"
    tree(work, {"art/.gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "art/é.bin": pointer})
    git(work, "-c", "filter.lfs.clean=cat", "-c", "filter.lfs.process=", "add", ".")
    git(work, "commit", "-qm", "lfs")
    warnings = start("-w", "one").json["warnings"]
    assert any("Files of Git LFS without their content: art/é.bin" in line for line in warnings)


def test_a_link_in_the_checkout_leads_no_copy_out_of_the_worktree(
    start: Start, work: Path, home: Path
) -> None:
    outside = work.parent / "outside"
    outside.mkdir()
    (work / "conf").symlink_to(outside)
    git(work, "add", ".")
    git(work, "commit", "-qm", "link")
    (work / "conf").unlink()
    put(work / "conf/.env", "KEY=1")
    put(work / ".worktreeinclude", ".env\n")
    record_trust_decision(work, home, trusted=True)
    done = start("-w", "one")
    assert not [*outside.iterdir()] and any("Not copied: conf/.env" in line for line in done.json["warnings"])


def test_a_tag_with_the_name_of_a_branch_leads_nothing_astray(start: Start, run: Run, work: Path) -> None:
    start("-w", "one")
    git(work, "tag", "worktree-one")
    assert len(run("worktrees", "--json").json) == 1, "the branch has its worktree"
    assert run("worktrees", "merge", "one", "-m", "from one").code == 0
    assert (work / "new.txt").exists()


def test_a_merge_that_a_hook_refuses_leaves_nothing_behind(
    start: Start, run: Run, work: Path, home: Path
) -> None:
    record_trust_decision(work, home, trusted=True)
    start("-w", "one")
    put(work / "b.txt", "b")
    git(work, "add", ".")
    git(work, "commit", "-qm", "ours")
    hook = put(work / ".git/hooks/pre-merge-commit", "#!/bin/sh\necho no >&2; exit 1\n")
    hook.chmod(0o755)
    refused = run("worktrees", "merge", "one", "-m", "from one")
    assert refused.code == 2 and "wasn't merged" in refused.err
    assert not (work / ".git/MERGE_HEAD").exists() and git(work, "status", "--porcelain") == ""


def test_commits_of_a_missing_worktree_without_a_branch_are_kept(start: Start, run: Run, work: Path) -> None:
    start("-w", "one")
    place = worktree(work, "one")
    git(place, "checkout", "-q", "--detach")
    git(place, "add", ".")
    git(place, "commit", "-qm", "only here")
    shutil.rmtree(place)
    refused = start("-w", "one")
    assert refused.code == 2 and "1 commit of it is on no branch" in refused.err
    assert run("worktrees", "remove", "~nobody").code == 2


def test_a_list_looks_into_no_submodule_of_an_untrusted_repository(run: Run, work: Path) -> None:
    """Its settings aren't those of the repository, and git takes none from the command line there."""
    place = work.parent / "beside"
    git(work, "worktree", "add", "-q", str(place))
    git(place, "init", "-q", "lib")
    tree(place / "lib", {".gitattributes": "* filter=evil\n", "lib.c": "int x;\n"})
    git(place / "lib", "add", ".")
    git(place / "lib", "commit", "-qm", "lib")
    subprocess.run([*GIT, "-C", str(place), "add", "lib"], check=True, capture_output=True)
    git(place / "lib", "config", "filter.evil.clean", f"touch {work.parent}/ran; cat")
    put(place / "lib/lib.c", "int y;\n")
    assert run("worktrees").code == 0
    assert not (work.parent / "ran").exists()
