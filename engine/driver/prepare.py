"""prepare: loads a run's settings, environment, workspace, policy and model, before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from interlock.engine.driver.budget import no_price
from interlock.engine.driver.rights import (
    Definitions,
    RunRules,
    commands_of,
    fingerprint,
    lost_definitions,
    protected_paths,
    run_rules,
)
from interlock.engine.masking import redactor_of
from interlock.engine.options import Options
from interlock.services.checks import VIEWS
from interlock.services.config.formats import load_dotenv
from interlock.services.config.settings import FOLDERS, load_settings, read_object
from interlock.services.context.definitions import Skill, load_agents, load_skills
from interlock.services.files.workspace import FolderWorkspace, open_workspace
from interlock.services.hooks.configured import Hook, HookBook, event_named, load_hooks
from interlock.services.models.facts import ModelFacts
from interlock.services.models.names import check_credentials, resolve, with_whole_path
from interlock.services.policy.books import WorkspaceRules
from interlock.services.policy.load import (
    ADMIN_FOLDERS,
    RulePlaces,
    list_rule_files,
    read_rule_files,
    user_rule_folder,
)
from interlock.services.policy.modes import PROJECT_FILE, ModeBook, load_modes
from interlock.services.policy.rule import Scope
from interlock.services.sandbox.aside import set_aside_left
from interlock.services.sandbox.sandbox import Sandbox, open_sandbox
from interlock.services.secrets.environment import (
    foreign_run_environment,
    tool_environment,
)
from interlock.services.secrets.redaction import Redactor, count_marks
from interlock.services.trust import ignored_line, is_trusted, new_hooks, project_files, shown_path
from interlock.state.errors import CredentialsError, InputError, UntrustedError, UserError
from interlock.state.run import HookEvent, Limits, WorkflowInput
from interlock.state.settings import Settings
from interlock.state.subagent import AgentDefinition
from interlock.state.text import clean, nearest
from interlock.state.tooling import Tool

if TYPE_CHECKING:
    from interlock.services.policy.policy import RulePolicy


def trust_warnings(root: Path, options: Options, trusted: bool, hooks: list[Hook]) -> list[str]:
    """What was ignored as untrusted, or which of the project's hooks are new."""
    if trusted:
        return new_hooks(root, options.user_home, hooks)
    return ignored_line(project_files(root, options.user_home), root)


def check_model(
    settings: Settings, env: Mapping[str, str], options: Options, root: Path, trusted: bool
) -> None:
    """`check_credentials`, but raises `UntrustedError` for a key or an alias that only ignored files have."""
    try:
        check_credentials(settings, env, options.model)
    except UserError as error:
        if trusted:
            raise
        found = _key(root, options) if isinstance(error, CredentialsError) else _alias(root, options.model)
        if found is None:
            raise
        raise needed(*found, root) from error


def checked_modes(options: Options, root: Path, trusted: bool) -> tuple[ModeBook, list[str]]:
    """`load_modes`, but raises `InputError` for an unknown mode, `UntrustedError` for one only the project has."""
    modes, problems = load_modes(root, options.user_home, trusted)
    name = options.mode
    if not name or modes.get(name):
        return modes, problems
    if not trusted and load_modes(root, options.user_home, True)[0].get(name):
        raise needed(f"Mode {name!r}", root / PROJECT_FILE, root)
    slugs = [mode.slug for mode in modes.all()]
    hint = nearest(name, slugs)
    raise InputError(
        f"Input field 'mode': no mode {name!r}.{hint} Expected one of {', '.join(slugs)}.", "mode"
    )


def check_hooks(event: HookEvent, root: Path, options: Options) -> None:
    """Raises `UntrustedError` for hooks of the event that only the project has."""
    for file in project_files(root, options.user_home):
        named = [
            line.removeprefix("hook ").partition(":")[0] for line in file.runs if line.startswith("hook ")
        ]
        if event in map(event_named, named):
            raise needed(f"A hook for {event}", file.path, root)


def check_definitions(lost: Sequence[str], root: Path, options: Options, env: Mapping[str, str]) -> None:
    """Raise `UntrustedError` if a resumed run would lack what it began with because its folder isn't trusted now.

    `lost`: the hooks, agents, modes and servers that it began with and that don't count now.
    """
    if not lost:
        return
    loaded = load_settings(
        workspace=root, home=options.user_home, env=env, overrides=_overrides(options), trusted=True
    )
    theirs, hooks = _own(options, root, True), load_hooks(loaded.hooks, env)
    servers = loaded.settings.mcp_servers
    there = Definitions(hooks.hooks, theirs.agents.values(), theirs.modes.all(), servers).kept()
    if gone := [name for name in lost if name in there]:
        raise UntrustedError(
            f"The run began with {', '.join(gone)}, which counts only if the folder {str(root)!r} is trusted. "
            "Resume it with --skip-trust, or trust the folder: interlock trust"
        )


def needed(what: str, file: Path, root: Path) -> UntrustedError:
    return UntrustedError(
        f"{what} stands only in {shown_path(file, root)}, which was ignored: the folder {str(root)!r} isn't trusted. "
        "See what would count, and trust it: interlock trust"
    )


