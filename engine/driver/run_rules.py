"""run_rules: the rules a run started with, how they have changed since, and the paths that are protected."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from interlock.engine.options import Options
from interlock.services.configuration import Configuration
from interlock.services.context.instructions import Instructions, load_instructions
from interlock.services.context.memory import configured_system_prompt_file
from interlock.services.files.git_folder import find_git_root
from interlock.services.files.ignore import find_shared_git_directory
from interlock.services.files.protected import (
    SETTINGS_FOLDERS,
    YOUR_OWN,
    ProtectedPaths,
    builtin_protected_names,
    iterate_git_hook_and_include_paths,
    program_search_folders,
    system_and_user_git_config_paths,
)
from interlock.services.files.protected_links import GIT_BELIEVES, LinkFolder
from interlock.services.files.stamps import real_path
from interlock.services.hooks.hook_settings import Hook, build_matcher
from interlock.services.hooks.scripts import find_code_files_and_folders
from interlock.services.policy.rule import ADMIN, Rule
from interlock.services.policy.rule_files import RuleProblem, RuleText, parse_rule_files
from interlock.services.secrets.environment import is_secret_name
from interlock.services.secrets.redaction import Redactor
from interlock.state.mode import Mode
from interlock.state.settings import McpServer, Settings
from interlock.state.subagent import BUILT_IN, AgentDefinition
from interlock.tools.table import ALIASES, TOOLS

_SETTINGS = (
    *("tools.allowed", "tools.exclude", "tools.confirmationRequired", "tools.core"),
    "tools.readingCommands",
    *("tools.sandboxNetworkAccess", "tools.sandboxAllowedPaths", "mcp.allowed", "mcp.excluded"),
    *("context.includeDirectories", "context.fileFiltering"),
    *("security.redactSecrets", "security.environmentVariableRedaction"),
    *(
        "task.autoApprovalEnabled",
        "task.alwaysAllowWrite",
        "task.alwaysAllowExecute",
        "task.alwaysAllowBrowser",
    ),
    *("task.alwaysAllowMcp", "task.alwaysAllowModeSwitch", "task.alwaysAllowSubtasks"),
    *("task.allowedCommands", "task.deniedCommands"),
)
"""Settings that decide what a run may do, besides the trust in MCP servers and their tools."""
_HOST_SETTINGS = ("tools.sandbox", "context.includeDirectories", "security.")
"""Beginnings of the settings that are about a host's own files, keys and network: a worker obeys its own."""
_SERVER_TRUST = "mcpServers"


@dataclass(frozen=True)
class EffectiveRules:
    """The rules of a run: those it started with apply, and so do later prohibitions."""

    current_rules: list[Rule]
    problems: list[RuleProblem]
    rules_at_start: list[Rule]
    settings: Settings
    """Current settings, except that those about rights are as they were."""
    rights_to_keep: Mapping[str, Any]
    """Persisted with the run, JSON-like: rule files and settings, including those added by flags."""
    changed_names: Sequence[str]
    """Rule files, settings and definitions that differ from before."""
    modes: Sequence[Mode] = ()
    """Those of the user and the project as they were, if they have changed."""

    def list_warnings(self) -> list[str]:
        if not self.changed_names:
            return [*map(str, self.problems)]
        return [
            *map(str, self.problems),
            f"The rules have changed since this run began: {', '.join(self.changed_names)}. What they forbid now is"
            " forbidden; what they newly allow is asked about, until somebody resumes the run with --new-rules.",
        ]


def definitions_to_store(configuration: Configuration) -> dict[str, Any]:
    """Return what the user and a trusted project define, as far as it restricts a run or runs in it.

    Each by a name for people, with what decides whether it is the same.
    """
    agents, (modes, _) = configuration.agents.by_name, configuration.modes
    kept: dict[str, Any] = {}
    for hook in configuration.hooks.hooks:
        name = f"hook {hook.display_name!r} for {hook.event}"
        kept.setdefault(name, []).append([hook.event, hook.matcher.text, hook.command, hook.required])
    for agent in agents.values():
        if agent.source != BUILT_IN:
            kept[f"agent {agent.name!r}"] = _short_hash(
                agent.model_dump_json(exclude=_fields_at_default(agent))
            )
    for mode in modes.list_modes():
        fields = mode.model_dump(mode="json", include={"slug", "name", "groups"})
        kept[f"mode {mode.slug!r}"] = fields
    for name, server in configuration.loaded_settings.settings.mcp_servers.items():
        kept[f"MCP server {name!r}"] = _server_name_and_fingerprint(name, server)
    return kept


