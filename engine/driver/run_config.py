"""run_config: loads a run's settings, environment, workspace, policy and model, before anything is written."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from interlock.engine.driver.budget import no_price_message
from interlock.engine.driver.run_rules import (
    EffectiveRules,
    definitions_to_store,
    find_protected_paths,
    load_run_instructions,
    resolve_run_rules,
    rights_to_store,
    server_fingerprint,
)
from interlock.engine.masking import make_redactor
from interlock.engine.options import Options
from interlock.services.checks import VIEWS
from interlock.services.config.settings import FOLDERS, read_json_object
from interlock.services.configuration import Configuration, ConfigurationSources, load_or_reuse_configuration
from interlock.services.context.agents import build_agent_tools
from interlock.services.context.definition_files import Folders
from interlock.services.context.skills import Skill, build_skill_tools
from interlock.services.files.protected import ProtectedPaths
from interlock.services.files.workspace import FolderWorkspace, open_workspace
from interlock.services.hooks.hook_settings import HookRegistry, find_hook_event
from interlock.services.models.facts import ModelFacts
from interlock.services.models.names import require_usable_model, resolve_model, with_absolute_script_path
from interlock.services.policy.modes import PROJECT_FILE, ModeRegistry, restrict_mode_tools
from interlock.services.policy.rule import Scope
from interlock.services.policy.rule_files import ADMIN_FOLDERS, user_rule_folder
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.services.sandbox.quarantine import quarantine_leftovers
from interlock.services.sandbox.sandbox import Sandbox, list_borrowed_object_folders, open_sandbox
from interlock.services.secrets.environment import (
    foreign_run_environment,
    tool_environment,
)
from interlock.services.secrets.redaction import Redactor, count_redaction_marks
from interlock.services.trust.first_reports import record_and_report_more_memory, record_and_report_new_hooks
from interlock.services.trust.project_files import display_path, list_files_needing_trust
from interlock.state.errors import CredentialsError, InputError, UntrustedError, UserError
from interlock.state.run import HookEvent, Limits, WorkflowInput
from interlock.state.settings import Settings
from interlock.state.subagent import AgentDefinition
from interlock.state.text import did_you_mean, replace_surrogates
from interlock.state.tooling import Tool

if TYPE_CHECKING:
    from interlock.services.policy.policy import RulePolicy


def load_run_configuration(options: Options, root: Path) -> Configuration:
    """Return what the files of the folder `root`, of the user and the options configure a run by."""
    overrides: dict[str, Any] = dict(options.overrides)
    flags: tuple[tuple[str, str, object], ...] = (
        ("model", "name", options.model),
        ("context", "includeDirectories", [*map(str, options.include_directories)]),
        ("tools", "allowed", [*options.allowed_tools]),
        ("tools", "sandbox", options.sandbox),
    )
    for section, key, value in flags:
        if value:
            overrides[section] = {**overrides.get(section, {}), key: value}
    return load_or_reuse_configuration(
        ConfigurationSources(
            root,
            options.user_home,
            options.env,
            overrides,
            trusted=options.skip_trust or (None if options.repository is None else False),
            admin=ADMIN_FOLDERS if options.admin_policies is None else options.admin_policies,
            policies=options.policy_files,
        )
    )


def check_model_usable(configuration: Configuration, options: Options) -> None:
    """`require_usable_model`, but raises `UntrustedError` for a key or an alias that only ignored files have."""
    try:
        require_usable_model(
            configuration.loaded_settings.settings, configuration.environment.values, options.model
        )
    except UserError as error:
        if configuration.is_workspace_trusted:
            raise
        root = configuration.sources.root
        keys = isinstance(error, CredentialsError)
        found = (
            _find_ignored_api_key(configuration) if keys else _find_ignored_model_alias(root, options.model)
        )
        if found is None:
            raise
        raise untrusted_error(*found, root) from error


def check_mode_exists(configuration: Configuration, name: str | None) -> None:
    """Raise `InputError` for a mode of work that doesn't exist, `UntrustedError` for one only the project has."""
    modes, _ = configuration.modes
    if not name or modes.find_mode(name):
        return
    root = configuration.sources.root
    if not configuration.is_workspace_trusted and configuration.load_as_if_trusted().modes[0].find_mode(name):
        raise untrusted_error(f"Mode {name!r}", root / PROJECT_FILE, root)
    slugs = [mode.slug for mode in modes.list_modes()]
    hint = did_you_mean(name, slugs)
    raise InputError(
        f"Input field 'mode': no mode {name!r}.{hint} Expected one of {', '.join(slugs)}.", "mode"
    )


