"""health: what is as it should be on this machine, in the settings, the store and its server, and what is not."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from interlock.engine.client import Client, telemetry_problem
from interlock.engine.store import ADDRESS, STATE_DIRECTORY_PARTS, open_reader
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.integrity import find_damaged_pages, find_damaged_records, find_unreadable_rows
from interlock.services.files.disk import restrict_tree_to_owner
from interlock.services.hooks.scripts import find_code_files_and_folders
from interlock.services.process.supervisor import describe_possible_process_escapes, describe_process_limit
from interlock.services.secrets.environment import withheld_variable_names
from interlock.state.errors import InterlockError, SandboxError, UserError
from interlock.state.events import Progress
from interlock.state.text import abbreviate_home, format_compact_number, format_count
from interlock.tools.code_definitions import EXTRA, grammar_modules, is_parser_installed

if TYPE_CHECKING:
    from interlock.services.configuration import Configuration
    from interlock.state.settings import Settings

_OURS = (*STATE_DIRECTORY_PARTS, ADDRESS)
"""What Interlock keeps in the state directory."""


class Finding(NamedTuple):
    level: str
    """ok | note | problem"""
    what: str
    text: str


def examine_and_repair_store(
    home: Path, on_progress: Callable[[Progress], None] = lambda _progress: None
) -> Iterator[Finding]:
    """Read every record of the store; rows that disagree with the checkpoints are made again.

    `on_progress` hears of each row and run that is read.
    """

    def make_progress_callback(what: str, unit: str) -> Callable[[int, int], None]:
        return lambda done, total: on_progress(Progress(what=what, done=done, total=total, unit=unit))

    with open_reader(home) as conn:
        if conn is None:
            return
        damaged = find_damaged_pages(home)
        yield from (Finding("problem", "pages", line) for line in damaged)
        if not damaged:
            yield Finding("ok", "pages", "ok")
        rows = list(find_unreadable_rows(conn, home / "outputs", make_progress_callback("reading", "rows")))
    yield from (Finding("problem", "rows", f"{line} can't be read") for line in rows)
    if not rows:
        from interlock.engine.rebuild import rebuild_run_statuses_from_checkpoints

        yield from (
            Finding("note", "mended", line)
            for line in rebuild_run_statuses_from_checkpoints(
                home, make_progress_callback("comparing", "runs")
            )
        )
    verifying = make_progress_callback("verifying", "runs")
    with explain_store_errors_and_damage(home / "interlock.db"):
        runs, records = Client.for_this_user().runs(), list[tuple[str, str]]()
        for number, run in enumerate(runs, 1):
            verifying(number, len(runs))
            records += [(run.run, line) for line in find_damaged_records(home, run.run)]
    yield from (Finding("problem", "records", f"run {run}: {line}") for run, line in records)


_PACKAGES = (
    "langgraph",
    "langgraph-checkpoint",
    "langchain-google-genai",
    "pydantic",
    "rich",
    "genai-prices",
)


def check_unguarded_effects(workflow: str) -> Iterator[Finding]:
    """Calls of a workflow's nodes that a kill could repeat outside. Raises `InterlockError`."""
    hints = Client.for_this_user().find_unguarded_effects(workflow)
    for node, call, where in hints:
        text = f"node {node!r} calls {call} ({where}) without `effect`; a kill could repeat it"
        yield Finding("note", "effects", text)
    if not hints:
        yield Finding("ok", "effects", f"no node of {workflow!r} looks as if it acts outside the graph")


def check_machine() -> Iterator[Finding]:
    """Packages and programs, what may outlive a run, and the sandbox."""
    from interlock.tools.search.ripgrep import find_ripgrep

    yield Finding("ok", "interlock", f"{version('interlock-agent')}, Python {sys.version.split()[0]}")
    yield Finding("ok", "packages", ", ".join(f"{name} {version(name)}" for name in _PACKAGES))
    no_code = f"code is indexed by lines, not by definition; {EXTRA}"
    for what, found, level, without in (
        ("ripgrep", find_ripgrep(), "problem", "nothing can be searched; install it"),
        ("git", shutil.which("git"), "note", "git status isn't shown, and nothing can be undone"),
        (
            "code",
            f"definitions in {len(grammar_modules())} languages" * is_parser_installed(),
            "note",
            no_code,
        ),
        (
            "dot",
            shutil.which("dot"),
            "note",
            "diagrams are drawn without it; as PNG by the extra `png`",
        ),
    ):
        yield Finding("ok", what, found) if found else Finding(level, what, f"none: {without}")
    note = describe_possible_process_escapes()
    yield Finding(
        "note" if note else "ok",
        "processes",
        f"{note or 'none outlives its run'}; {describe_process_limit()}",
    )
    yield _check_sandbox()