_NEW_FIELDS = ("without_tools", "only_reads", "only_for_persons")
"""Fields that runs of earlier versions began without."""


def _fields_at_default(agent: AgentDefinition) -> set[str]:
    """Return the fields that a stored run's mark of the same agent may lack."""
    return {name for name in _NEW_FIELDS if not getattr(agent, name)}


def rights_to_store(configuration: Configuration, redact: Redactor) -> dict[str, Any]:
    """Return what a run that starts with this configuration keeps of its rights, JSON-like."""
    rights = _rules_and_settings(configuration.rules.texts, configuration.loaded_settings.settings)
    return redact.redact_json({**rights, "defined": definitions_to_store(configuration)})


def resolve_run_rules(
    options: Options, configuration: Configuration, current_rights: dict[str, Any]
) -> EffectiveRules:
    """`current_rights`: its `rights_of`; `options.rights`: what the run started with."""
    (texts, rules, problems), settings = configuration.rules, configuration.loaded_settings.settings
    if options.rights is None or options.new_rules or options.rights == current_rights:
        return EffectiveRules(rules, problems, rules, settings, current_rights, ())
    if options.repository:
        return _rules_of_submitted_run(options.rights, texts, settings)
    then = _rights_with_confirmed_flags(options.rights, current_rights, options)
    before = parse_rule_files([RuleText(*file) for file in then["files"]])[0]
    changed = _list_changed_rights(then, current_rights)
    before += [
        rule for name in changed if (rule := _rule_for_changed_definition(name, then["defined"].get(name)))
    ]
    modes = [
        Mode.model_validate(then["defined"][n])
        for n in changed
        if n.startswith("mode ") and n in then["defined"]
    ]
    return EffectiveRules(rules, problems, before, _settings_at_start(settings, then), then, changed, modes)


def _rules_of_submitted_run(
    stored_rights: Mapping[str, Any], texts: Sequence[RuleText], settings: Settings
) -> EffectiveRules:
    """The rules a run was submitted with, and on top of them the admin's of the host that drives it."""
    then: dict[str, Any] = {"defined": dict[str, Any](), **stored_rights}
    files = [RuleText(*file) for file in then["files"]]
    admins, own = [t for t in texts if t.tier == ADMIN], [t for t in files if t.tier != ADMIN]
    (before, _), (rules, problems) = parse_rule_files(files), parse_rule_files([*admins, *own])
    changed = ["the admin's policies"] if {*admins} != {t for t in files if t.tier == ADMIN} else []
    theirs = {key: value for key, value in then["settings"].items() if not key.startswith(_HOST_SETTINGS)}
    return EffectiveRules(
        rules, problems, before, _settings_at_start(settings, {"settings": theirs}), then, changed
    )


def _rule_for_changed_definition(name: str, stored_hooks: Any) -> Rule | None:
    """A rule that asks about what a definition that has changed was to refuse, or newly allows."""
    tools: tuple[str, ...] = ()
    if name.startswith("agent "):
        tools = (name.split("'")[1],)
    elif name.startswith("hook "):
        guards = [
            build_matcher("BeforeTool", text)[0]
            for event, text, *_ in stored_hooks or ()
            if event == "BeforeTool"
        ]
        known = [tool for tool in (*TOOLS, *ALIASES) if any(guard.is_matching([tool]) for guard in guards)]
        every = any(guard.is_matching(["mcp_"]) for guard in guards)
        tools = ("*",) if every else (*known, "mcp_*") if guards else ()
    return Rule(f"{name} (changed since)", tools, "ask", ADMIN, 999, lowers_to_ask=True) if tools else None


def _rules_and_settings(texts: Iterable[RuleText], settings: Settings) -> dict[str, Any]:
    whole = settings.model_dump(mode="json", by_alias=True)
    kept = {key: whole[section][name] for key in _SETTINGS for section, name in [key.split(".")]}
    # Earlier versions kept what was given of it, without the defaults.
    filtering = settings.context.file_filtering
    kept["context.fileFiltering"] = filtering.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    servers = settings.mcp_servers.items()
    kept[_SERVER_TRUST] = sorted(
        mark for name, server in servers for mark in _server_trust_keys(name, server)
    )
    return {"files": [list(text) for text in texts], "settings": kept}