def check_hooks_trusted(event: HookEvent, root: Path, options: Options) -> None:
    """Raises `UntrustedError` for hooks of the event that only the project has."""
    for file in list_files_needing_trust(root, options.user_home):
        named = [
            line.removeprefix("hook ").partition(":")[0] for line in file.runs if line.startswith("hook ")
        ]
        if event in map(find_hook_event, named):
            raise untrusted_error(f"A hook for {event}", file.path, root)


def check_definitions_trusted(missing: Sequence[str], configuration: Configuration) -> None:
    """Raise `UntrustedError` if a resumed run would lack what it began with because its folder isn't trusted now.

    `missing`: the hooks, agents, modes and servers that it began with and that don't count now.
    """
    if not missing:
        return
    there = definitions_to_store(configuration.load_as_if_trusted())
    if gone := [name for name in missing if name in there]:
        raise UntrustedError(
            f"The run began with {', '.join(gone)}, which counts only if the folder "
            f"{str(configuration.sources.root)!r} is trusted. "
            "Resume it with --skip-trust, or trust the folder: interlock trust"
        )


def untrusted_error(what: str, file: Path, root: Path) -> UntrustedError:
    return UntrustedError(
        f"{what} stands only in {display_path(file, root)}, which was ignored: the folder {str(root)!r} isn't trusted. "
        "See what would count, and trust it: interlock trust"
    )


def _find_ignored_api_key(configuration: Configuration) -> tuple[str, Path] | None:
    """The first API key in an ignored `.env`; every provider's variable ends in `_API_KEY`."""
    nothing_set = replace(configuration.sources, env={})
    own = load_or_reuse_configuration(replace(nothing_set, trusted=False)).environment.values
    theirs = load_or_reuse_configuration(replace(nothing_set, trusted=True)).environment
    names = [n for n in theirs.values if n.endswith("_API_KEY") and n not in own]
    return (f"The key {names[0]}", theirs.files[0]) if names else None


def _find_ignored_model_alias(root: Path, model: str | None) -> tuple[str, Path] | None:
    for file in (root / folder / "settings.json" for folder in FOLDERS):
        section = (read_json_object(file) or {}).get("model")
        aliases = cast(dict[str, Any], section).get("aliases") if isinstance(section, dict) else None
        if isinstance(aliases, dict) and model in aliases:
            return f"Model {model!r}", file
    return None


@dataclass(frozen=True)
class RunConfig:
    """Everything known before a run is driven."""

    options: Options
    settings: Settings
    env: Mapping[str, str]
    workspace: FolderWorkspace
    approval_mode: str
    books: WorkspaceRules
    limits: Limits
    trusted: bool
    warnings: list[str]
    agents: Mapping[str, AgentDefinition]
    skills: Mapping[str, Skill]
    definition_folders: Folders
    modes: ModeRegistry
    hooks: HookRegistry
    sandbox: Sandbox | None
    redact: Redactor
    defined_tools: Mapping[str, Tool]
    """Those that start agents, activate skills and switch modes."""
    project_env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the project sets for commands, hooks and servers."""
    discovered: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """Set once the project's discovery command has run."""

    @property
    def model(self) -> str:
        return self.settings.model.name

    @property
    def chosen_mode(self) -> str:
        """The approval mode that a person chose by its name."""
        return "default" if self.options.edits_granted else self.approval_mode

    @cached_property
    def policy(self) -> "RulePolicy":
        from interlock.services.policy.policy import RulePolicy  # deferred: no request waits for it

        return RulePolicy(self.books, user_rule_folder(self.options.user_home))

    @cached_property
    def model_facts(self) -> ModelFacts:
        """What is known of the models; a server nearby is asked when it first matters."""
        return ModelFacts(self.settings, self.env, self.options.home, ask=self.options.fake is None)

    @cached_property
    def uses_small_prompt(self) -> bool:
        """Whether the model gets the small system prompt and few tools."""
        wanted = self.options.prompt_profile or self.settings.model.prompt_profile
        if wanted != "auto" or self.options.fake is not None:
            return wanted == "small"
        return self.model_facts.uses_small_prompt(resolve_model(self.settings, self.model))

    def resolve_protocol(self, wanted: str) -> str:
        """How the main model calls tools, `auto` resolved as far as that is known."""
        fake = self.options.fake is not None
        if fake:
            return "native" if wanted == "auto" else wanted
        return self.model_facts.resolve_call_protocol(resolve_model(self.settings, self.model), wanted)

    @cached_property
    def tool_env(self) -> Mapping[str, str]:
        """The environment passed to commands, hooks and servers."""
        made = foreign_run_environment if self.options.repository else tool_environment
        return made({**self.project_env, **self.env}, rules=self.settings.security.environment)