def _check_sandbox() -> Finding:
    from interlock.services.sandbox.sandbox import check_and_describe_sandbox_support

    try:
        return Finding("ok", "sandbox", f"-s works: {check_and_describe_sandbox_support(os.environ)}")
    except SandboxError as error:
        return Finding("note", "sandbox", str(error))


def check_settings() -> Iterator[Finding]:
    """This folder's settings, and everything that they and the folder bring."""
    from interlock.services.configuration import load_default_configuration
    from interlock.services.models.names import require_usable_model

    root = Path.cwd().resolve()
    configuration = load_default_configuration(root)
    try:
        env, loaded = configuration.environment.values, configuration.loaded_settings
    except InterlockError as error:
        yield Finding("problem", "settings", str(error))
        return
    yield Finding("ok", "settings", _join_file_names(loaded.files) or "no file: defaults")
    unknown = [f"{where}: unknown setting {key!r}" for where, key in loaded.unknown]
    yield from (Finding("note", "settings", text) for text in (*unknown, *loaded.warnings, *loaded.notes))
    yield from _check_notifications(loaded.settings)
    yield from _check_context_files_and_extensions(configuration)
    yield from _check_untrusted_files_and_secrets(configuration)
    yield from _check_hooks(configuration)
    yield from _check_policies(configuration)
    try:
        require_usable_model(loaded.settings, env)
        yield Finding("ok", "model", f"{loaded.settings.model.name}: a key is there")
    except InterlockError as error:
        yield Finding("note", "model", str(error))
    yield _check_snapshots(root, loaded.settings)
    yield _check_language_servers(configuration)
    yield from _check_network(env)
    yield from _check_telemetry(loaded.settings)


def _check_language_servers(configuration: "Configuration") -> Finding:
    from interlock.services.language_servers.table import ServerFinder, merge_server_settings

    tools = configuration.loaded_settings.settings.tools
    servers = merge_server_settings(tools.language_servers)
    env, root = configuration.environment.values, configuration.sources.root
    names = [one.name for one in ServerFinder(servers, [root], env.get("PATH", "")).list_installed()]
    if not tools.diagnostics or not names:
        off = "tools.diagnostics is off" if not tools.diagnostics else "none is installed"
        return Finding("ok", "lsp", f"no language server checks edits: {off}")
    if not configuration.is_workspace_trusted:
        why = "not started; the folder isn't trusted (interlock trust)"
        return Finding("note", "lsp", f"{', '.join(names)}: {why}")
    return Finding("ok", "lsp", f"{', '.join(names)}: check edits")


def _check_snapshots(root: Path, settings: "Settings") -> Finding:
    """Whether what a run changes in this folder can be taken back."""
    from interlock.services.files.workspace import open_workspace
    from interlock.services.snapshots.snapshots import NO_GIT
    from interlock.services.snapshots.workspace_tree import WorkspaceTree

    lost = "nothing that a run changes here can be undone"
    if not settings.snapshots.enabled:
        return Finding("note", "snapshots", f"off (setting snapshots.enabled): {lost}")
    if not shutil.which("git"):
        return Finding("note", "snapshots", f"none: {NO_GIT.rstrip('.')}. Until then {lost}")
    try:
        files = len(
            WorkspaceTree(open_workspace(root, settings), settings.snapshots).scan_paths_without_reading()
        )
    except InterlockError as error:
        return Finding("note", "snapshots", f"none: {str(error).rstrip('.')}: {lost}")
    return Finding(
        "ok", "snapshots", f"{format_count(files, 'file')} of this folder are saved around each change"
    )


def _check_network(env: Mapping[str, str]) -> Iterator[Finding]:
    from interlock.services.models.network import describe_network_settings

    try:
        yield from (Finding("ok", "network", line) for line in describe_network_settings(env))
    except UserError as error:
        yield Finding("problem", "network", str(error))


def _check_telemetry(settings: "Settings") -> Iterator[Finding]:
    if settings.telemetry.enabled:
        told = settings.telemetry.outfile or settings.telemetry.otlp_endpoint
        why = telemetry_problem(settings)
        yield Finding("note" if why else "ok", "telemetry", why or f"sent to {told}")