def _rights_with_confirmed_flags(
    rights_at_start: Mapping[str, Any], current_rights: Mapping[str, Any], options: Options
) -> dict[str, Any]:
    """The original rights plus what a person has since added by flags, which counts as confirmed."""
    settings, current = {**rights_at_start["settings"]}, current_rights["settings"]
    if options.allowed_tools:
        settings["tools.allowed"] = current["tools.allowed"]
    excluded: list[str] = options.overrides.get("tools", {}).get("exclude", [])
    flags = {"context.includeDirectories": map(str, options.include_directories), "tools.exclude": excluded}
    for key, values in flags.items():
        wanted = set(values)
        added = [v for v in current[key] if v in wanted and v not in settings[key]]
        settings[key] = [*settings[key], *added]
    known = {path for path, *_ in rights_at_start["files"]}
    named = {str(path) for path in options.policy_files} - known
    return {
        "files": [*rights_at_start["files"], *(f for f in current_rights["files"] if f[0] in named)],
        "settings": settings,
        "defined": rights_at_start.get("defined", current_rights["defined"]),  # not kept by older versions
    }


def _list_changed_rights(rights_at_start: Mapping[str, Any], current_rights: Mapping[str, Any]) -> list[str]:
    files = {
        f[0]
        for f in (*rights_at_start["files"], *current_rights["files"])
        if f not in rights_at_start["files"] or f not in current_rights["files"]
    }
    settings = [
        key
        for key, value in current_rights["settings"].items()
        if rights_at_start["settings"].get(key, value) != value
    ]
    old, new = rights_at_start["defined"], current_rights["defined"]
    return [*sorted(files), *settings, *(name for name in {**old, **new} if old.get(name) != new.get(name))]


def _settings_at_start(settings: Settings, rights_at_start: Mapping[str, Any]) -> Settings:
    whole: dict[str, Any] = settings.model_dump(by_alias=True)
    for key, value in rights_at_start["settings"].items():
        if key != _SERVER_TRUST:
            section, name = key.split(".")
            whole[section][name] = value
    for name, server in whole[_SERVER_TRUST].items():
        now = settings.mcp_servers[name]
        mark, kept = _server_name_and_fingerprint(name, now), rights_at_start["settings"][_SERVER_TRUST]
        server["trust"] = mark in kept
        server["alwaysAllow"] = [tool for tool in now.always_allow if f"{mark} {tool}" in kept]
    return Settings.model_validate(whole)


def _server_trust_keys(name: str, server: McpServer) -> Iterator[str]:
    """What needs no approval: all of the server's tools, or these."""
    mark = _server_name_and_fingerprint(name, server)
    yield from ([mark] if server.trust else [])
    yield from (f"{mark} {tool}" for tool in server.always_allow)


def _server_name_and_fingerprint(name: str, server: McpServer) -> str:
    return f"{name} {server_fingerprint(server)}"


def server_fingerprint(server: McpServer) -> str:
    """What a server is: another program or address under its name has none of its rights. Tokens may change."""
    env = {key: value for key, value in server.env.items() if not is_secret_name(key)}
    reached = [server.type, server.command, server.args, server.cwd, server.url, server.http_url, env]
    return _short_hash(json.dumps(reached, sort_keys=True))


def _short_hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def find_protected_paths(
    options: Options, configuration: Configuration, rules: Sequence[Rule]
) -> ProtectedPaths:
    """Return the files that control the program, wherever they are. `rules`: those of the run, with their checkers."""
    settings, env, places = (
        configuration.loaded_settings.settings,
        configuration.environment.values,
        configuration.rule_places,
    )
    programs = _configured_commands(settings, configuration.hooks.hooks, rules)
    names, home = settings.context.file_names, places.home
    roots = _list_roots(configuration)
    custom = settings.context.file_filtering.custom_ignore_files
    lists = {
        "programs": program_search_folders(env),
        "what hooks, safety checkers and MCP servers run": (
            script for line in programs for script in find_code_files_and_folders(line, places.root)
        ),
        "what tools leave alone": (places.root / name for name in custom),
        "what the check runs": _scripts_of_check_command(options.check, places.root),
        "policies": (*places.named, *places.admin),
        "nodes of your own": settings.processor_files(places.root, home),
        "instructions for the model": load_run_instructions(configuration).list_sources(),
        "the system prompt": filter(None, [configured_system_prompt_file(env, places.root, home)]),
        GIT_BELIEVES: (path for root in roots for path in _paths_named_in_git_config(root, env)),
    }
    # These also where they are the workspace.
    own = {
        "your own settings": (home / name for name in SETTINGS_FOLDERS),
        "where runs are kept": (options.home,),
    }
    whole = {places.root, Path("/"), real_path(home)}
    found = {path: what for path, what in _real_paths_with_labels(lists) if path not in whole} | dict(
        _real_paths_with_labels(own)
    )
    links = [*_folders_whose_links_count(found, roots, real_path(home))]
    made = ProtectedPaths(memory=names, places=found, home=real_path(home), link_folders=links)
    for root in map(real_path, roots):  # a workspace in a project's settings
        if inside := made.find_protection_by_name(root.relative_to(find_git_root(root) or "/")):
            found[root] = inside.what
    return made


