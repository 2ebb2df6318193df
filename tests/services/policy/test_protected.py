"""Files that control the program ask in every mode, with every file tool, unless a user's rule names them."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from folders import table, tree

from interlock.services.files import protected
from interlock.services.files.agent_files import load_agent_files
from interlock.services.files.protected import ProtectedPaths, builtin_protected_names
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView, SessionRule
from interlock.state.settings import Settings

TABLE: dict[str, list[Any]] = table(__file__, "rules.yaml")

MODES = ("default", "auto_edit", "yolo")
ALLOW = '[[rule]]\ntoolName = "{tool}"\ndecision = "allow"\npriority = 999\n{more}\n'


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "path",
    [
        *sorted(builtin_protected_names()),
        ".interlock/policies/p.toml",
        "deep/er/.Gemini/settings.json",
        ".github/workflows/ci.yml",
        "src/agents.MD",
        ".interlock\u200b/policies/p.toml",
        "src/../.envrc",
        "way/policies/p.toml",
        "sub/My.Code-Workspace",
        ".roorules-code",
        "lefthook.yaml",
        ".codex/config.toml",
        "opencode.jsonc",
        ".opencode/plugins/x.ts",
        ".helix/languages.toml",
        ".nvimrc",
        "CLAUDE.local.md",
        "sub/AGENTS.override.md",
        ".cursor/hooks.json",
        ".vscode/mcp.json",
        ".clinerules/hooks/pre",
        ".agents/plugins/marketplace.json",
        ".gitlab-ci.yaml",
        ".drone.star",
        ".config/lefthook.jsonc",
        ".lintstagedrc.mts",
        "web/lint-staged.config.js",
        "Jenkinsfile.release",
        "docs/x.prompt.md",
        "plugin/hooks/hooks.json",
        ".codex/rules/a.rules",
        ".pi/extensions/x.ts",
        ".kiro/steering/a.md",
    ],
)
def test_what_the_program_goes_by_is_asked_about_in_every_mode(make, call, workspace, path, mode) -> None:
    policy, _ = make()
    (workspace.root / ".interlock").mkdir()
    (workspace.root / "way").symlink_to(".interlock")
    for tool in ("write_file", "replace"):
        asked = policy.check(call(tool, file_path=path, content="x"), "write", mode)
        assert asked.decision == "ask" and "always needs approval" in asked.reason
    named = str(workspace.root / path)
    assert policy.check(call("mcp_files_put", file_path=named), "execute", mode).decision == "ask"
    for args in ({"uri": f"file://{named}"}, {"target": path}, {"files": [{path: "x"}]}):
        assert policy.check(call("mcp_files_put", **args), "execute", mode).decision == "ask"
    assert policy.check(call("read_file", file_path=path), "read", mode).decision == "allow"


@pytest.mark.parametrize(
    "path", ["src/a.py", "interlock/x.toml", "src/gemini.mdx", "github/a.yml", ".env.local", "code-workspace"]
)
def test_other_files_are_written_as_the_mode_says(make, call, path) -> None:
    policy, _ = make()
    got = [policy.check(call("write_file", file_path=path), "write", mode).decision for mode in MODES]
    assert got == ["ask", "allow", "allow"]
    for text in ("see GEMINI.md", f"{path}\nGEMINI.md", "x" * 9_000):
        assert policy.check(call("mcp_files_put", text=text), "execute", "yolo").decision == "allow"


def test_each_name_has_a_reason_and_a_source() -> None:
    rows = tomllib.loads(Path(protected.__file__).with_name("protected.toml").read_text())["obeyed"]
    names = [name for row in rows for name in row["names"]]
    assert all(row["what"] and row["source"] for row in rows) and len(names) == len({*names})


def test_every_file_of_other_agents_that_the_program_knows_is_protected() -> None:
    """With the folders and names that its pattern stands for."""
    paths = ProtectedPaths()
    patterns = [path for row in load_agent_files() for path in row.project]
    examples = [pattern.replace("**/", "a/b/").replace("**", "a").replace("*", "x") for pattern in patterns]
    assert examples and [path for path in examples if not paths.find_protection_by_name(Path(path))] == []


def test_always_for_that_file_is_a_rule_that_names_it(make, call) -> None:
    policy, _ = make()
    wanted = call("write_file", file_path="AGENTS.md", content="x")
    verdict = policy.check(wanted, "write", "auto_edit")
    assert "proceed_always" in policy.offered_choices(wanted, "write", verdict)
    rule = policy.session_rule_for_choice(wanted, "write", "proceed_always", "auto_edit")
    assert rule is not None and policy.check(wanted, "write", "auto_edit", [rule]).decision == "allow"
    other = call("write_file", file_path="GEMINI.md", content="x")
    assert policy.check(other, "write", "auto_edit", [rule]).decision == "ask"


@pytest.mark.parametrize("mode", MODES)
def test_a_redirection_into_it_is_asked_about(make, shell, mode) -> None:
    policy, _ = make(user=ALLOW.format(tool="run_shell_command", more="allowRedirection = true"))
    lines = ("echo x > .interlock/policies/p.toml", "echo $(date) >> AGENTS.md", "> .envrc")
    session = [SessionRule(tool="run_shell_command", line=line) for line in lines]
    for line in lines:
        asked = policy.check(shell(line), "execute", mode, session)
        assert asked.decision == "ask", line
    assert policy.check(shell("echo x > a.txt"), "execute", mode, session).decision == "allow"


def test_what_makes_a_folder_a_repository_is_asked_about_whatever_its_name(
    tmp_path: Path, call, shell
) -> None:
    """Git takes it for one once a person enters it, and runs what its settings say."""
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "old.git"], check=True)
    tree(
        tmp_path,
        {"new/HEAD": "x", "new/refs/x": "x", "new/config": "x", "plain/config": "x", "plain/refs/x": ""},
    )
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), FolderWorkspace(tmp_path)))
    asked = (
        "old.git/config",
        "old.git/hooks/post-update",
        "old.git/commondir",
        "new/objects/x",
        "new/commondir",
    )
    for path in (*asked, "old.git/HEAD"):
        assert policy.check(call("write_file", file_path=path), "write", "auto_edit").decision == "ask", path
        assert policy.check(shell(f"echo x > {path}"), "execute", "yolo").decision == "ask", path
    for path in (
        "old.git/description",
        "new/config",
        "new/a",
        "plain/config",
        "plain/objects/x",
        "HEAD",
        "hooks/a",
    ):
        assert policy.check(call("write_file", file_path=path), "write", "auto_edit").decision == "allow", (
            path
        )


def test_a_command_that_names_it_to_change_it_is_asked_about_in_every_mode(tmp_path: Path, shell) -> None:
    """What only reads it isn't, under `-y`, and a rule of the user's for the command counts."""
    home = Path.home()
    tree(tmp_path, {"AGENTS.md": "x", "sub/AGENTS.md": "x", "x": "x"})
    space = FolderWorkspace(tmp_path, protected=ProtectedPaths(home=home))
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), space))
    writes, reads = TABLE["writes"], TABLE["doesn't write"]
    assert [line for line in writes if policy.check(shell(line), "execute", "yolo").decision != "ask"] == []
    assert [line for line in reads if policy.check(shell(line), "execute", "yolo").decision != "allow"] == []
    allowed = ["run_shell_command(cp x AGENTS.md)", "run_shell_command(cp)"]
    for named, decision in zip(allowed, ("allow", "ask"), strict=True):
        own = RulePolicy(WorkspaceRules([], Settings.model_validate({"tools": {"allowed": [named]}}), space))
        assert own.check(shell("cp x AGENTS.md"), "execute", "default").decision == decision


PATCH = "--- a/{0}\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"


@pytest.mark.parametrize(("line", "decision"), TABLE["patches"])
def test_a_patch_that_changes_it_asks_under_a_rule_for_the_command(
    make, shell, workspace, line, decision
) -> None:
    for name, path in (("plain", "src/a.py"), ("deep", "sub/AGENTS.md")):
        (workspace.root / f"{name}.diff").write_text(PATCH.format("src/b.py") + PATCH.format(path))
    renamed = "diff --git a/x.md b/GEMINI.md\nrename from x.md\nrename to GEMINI.md\n"
    (workspace.root / "renamed.diff").write_text(renamed)
    (workspace.root / "quoted.diff").write_text('+++ "b/\\303\\274/.envrc"\n')
    prefixes = (
        'commandPrefix = ["git apply", "git am", "git stash", "git diff", "patch"]\nallowRedirection = true'
    )
    policy, _ = make(user=ALLOW.format(tool="run_shell_command", more=prefixes))
    assert policy.check(shell(line), "execute", "default").decision == decision


def test_places_of_the_run_and_of_the_user_are_protected(tmp_path) -> None:
    places = {tmp_path / "state": "where runs are kept"}
    paths = ProtectedPaths(memory=["RULES.md"], places=places, home=tmp_path / "home")
    space = FolderWorkspace(tmp_path, protected=paths)
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), space))
    for path, decision in (
        *((path, "ask") for path in ("state/interlock.db", "docs/rules.md", "home/.bashrc")),
        *((path, "allow") for path in ("home/notes", "other")),
    ):
        call = CallView(id="1", name="write_file", args={"file_path": path})
        assert policy.check(call, "write", "yolo").decision == decision, path