def _check_context_files_and_extensions(configuration: "Configuration") -> Iterator[Finding]:
    from interlock.services.context.definitions import describe_instruction_files

    (modes, problems), settings = configuration.modes, configuration.loaded_settings.settings
    slugs = [mode.slug for mode in modes.list_modes()]
    for one in describe_instruction_files(configuration.definition_folders, settings.context, slugs):
        yield Finding("ok" if one.used else "note", one.what, abbreviate_home(one.text))
    yield from (Finding("note", "modes", abbreviate_home(problem)) for problem in problems)
    if own := [mode.slug for mode in modes.list_modes() if mode.source != "built-in"]:
        yield Finding("ok", "modes", f"{', '.join(own)} (interlock modes)")
    yield from _check_agents_skills_and_servers(configuration, settings)


def _check_agents_skills_and_servers(
    configuration: "Configuration", settings: "Settings"
) -> Iterator[Finding]:
    from interlock.services.context.definitions import list_definition_uses, list_nested_skill_uses
    from interlock.services.trust.project_files import describe_other_agents_files

    root, home = configuration.sources.root, configuration.sources.home
    nested = list_nested_skill_uses(root) if configuration.is_workspace_trusted else ()
    for one in (*list_definition_uses(configuration.definition_folders), *nested):
        yield Finding("note" if one.use.problem else "ok", one.kind, abbreviate_home(one.describe_use()))
    yield from _check_allowed_tools(configuration)
    for file in settings.processor_files(root, home):
        why = "" if file.is_file() else "there is no such file"
        if not configuration.is_workspace_trusted and file.resolve().is_relative_to(root):
            why = "the folder isn't trusted (interlock trust)"
        text = f"{file}: not used; {why}" if why else f"{file} (interlock diagram main)"
        yield Finding("note" if why else "ok", "processors", abbreviate_home(text))
    trusted = configuration.is_workspace_trusted
    servers, read = configuration.loaded_settings.server_files, settings.context.read
    for file in describe_other_agents_files(root, home, read, trusted=trusted, servers=servers):
        text = f"{file.path}: {'' if file.used else 'not used; '}{file.text}"
        yield Finding("ok" if file.used else "note", file.kind, abbreviate_home(text))
    if settings.mcp_servers:
        yield from _check_servers(settings, root)


def _check_allowed_tools(configuration: "Configuration") -> Iterator[Finding]:
    """Name what `allowed-tools` of the user's own skills and commands can't allow here."""
    from interlock.services.policy.claude_permissions import read_allowed_tools

    allowed = {skill.file.path: skill.allowed_tools for skill in configuration.skills.by_name.values()}
    allowed |= {Path(c.source): c.allowed_tools for c in configuration.commands.usable.values()}
    for path, entries in allowed.items():
        for entry in read_allowed_tools(entries, configuration.sources.root):
            if entry.fate == "skipped":
                text = f"{path}: allowed-tools {entry.text!r} doesn't count: {entry.why}"
                yield Finding("note", "permissions", abbreviate_home(text))


def _check_servers(settings: "Settings", root: Path) -> Iterator[Finding]:
    from interlock.services.mcp import build_server_specs

    servers = build_server_specs(settings, root).values()
    if able := [server.name for server in servers if not server.problem and not server.disabled]:
        yield Finding("ok", "mcp", f"{', '.join(able)} (interlock mcp test)")
    for server in servers:
        if why := server.problem or ("it is disabled in settings" if server.disabled else ""):
            yield Finding("note", "mcp", f"{server.name}: not used; {why}")


def _check_notifications(settings: "Settings") -> Iterator[Finding]:
    notify = settings.general.notify
    command = notify.command if isinstance(notify.command, str) else shlex.join(notify.command)
    host = urlsplit(notify.webhook).netloc.rpartition("@")[2]
    ways = [
        *notify.terminal,
        *([f"command {command}"] if command else []),
        *([f"webhook {host}"] if host else []),
    ]
    if ways:
        yield Finding("ok", "notify", f"when a run waits: {', '.join(ways)}")


def _check_untrusted_files_and_secrets(configuration: "Configuration") -> Iterator[Finding]:
    yield from (Finding("note", "trust", text) for text in configuration.warnings_about_ignored_files)
    settings, env = configuration.loaded_settings.settings, configuration.environment.values
    if names := sorted(withheld_variable_names(env, settings.security.environment)):
        yield Finding("ok", "secrets", f"kept from tools, hooks and servers: {', '.join(names)}")