def _key(root: Path, options: Options) -> tuple[str, Path] | None:
    """The first API key in an ignored `.env`; every provider's variable ends in `_API_KEY`."""
    own = load_dotenv(start=root, home=options.user_home, env={}, trusted=False).values
    theirs = load_dotenv(start=root, home=options.user_home, env={}, trusted=True)
    names = [n for n in theirs.values if n.endswith("_API_KEY") and n not in own]
    return (f"The key {names[0]}", theirs.files[0]) if names else None


def _alias(root: Path, model: str | None) -> tuple[str, Path] | None:
    for file in (root / folder / "settings.json" for folder in FOLDERS):
        section = (read_object(file) or {}).get("model")
        aliases = cast(dict[str, Any], section).get("aliases") if isinstance(section, dict) else None
        if isinstance(aliases, dict) and model in aliases:
            return f"Model {model!r}", file
    return None


def untraced(env: Mapping[str, str]) -> list[str]:
    """A line that names the variable by which LangGraph would send traces of a graph, which we don't."""
    names = (f"{maker}_TRACING{version}" for maker in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2"))
    found = next((name for name in names if env.get(name, "").casefold() in ("1", "true")), "")
    return [f"{found} is set, but Interlock sends no traces."] if found else []


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
    modes: ModeBook
    hooks: HookBook
    sandbox: Sandbox | None
    redact: Redactor
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
    def facts(self) -> ModelFacts:
        """What is known of the models; a server nearby is asked when it first matters."""
        return ModelFacts(self.settings, self.env, self.options.home, ask=self.options.fake is None)

    @cached_property
    def is_brief(self) -> bool:
        """Whether the model gets the small system prompt and few tools."""
        wanted = self.options.prompt_profile or self.settings.model.prompt_profile
        if wanted != "auto" or self.options.fake is not None:
            return wanted == "small"
        return self.facts.is_small(resolve(self.settings, self.model))

    def protocol_of(self, wanted: str) -> str:
        """How the main model calls tools, `auto` resolved as far as that is known."""
        fake = self.options.fake is not None
        if fake:
            return "native" if wanted == "auto" else wanted
        return self.facts.protocol(resolve(self.settings, self.model), wanted)

    @cached_property
    def tool_env(self) -> Mapping[str, str]:
        """The environment passed to commands, hooks and servers."""
        made = foreign_run_environment if self.options.repository else tool_environment
        return made(self.env, rules=self.settings.security.environment)


def with_input(options: Options, input: WorkflowInput) -> Options:
    """Fill the fields every input has from flags; the input wins."""
    limits = {**options.limits, **input.limits.model_dump(exclude_unset=True)}
    workspace, model = (
        Path(input.workspace) if input.workspace else options.workspace,
        input.model or options.model,
    )
    elsewhere = options.queue or not _is_here(workspace)
    return replace(
        options,
        workspace=workspace,
        model=with_whole_path(model) if elsewhere else model,
        approval_mode=input.approval_mode or options.approval_mode,
        mode=input.mode or options.mode,
        protocol=input.protocol or options.protocol,
        limits=limits,
    )


def _is_here(workspace: Path | None) -> bool:
    """Return whether a workspace is the folder of this process; not if one of them is gone."""
    try:
        return workspace is None or workspace.samefile(".")
    except (OSError, ValueError):  # or its name is none
        return False


def prepare(options: Options, needs_model: bool) -> RunConfig:
    """Load all a run needs. Raises what stops it before it starts: configuration, credentials, a missing workspace."""
    root = _root(options)
    left = [*set_aside_left(options.home, root)]  # first: below, files of the workspace are obeyed
    trusted = options.skip_trust or (options.repository is None and is_trusted(root, options.user_home))
    home, over = options.user_home, _overrides(options)
    dotenv = load_dotenv(start=root, home=home, env=options.env, trusted=trusted)
    loaded = load_settings(workspace=root, home=home, env=dotenv.values, overrides=over, trusted=trusted)
    settings = loaded.settings
    if needs_model and options.fake is None:
        check_model(settings, dotenv.values, options, root, trusted)
    _tidy_views(options.home)
    places, hooks = _rule_places(options, root, trusted), load_hooks(loaded.hooks, dotenv.values)
    redact, own = redactor_of(settings, dotenv.values, options.home), _own(options, root, trusted)
    defined = Definitions(hooks.hooks, own.agents.values(), own.modes.all(), settings.mcp_servers)
    rules = run_rules(options, read_rule_files(list_rule_files(places)), settings, defined, redact)
    if not trusted and options.rights is not None and options.repository is None:
        check_definitions(lost_definitions(rules, defined), root, options, dotenv.values)
    programs = commands_of(settings, hooks.hooks, rules.now)
    protected = protected_paths(options, places, settings, dotenv.values, programs)
    workspace = open_workspace(root, rules.settings, options.home / "outputs", protected, options.buffers)
    books, settings = _books(options, rules, settings, workspace), rules.settings
    sandbox = _sandbox(options, workspace, settings, dotenv.values)
    idle = books.find_unmatchable_rules(own.agents, settings.mcp_servers)
    warnings = [*loaded.warnings, *dotenv.warnings, *rules.warnings(), *map(str, (*books.problems, *idle))]
    warnings += [*own.problems, *hooks.problems, *trust_warnings(root, options, trusted, [*hooks.hooks])]
    return RunConfig(
        # Whether a flag, settings or the environment asked for the sandbox: a resumed run has it too.
        options=replace(options, sandbox=sandbox is not None, rights=rules.kept),
        settings=settings,
        env=dotenv.values,
        workspace=workspace,
        approval_mode=options.approval_mode or settings.general.default_approval_mode,
        books=books,
        limits=_limits(options, settings, dotenv.values),
        trusted=trusted,
        warnings=[*warnings, *left],
        agents=own.agents,
        skills=own.skills,
        modes=ModeBook(own.modes.all(), rules.modes),
        hooks=hooks,
        sandbox=sandbox,
        redact=redactor_of(settings, dotenv.values, options.home),
    )


def _tidy_views(home: Path) -> None:
    """Remove the views in which killed runs ran their checks."""
    if (home / VIEWS).is_dir():
        from interlock.services.checks.view import remove_left_views  # deferred: most have none

        remove_left_views(home)


class _Own(NamedTuple):
    """What the user and a trusted project define besides settings, and a line for each unusable file."""

    agents: Mapping[str, AgentDefinition]
    skills: Mapping[str, Skill]
    modes: ModeBook
    problems: list[str]


def _own(options: Options, root: Path, trusted: bool) -> _Own:
    agents, bad = load_agents(root, options.user_home, trusted)
    skills, useless = load_skills(root, options.user_home, trusted)
    modes, broken = checked_modes(options, root, trusted)
    return _Own(agents, skills, modes, [*bad, *useless, *broken])


def _root(options: Options) -> Path:
    try:
        root = Path(options.workspace or Path.cwd()).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # no such home, a symlink loop, a null byte
        raise UserError(
            f"Workspace {str(options.workspace)!r} can't be used: {str(error).rstrip('.')}."
        ) from error
    if (shown := clean(str(root))) != str(root):
        raise UserError(
            f"Workspace {shown!r} can't be used: its path isn't UTF-8. Rename it, or name another one: -C DIR"
        )
    if root == options.home.resolve():
        raise UserError(
            f"Workspace {shown!r} is Interlock's state directory. Name another workspace (-C DIR), or choose another "
            "state directory with INTERLOCK_HOME."
        )
    return root


def check_input(input: WorkflowInput, prepared: RunConfig) -> None:
    """Raises `UntrustedError` for a named agent that only the untrusted project has."""
    name, root = getattr(input, "agent", None), prepared.workspace.root
    if not prepared.trusted and isinstance(name, str) and name not in prepared.agents:
        theirs = load_agents(root, prepared.options.user_home, True)[0].get(name)
        if theirs is not None:
            raise needed(f"Agent {name!r}", Path(theirs.source), root)


def _books(
    options: Options, rules: RunRules, settings: Settings, workspace: FolderWorkspace
) -> WorkspaceRules:
    scope = Scope(interactive=options.interactive)
    programs = {name: fingerprint(server) for name, server in settings.mcp_servers.items()}
    made = partial(WorkspaceRules, workspace=workspace, scope=scope, programs=programs)
    return made(rules.now, settings, began=made(rules.then, rules.settings) if rules.changed else None)


def _sandbox(
    options: Options, workspace: FolderWorkspace, settings: Settings, env: Mapping[str, str]
) -> Sandbox | None:
    if not settings.tools.sandbox:
        return None
    return open_sandbox(
        settings.tools,
        roots=workspace.roots,
        home=options.user_home,
        state=options.home,
        env=env,
        protected=workspace.protected_paths,
        others=[workspace.root.parent] if options.repository else [],
    )


def without_secrets(prompt: str, prepared: RunConfig) -> str:
    """The prompt as stored and sent; a secret in it adds a warning."""
    shown = prepared.redact(prompt)
    if shown != prompt:
        prepared.warnings.append(
            f"The prompt holds a secret; the model gets {', '.join(count_marks(shown))} in its place. Name a variable "
            "or a file that holds it; or set security.redactSecrets to false."
        )
    return shown


def _rule_places(options: Options, root: Path, trusted: bool) -> RulePlaces:
    admin = ADMIN_FOLDERS if options.admin_policies is None else options.admin_policies
    return RulePlaces(root, options.user_home, trusted, admin, options.policy_files)


def _overrides(options: Options) -> dict[str, Any]:
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
    return overrides


def _limits(options: Options, settings: Settings, env: Mapping[str, str]) -> Limits:
    limits = Limits.model_validate({"max_session_turns": settings.model.max_session_turns, **options.limits})
    if limits.max_budget_usd is not None:
        name, facts = settings.model.name, ModelFacts(settings, env)
        for model in (resolve(settings, n) for n in (("pro", "flash") if name == "auto" else (name,))):
            if facts.prices(model) is None:
                raise InputError(no_price(model), "limits.max_budget_usd")
    return limits