def merge_input_into_options(options: Options, input: WorkflowInput) -> Options:
    """Fill the fields every input has from flags; the input wins."""
    limits = {**options.limits, **input.limits.model_dump(exclude_unset=True)}
    workspace, model = (
        Path(input.workspace) if input.workspace else options.workspace,
        input.model or options.model,
    )
    elsewhere = options.queue or not _is_current_folder(workspace)
    return replace(
        options,
        workspace=workspace,
        model=with_absolute_script_path(model) if elsewhere else model,
        approval_mode=input.approval_mode or options.approval_mode,
        mode=input.mode or options.mode,
        protocol=input.protocol or options.protocol,
        limits=limits,
    )


def _is_current_folder(workspace: Path | None) -> bool:
    """Return whether a workspace is the folder of this process; not if one of them is gone."""
    try:
        return workspace is None or workspace.samefile(".")
    except (OSError, ValueError):  # or its name is none
        return False


def prepare_run(options: Options, needs_model: bool) -> RunConfig:
    """Load all a run needs. Raises what stops it before it starts: configuration, credentials, a missing workspace."""
    root = _resolve_workspace_root(options)
    left = [*quarantine_leftovers(options.home, root)]  # first: below, files of the workspace are obeyed
    configuration = load_run_configuration(options, root)
    env, trusted = configuration.environment.values, configuration.is_workspace_trusted
    if needs_model and options.fake is None:
        check_model_usable(configuration, options)
    _remove_leftover_views(options.home)
    hooks, own_redactor = configuration.hooks, partial(_load_redactor, configuration, options.home)
    agents, skills, (modes, broken) = configuration.agents, configuration.skills, configuration.modes
    check_mode_exists(configuration, options.mode)
    now = configuration.compute_once(
        ("rights", options.home), lambda: rights_to_store(configuration, own_redactor())
    )
    rules = resolve_run_rules(options, configuration, now)
    if rules.changed_names and not trusted and options.repository is None:
        check_definitions_trusted(
            [name for name in rules.rights_to_keep["defined"] if name not in now["defined"]], configuration
        )
    settings, protected = rules.settings, _make_protected_paths(options, rules, configuration)
    workspace = open_workspace(root, settings, options.home / "outputs", protected, options.buffers)
    books, problems = _load_rules(options, rules, configuration, workspace)
    defined_tools = configuration.compute_once(
        "tools",
        lambda: {
            **build_agent_tools(agents.by_name),
            **build_skill_tools(skills.by_name, root if trusted and settings.context.read.skills else None),
            **restrict_mode_tools(modes),
        },
    )
    sandbox, hidden = _open_sandbox(options, workspace, settings, env, trusted)
    warnings = [
        *configuration.loaded_settings.warnings,
        *configuration.environment.warnings,
        *rules.list_warnings(),
        *hidden,
    ]
    warnings += [
        *problems,
        *agents.list_warnings(),
        *agents.list_notes(),
        *skills.list_warnings(),
        *broken,
        *hooks.problems,
        *configuration.warnings_about_ignored_files,
    ]
    if trusted:
        warnings += record_and_report_new_hooks(root, options.user_home, hooks.hooks)
        memory = load_run_instructions(configuration).memory
        if settings.context.chosen_file_names is None:
            warnings += record_and_report_more_memory(root, options.user_home, memory)
    return RunConfig(
        # Whether a flag, settings or the environment asked for the sandbox: a resumed run has it too.
        options=replace(options, sandbox=sandbox is not None, rights=rules.rights_to_keep),
        settings=settings,
        env=env,
        workspace=workspace,
        approval_mode=options.approval_mode or settings.general.default_approval_mode,
        books=books,
        limits=_resolve_limits(options, settings, env),
        trusted=trusted,
        warnings=[*warnings, *left],
        agents=agents.by_name,
        skills=skills.by_name,
        definition_folders=configuration.definition_folders,
        modes=ModeRegistry(modes.list_modes(), rules.modes) if rules.modes else modes,
        hooks=hooks,
        sandbox=sandbox,
        defined_tools=defined_tools,
        project_env=configuration.loaded_settings.project_env,
        redact=copy(own_redactor()),  # a run learns secrets of its own
    )


def _remove_leftover_views(home: Path) -> None:
    """Remove the views in which killed runs ran their checks."""
    if (home / VIEWS).is_dir():
        from interlock.services.checks.view import remove_leftover_views  # deferred: most have none

        remove_leftover_views(home)


def _load_redactor(configuration: Configuration, home: Path) -> Redactor:
    settings, env = configuration.loaded_settings.settings, configuration.environment.values
    return configuration.compute_once(("redactor", home), lambda: make_redactor(settings, env, home))


