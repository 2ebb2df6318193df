"""What a run is configured by is read once in a process, and a file that changed counts from the next drive on."""

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import put, tree
from places import Place
from scripted import shell, tools

from interlock.engine import Decision, Options, resume_sync, run_sync
from interlock.engine.driver.run_config import RunConfig, load_run_configuration, prepare_run
from interlock.services.context.workspace_context import PromptFlags, WorkspaceContext
from interlock.services.files import stamps
from interlock.services.files.agent_files import find_agent_files
from interlock.services.policy.rule_files import RuleText
from interlock.services.trust.decisions import is_trusted, record_trust_decision
from interlock.state.deps import RunInfo

RULE = '[[rule]]\ntoolName = "{}"\ndecision = "deny"\npriority = 900\n'
AGENT = "---\nname: helper\ndescription: {}\n---\nHelp.\n"
SKILL = "---\nname: skill\ndescription: {}\n---\nDo.\n"
MODES = "customModes:\n- {{slug: own, name: {}, roleDefinition: r, groups: [read]}}\n"
COMMAND = 'prompt = "{}"\n'
HOOK = json.dumps({"hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "{}"}]}]}})
SERVER = json.dumps({"mcpServers": {"docs": {"command": "{}"}}})


def hooks_of(config: RunConfig) -> list[str]:
    return [hook.command for hook in config.hooks.hooks]


def texts_of(config: RunConfig) -> list[str]:
    rules = config.options.rights
    assert rules is not None
    return [str(RuleText(*file).text) for file in rules["files"]]


def denied(config: RunConfig) -> list[list[str]]:
    return [
        [*rule.tools] for rule in config.books.deciding.rules if rule.decision == "deny" and rule.tier > 1
    ]


def commands_of(config: RunConfig) -> list[str]:
    root, options = config.workspace.root, config.options
    context = WorkspaceContext(
        info=RunInfo("r", "main", root),
        settings=config.settings,
        env=config.env,
        workspace=config.workspace,
        flags=PromptFlags(None, None, None),
        home=options.user_home,
        trusted=config.trusted,
        definition_folders=config.definition_folders,
        skills=config.skills,
    )
    return [command.prompt for command in context.load_commands().usable.values()]


def servers_of(config: RunConfig) -> list[str]:
    return [server.command for server in config.settings.mcp_servers.values()]


def protected_of(config: RunConfig) -> list[str]:
    return [path.name for path in config.workspace.protected_paths.places if path.name.startswith("imported")]


KINDS: dict[str, tuple[str, str, tuple[str, str], Callable[[RunConfig], object]]] = {
    "user settings": (
        "user/.interlock/settings.json",
        '{{"model": {{"maxSessionTurns": {}}}}}',
        ("3", "4"),
        lambda c: c.settings.model.max_session_turns,
    ),
    "gemini's user settings": (
        "user/.gemini/settings.json",
        '{{"model": {{"maxSessionTurns": {}}}}}',
        ("3", "4"),
        lambda c: c.settings.model.max_session_turns,
    ),
    "project settings": (
        "work/.interlock/settings.json",
        '{{"tools": {{"exclude": ["{}"]}}}}',
        ("glob", "edit"),
        lambda c: c.settings.tools.exclude,
    ),
    "MCP servers": ("work/.mcp.json", SERVER, ("serv", "docs"), servers_of),
    "Roo's MCP servers": ("work/.roo/mcp.json", SERVER, ("serv", "docs"), servers_of),
    "hooks": ("work/.gemini/settings.json", HOOK, ("true", "echo"), hooks_of),
    "variables of the project": ("work/.env", "WORD={}\n", ("one", "two"), lambda c: c.env.get("WORD")),
    "variables of the folder above": (".env", "WORD={}\n", ("one", "two"), lambda c: c.env.get("WORD")),
    "variables of the user": ("user/.gemini/.env", "WORD={}\n", ("one", "two"), lambda c: c.env.get("WORD")),
    "rules of the project": ("work/.gemini/policies/a.toml", RULE, ("glob", "edit"), denied),
    "rules of the user": ("user/.interlock/policies/a.toml", RULE, ("glob", "edit"), texts_of),
    "rules of an extension": ("user/.gemini/extensions/x/policies/a.toml", RULE, ("glob", "edit"), denied),
    "rules of the admin": ("admin/a.toml", RULE, ("glob", "edit"), denied),
    "rules of a flag": ("named.toml", RULE, ("glob", "edit"), denied),
    "agents of the user": (
        "user/.gemini/agents/a.md",
        AGENT,
        ("one", "two"),
        lambda c: getattr(c.agents.get("helper"), "description", ""),
    ),
    "agents of the project": (
        "work/.interlock/agents/a.md",
        AGENT,
        ("one", "two"),
        lambda c: getattr(c.agents.get("helper"), "description", ""),
    ),
    "skills": (
        "work/.gemini/skills/x/SKILL.md",
        SKILL,
        ("one", "two"),
        lambda c: [skill.description for skill in c.skills.values()],
    ),
    "modes of the project": (
        "work/.roomodes",
        MODES,
        ("one", "two"),
        lambda c: getattr(c.modes.find_mode("own"), "name", ""),
    ),
    "modes of the user": (
        "user/.interlock/custom_modes.yaml",
        MODES,
        ("one", "two"),
        lambda c: getattr(c.modes.find_mode("own"), "name", ""),
    ),
    "commands": ("work/.gemini/commands/git/x.toml", COMMAND, ("one", "two"), commands_of),
    "trust": (
        "user/.interlock/trusted.json",
        '{{"{work}": "{}"}}',
        ("trusted", "untrusted"),
        lambda c: c.trusted,
    ),
    "gemini's trust": (
        "user/.gemini/trustedFolders.json",
        '{{"{work}": "{}"}}',
        ("TRUST_FOLDER", "DO_NOT_TRUST"),
        lambda c: c.trusted,
    ),
    "instructions that another file brings": (
        "work/GEMINI.md",
        "See @{}.md now.\n",
        ("imported1", "imported2"),
        protected_of,
    ),
}
"""Kind of file → its path, its text, what stands in it at first and then, and what a drive makes of it."""


@pytest.fixture(name="options", params=[0, stamps.TICK_NS], ids=["exact clock", "coarse clock"])
def _options(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Those of runs in a trusted folder. With an exact clock only the stamps tell what changed."""
    monkeypatch.setattr(stamps, "TICK_NS", request.param)
    place = Place(tmp_path)
    tree(tmp_path, {"user/.interlock/": "", "admin/": "", "work/imported1.md": "1", "work/imported2.md": "2"})
    record_trust_decision(tmp_path / "work", tmp_path / "user", trusted=True)
    return place.options(admin_policies=(tmp_path / "admin",), policy_files=(tmp_path / "named.toml",))


def wait_for_a_tick(folder: Path) -> None:
    """Let the clock of the file system move on."""
    probe = folder / "probe"
    probe.write_text("")
    first = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first:
        probe.write_text("")
    probe.unlink()


def text_of(form: str, word: str, options: Options) -> str:
    """Return the text of a kind of file. Braces are doubled, but where many stand."""
    if form in (HOOK, SERVER):
        return form.replace("{}", word)
    return form.replace("{work}", str(options.workspace)).format(word)


@pytest.mark.sample(15)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_added_changed_replaced_or_removed_counts_at_once(
    kind: str, tmp_path: Path, options: Options
) -> None:
    name, form, words, seen = KINDS[kind]
    file = tmp_path / name
    if "trust" in kind:
        (tmp_path / "user/.interlock/trusted.json").unlink()
    text = [text_of(form, word, options) for word in words]

    def now() -> object:
        wait_for_a_tick(tmp_path)
        return seen(prepare_run(options, needs_model=False))

    without = now()
    put(file, text[0])
    added = now()
    assert added != without
    put(beside := tmp_path / "beside", text[1]).replace(file)
    replaced = now()
    assert replaced not in (added, without) or kind.endswith("trust"), "replaced by another file"
    assert not beside.exists()
    at = file.stat()
    file.write_text(text[0])
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))  # as where a clock stands still
    assert now() == added, "written in place, with the time of before"
    file.unlink()
    assert now() == without
    # A link of a project's skill, command or agent may not lead out of the project.
    elsewhere = put(tmp_path / ("work/elsewhere" if name.startswith("work") else "elsewhere"), text[0])
    file.symlink_to(elsewhere)
    if kind not in ("instructions that another file brings", "modes of the project"):
        assert now() == added, "a link to it"
    elsewhere.write_text(text[1])
    assert now() != added or kind.startswith(("instr", "modes of the p")), "what the link leads to"


def test_without_a_change_the_next_drive_gets_the_same_value(tmp_path: Path, options: Options) -> None:
    root = tmp_path / "work"
    first = load_run_configuration(options, root)
    parts = (first.loaded_settings, first.agents, first.rules, first.is_workspace_trusted)
    wait_for_a_tick(tmp_path)
    again = load_run_configuration(replace(options, env={**options.env}), root)
    if stamps.TICK_NS:
        assert again is not first, "what was written a moment ago may be written again in the same tick"
    else:
        assert (
            again is first
            and (again.loaded_settings, again.agents, again.rules, again.is_workspace_trusted) == parts
        )
    assert load_run_configuration(replace(options, env={"GEMINI_MODEL": "x"}), root) is not first
    assert load_run_configuration(replace(options, model="x"), root) is not first


def test_a_file_that_configures_nothing_may_come_and_go_in_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "TICK_NS", 0)
    noted, root = stamps.Stamps(), tree(tmp_path / "work", {".roo/mcp.json": "{}"})
    wait_for_a_tick(tmp_path)
    with noted.capture_reads():
        assert [*find_agent_files("rules", root)] == []
    put(root / "made.txt", "What a run made.")
    assert noted.are_current()
    put(root / ".roorules-code", "Be brief.")
    assert not noted.are_current()


def test_a_policy_file_that_cannot_be_read_any_more_denies_at_once(tmp_path: Path, options: Options) -> None:
    file = put(tmp_path / "user/.gemini/policies/a.toml", RULE.format("glob").replace("deny", "allow"))
    options = replace(options, policy_files=())
    before = prepare_run(options, needs_model=False)
    assert not any(rule.load_problem for rule in before.books.deciding.rules)
    wait_for_a_tick(tmp_path)
    file.chmod(0o646)
    (broken,) = [
        rule for rule in prepare_run(options, needs_model=False).books.deciding.rules if rule.load_problem
    ]
    assert broken.tools == ("*",) and broken.decision == "ask"


def test_a_prohibition_counts_for_the_call_that_a_person_approves_in_the_same_process(
    tmp_path: Path, options: Options
) -> None:
    put(tmp_path / "script.json", [tools(shell("touch made")), {"text": "Well."}])
    options = replace(options, policy_files=(), model=f"script:{tmp_path / 'script.json'}")
    parked = run_sync("main", {"prompt": "go"}, options=options)
    assert parked.status == "waiting"
    put(tmp_path / "user/.interlock/policies/no.toml", RULE.format("run_shell_command"))
    ended = resume_sync(parked.run, decisions=[Decision("all", "proceed_once")], options=options)
    assert ended.error and ended.error["type"] == "refused" and "no.toml" in ended.error["message"]
    assert not (tmp_path / "work" / "made").exists()
    assert any("changed since this run began" in line for line in ended.warnings)


def test_trust_that_is_taken_away_counts_at_once(tmp_path: Path, options: Options) -> None:
    put(tmp_path / "work/.gemini/settings.json", HOOK.replace("{}", "true"))
    assert hooks_of(prepare_run(options, needs_model=False))
    record_trust_decision(tmp_path / "work", tmp_path / "user", trusted=False)
    assert not is_trusted(tmp_path / "work", tmp_path / "user")
    assert not hooks_of(prepare_run(options, needs_model=False))
    assert not options.trusts(tmp_path / "work")


_opened: list[str] | None = None


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in ("open", "os.scandir", "os.listdir"):
        _opened.append(os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else "")


@contextmanager
def opened() -> Generator[list[str]]:
    """Yield the files and folders that are opened in the block; a hook of the interpreter stays for good."""
    global _opened
    if not getattr(opened, "heard", False):
        sys.addaudithook(_hear)
        opened.heard = True  # pyright: ignore[reportFunctionMemberAccess]
    _opened = found = []
    try:
        yield found
    finally:
        _opened = None


def test_every_file_that_is_opened_and_folder_that_is_listed_has_a_stamp(
    tmp_path: Path, options: Options
) -> None:
    """A file that is read without a stamp would count until the process ends."""
    for name, form, (word, _), _ in KINDS.values():
        put(tmp_path / name, text_of(form, word, options))
    asked = (
        "is_workspace_trusted",
        "environment",
        "loaded_settings",
        "hooks",
        "agents",
        "skills",
        "modes",
        "commands",
        "rules",
        "warnings_about_ignored_files",
    )
    configurations = [
        load_run_configuration(one, tmp_path / "work") for one in (options, replace(options, repository={}))
    ]
    with opened() as found:
        _ = [getattr(configuration, part) for configuration in configurations for part in asked]
    looked_at = {str(Path(path)) for path in found if Path(path).is_relative_to(tmp_path)}
    noted = {
        str(Path(path).parent) if aspect == "matches" else path
        for one in configurations
        for path, aspect in vars(one.stamps)["_found"]
    }
    assert len(looked_at) > 15 and looked_at - noted == set()