def load_run_instructions(configuration: Configuration) -> Instructions:
    """Return the memory and rule files of a run's directories, read once for each state of the files."""
    settings, places = configuration.loaded_settings.settings.context, configuration.rule_places
    return configuration.compute_once(
        "instructions",
        lambda: load_instructions(
            _list_roots(configuration),
            places.home,
            settings,
            trusted=configuration.is_workspace_trusted,
            untrusted_parents=configuration.definition_folders.ignored,
        ),
    )


def _list_roots(configuration: Configuration) -> list[Path]:
    root = configuration.rule_places.root
    more = configuration.loaded_settings.settings.context.include_directories
    return [root, *(real_path(root / Path(folder).expanduser()) for folder in more)]


def _folders_whose_links_count(
    places: Mapping[Path, str], roots: Sequence[Path], home: Path
) -> Iterator[LinkFolder]:
    """Yield folders whose links lead to what programs obey: places of this run, git's hooks, the user's own
    configuration."""
    tops = [*map(real_path, roots)]
    for path, what in places.items():
        if what == GIT_BELIEVES or any(path.is_relative_to(top) for top in tops):
            yield LinkFolder(str(path), what, 1)
    for tree in filter(None, map(find_git_root, roots)):
        git = find_shared_git_directory(tree)
        yield from (LinkFolder(str(folder), GIT_BELIEVES, 0) for folder in (git, git / "hooks"))
    for folder, prefix in ((home, "."), (home / ".config", "")):
        yield LinkFolder(str(folder), YOUR_OWN, 0, prefix)
    for name in builtin_protected_names():
        if name.startswith("."):
            yield LinkFolder(str(home / name), YOUR_OWN, 1)


def _scripts_of_check_command(command: str, root: Path) -> Iterator[Path]:
    """Yield the scripts that the check's command names. Tests may change, and what a runner is given to test."""
    if not command:
        return
    from interlock.services.checks.test_table import CheckTable  # deferred: most runs have no check

    table = CheckTable(command)

    def is_tested(path: Path) -> bool:
        inside = str(path.relative_to(root)) if path.is_relative_to(root) else ""
        return bool(inside) and (inside in table.runner_operands or table.is_test_or_settings(inside))

    yield from find_code_files_and_folders(command, root, is_tested)


def _real_paths_with_labels(lists: Mapping[str, Iterable[Path]]) -> Iterator[tuple[Path, str]]:
    """Yield where each path leads, and the path itself, if it is a link."""
    real = cache(real_path)  # many are in the same folders
    for what, paths in lists.items():
        for path in paths:
            yield real(path), what
            yield real(path.parent) / path.name, what


def _paths_named_in_git_config(root: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield the hooks and settings in a work tree that its repository's configuration, or the user's, names."""
    if (tree := find_git_root(root)) is not None:
        for config in (find_shared_git_directory(tree) / "config", *system_and_user_git_config_paths(env)):
            yield from (path for path, _ in iterate_git_hook_and_include_paths(config, tree))


def _configured_commands(settings: Settings, hooks: Iterable[Hook], rules: Iterable[Rule]) -> Iterator[str]:
    """The command lines of hooks, safety checkers, MCP servers and discovered tools."""
    yield from (shlex.join(f"{k}={v}" for k, v in hook.env.items()) + f" {hook.command}" for hook in hooks)
    yield from (r.checker.command for r in rules if r.checker and r.checker.command)
    for server in settings.mcp_servers.values():
        line = shlex.join([server.command, *server.args])
        yield f"cd {shlex.quote(server.cwd)} && {line}" if server.cwd else line
    tools = settings.tools
    yield from filter(None, (tools.discovery_command, tools.call_command, tools.browser, tools.web_search))