def _resolve_workspace_root(options: Options) -> Path:
    try:
        root = Path(options.workspace or Path.cwd()).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such home, a symlink loop, a null byte
        raise UserError(
            f"Workspace {str(options.workspace)!r} can't be used: {str(error).rstrip('.')}."
        ) from error
    if (shown := replace_surrogates(str(root))) != str(root):
        raise UserError(
            f"Workspace {shown!r} can't be used: its path isn't UTF-8. Rename it, or name another one: -C DIR"
        )
    if root == options.home.resolve():
        raise UserError(
            f"Workspace {shown!r} is Interlock's state directory. Name another workspace (-C DIR), or choose another "
            "state directory with INTERLOCK_HOME."
        )
    return root


def check_agent_trusted(input: WorkflowInput, prepared: RunConfig) -> None:
    """Raises `UntrustedError` for a named agent that only the untrusted project has."""
    name, root = getattr(input, "agent", None), prepared.workspace.root
    if not prepared.trusted and isinstance(name, str) and name not in prepared.agents:
        theirs = load_run_configuration(prepared.options, root).load_as_if_trusted().agents.by_name.get(name)
        if theirs is not None:
            raise untrusted_error(f"Agent {name!r}", Path(theirs.source), root)


def _load_rules(
    options: Options, rules: EffectiveRules, configuration: Configuration, workspace: FolderWorkspace
) -> tuple[WorkspaceRules, list[str]]:
    """Return the rules of a run, and a line for each that can't count."""
    scope, settings = Scope(interactive=options.interactive), rules.settings

    def made() -> tuple[WorkspaceRules, list[str]]:
        programs = {name: server_fingerprint(server) for name, server in settings.mcp_servers.items()}
        of = partial(WorkspaceRules, settings=settings, workspace=workspace, scope=scope, programs=programs)
        books = of(rules.current_rules, at_start=of(rules.rules_at_start) if rules.changed_names else None)
        idle = books.find_unmatchable_rules(configuration.agents.by_name, settings.mcp_servers)
        return books.without_workspace(), [*map(str, (*books.problems, *idle))]

    books, problems = (
        made() if rules.changed_names else configuration.compute_once(("books", options.interactive), made)
    )
    return books.in_workspace(workspace), problems


def _make_protected_paths(
    options: Options, rules: EffectiveRules, configuration: Configuration
) -> ProtectedPaths:
    """Return the protected paths for one drive, which notes what its tools make."""

    def made() -> ProtectedPaths:
        return find_protected_paths(options, configuration, rules.current_rules)

    own = rules.current_rules is configuration.rules.rules
    known = configuration.compute_once(("protected", options.home, options.check), made) if own else made()
    return ProtectedPaths(
        known.memory,
        known.places,
        known.home,
        link_folders=known.link_folders,
        link_indexes=known.link_indexes,
    )


def _open_sandbox(
    options: Options, workspace: FolderWorkspace, settings: Settings, env: Mapping[str, str], trusted: bool
) -> tuple[Sandbox | None, list[str]]:
    """Return the sandbox, if one is wanted, and a line if git can't work in it."""
    if not settings.tools.sandbox:
        return None, []
    sandbox = open_sandbox(
        settings.tools,
        roots=workspace.roots,
        home=options.user_home,
        state=options.home,
        env=env,
        protected=workspace.protected_paths,
        other_run_folders=[workspace.root.parent] if options.repository else [],
        is_trusted=trusted,
    )
    if trusted or not (borrowed := list_borrowed_object_folders(workspace.root)):
        return sandbox, []
    return sandbox, [
        f"git may fail in the sandbox: the repository borrows objects from {str(borrowed[0])!r}, which commands see "
        "only if this folder is trusted. To trust it: interlock trust"
    ]


def redact_prompt_and_warn(prompt: str, prepared: RunConfig) -> str:
    """The prompt as stored and sent; a secret in it adds a warning."""
    shown = prepared.redact(prompt)
    if shown != prompt:
        prepared.warnings.append(
            f"The prompt holds a secret; the model gets {', '.join(count_redaction_marks(shown))} in its place. "
            "Name a variable or a file that holds it; or set security.redactSecrets to false."
        )
    return shown


def _resolve_limits(options: Options, settings: Settings, env: Mapping[str, str]) -> Limits:
    limits = Limits.model_validate({"max_session_turns": settings.model.max_session_turns, **options.limits})
    if limits.max_budget_usd is not None:
        name, facts = settings.model.name, ModelFacts(settings, env)
        for model in (resolve_model(settings, n) for n in (("pro", "flash") if name == "auto" else (name,))):
            if facts.prices(model) is None:
                raise InputError(no_price_message(model), "limits.max_budget_usd")
    return limits