def _check_policies(configuration: "Configuration") -> Iterator[Finding]:
    from interlock.services.files.workspace import open_workspace
    from interlock.services.policy.policy import RulePolicy
    from interlock.services.policy.workspace_rules import WorkspaceRules

    settings = configuration.loaded_settings.settings
    try:
        texts, rules, problems = configuration.rules
        books = WorkspaceRules(rules, settings, open_workspace(configuration.sources.root, settings))
        idle = books.find_unmatchable_rules(configuration.agents.by_name, settings.mcp_servers)
        problems = [*problems, *books.problems, *idle]
        prefixes = RulePolicy(books).describe_permissive_prefix_rules()
        wide = [
            f"{' '.join(map(abbreviate_home, rule.split(' ')))} lets through {what}"
            for rule, what in prefixes
        ]
    except InterlockError as error:
        yield Finding("problem", "policies", str(error))
        return
    yield from (Finding("note", "policies", text) for text in (*map(str, problems), *wide))
    yield Finding(
        "ok", "policies", _join_file_names(Path(text.path) for text in texts) or "no file: the shipped rules"
    )


def _join_file_names(files: Iterable[Path]) -> str:
    return ", ".join(abbreviate_home(str(file)) for file in files)


def _check_hooks(configuration: "Configuration") -> Iterator[Finding]:
    root = configuration.sources.root
    try:
        book = configuration.hooks
        yield from (Finding("note", "hooks", text) for text in book.problems)
        for hook in {hook.id: hook for hook in book.hooks}.values():
            if own := sorted(
                {p.relative_to(root) for p in find_code_files_and_folders(hook.command, root) if p.is_file()}
            ):
                more = f" and {len(own) - 1} more" if len(own) > 1 else ""
                text = f"{hook.display_name!r} runs {own[0].as_posix()!r}{more} of this folder, where the model writes:"
                text += " tools ask before they change it, but a command that you allow can. Keep it outside."
                yield Finding("note", "hooks", text)
    except InterlockError as error:
        yield Finding("problem", "hooks", str(error))


def check_and_protect_state_directory(home: Path) -> Iterator[Finding]:
    """Who can read the state directory, and what is in the store."""
    if not home.exists():
        yield Finding("ok", "state", f"{abbreviate_home(str(home))}: nothing has run yet")
        return
    yield from _make_state_directory_private(home)
    try:
        runs = Client.for_this_user().runs()
        damaged = find_damaged_pages(home, quick=True)
    except InterlockError as error:
        yield Finding("problem", "store", str(error))
        return
    if damaged:
        mend = "sqlite3 interlock.db .recover"
        yield Finding("problem", "store", f"damaged: {damaged[0]}. Recover it with: {mend}")
        return
    parts = Client.for_this_user().state_directory_sizes()
    made = ", ".join(f"{part} {format_compact_number(size)}" for part, size in parts.items())
    about = f"{format_count(len(runs), 'run')}, {format_compact_number(sum(parts.values()))} bytes"
    yield Finding("ok", "store", f"{abbreviate_home(str(home))}: {about}" + (f" ({made})" if made else ""))
    yield from _check_runs_due_for_deletion()


def _check_runs_due_for_deletion() -> Iterator[Finding]:
    """Runs that settings say to delete."""
    client = Client.for_this_user()
    try:
        kept = client.settings(Path.cwd()).store
    except InterlockError:  # reported with the settings
        return
    if kept.keep_days is None and kept.max_gb is None:
        return
    plan = client.plan_pruning(time.time(), kept.keep_days, kept.max_gb)
    if plan.due:
        due = format_count(len(plan.due), "run")
        text = f"{due} may be deleted (store.keepDays, store.maxGb): interlock store prune"
        yield Finding("note", "store", text)


def _make_state_directory_private(home: Path) -> Iterator[Finding]:
    """Close to other users what is ours in the state directory, and the directory if nothing else is in it."""
    try:
        repaired = [part for part in _OURS if restrict_tree_to_owner(home / part)]
        if home.stat().st_mode & 0o077 and {entry.name for entry in home.iterdir()} <= {*_OURS}:
            home.chmod(0o700)
            repaired.append(".")
    except OSError as error:
        yield Finding("problem", "state", f"{home} can be read by others and not be closed: {error}")
        return
    if repaired:
        yield Finding("note", "state", f"{home}: others could read {', '.join(repaired)}; made private")
    if home.stat().st_mode & 0o077:
        close = f"chmod 700 {shlex.quote(str(home))}"
        yield Finding("problem", "state", f"{home} can be read by others. Close it with: {close}")
