"""compose: builds the `Deps` of a drive."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from interlock.engine.driver.budget import RunBudget
from interlock.engine.driver.checks import RunChecks
from interlock.engine.driver.delegation import RunAgents, RunPlans, RunTasks
from interlock.engine.driver.hooks import RunHooks
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.optional_rooms import require_optional_part
from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals, list_confirmed_encodings
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.journal import HookLog, SqlJournal, make_effect_journal
from interlock.engine.store.model_calls import SqlModelLog, UsageLedger
from interlock.engine.store.snapshots import SqlSnapshots
from interlock.engine.store.steps import StepLog
from interlock.services.context.agents import AGENT_TOOLS, ONLY_AGENTS
from interlock.services.context.workspace_context import PromptFlags, WorkspaceContext
from interlock.services.files.filesystem import OutputFiles
from interlock.services.hooks.hook_replies import HookEnvironment
from interlock.services.models.chat import ChatModels
from interlock.services.models.names import find_model_problem
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.process.supervisor_client import SUPERVISORS
from interlock.services.toolset import BuiltinToolset
from interlock.services.transcript import ChainTranscript
from interlock.state.checks import AS_BEFORE
from interlock.state.deps import Clock, Deps, RunInfo, Token
from interlock.state.events import Emit
from interlock.state.mcp import ServerView
from interlock.state.tooling import Tool, Toolset
from interlock.tools.apply_diff import TOOL as APPLY_DIFF
from interlock.tools.control import ACTIVATE_SKILL, FIND_SKILLS, UPDATE_TODO_LIST
from interlock.tools.table import OTHERS_OF_TASK, TASK_LOOP, TOOLS, most_important_tool_names

if TYPE_CHECKING:
    from interlock.services.checks.repair_files import RepairFiles
    from interlock.services.index import WorkspaceIndex
    from interlock.services.language_servers.servers import LanguageServers
    from interlock.services.mcp import Keep, Servers
    from interlock.services.policy.policy import RulePolicy
    from interlock.services.snapshots.snapshots import ShadowRepository, WorkspaceSnapshots

T = TypeVar("T")

_ALL_TOOLS = ("tools", "system-prompt", "mode")
"""Workflows that keep the tools of every loop: their input says which loop it is about."""


class LazyService(Generic[T]):
    """Builds a rarely needed service lazily: when called, or as a proxy for it on first attribute access."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None

    def __call__(self) -> T:
        if self.made is None:
            self.made = self._make()
        return self.made

    def __getattr__(self, name: str) -> Any:
        return getattr(self(), name)


class _NoMcpServers(LazyService["Servers"]):
    """Answers what every run asks without importing what connects to servers."""

    async def start_and_wait_for_servers(self, server: str | None = None) -> None: ...

    def enabled_server_names(self) -> list[str]:
        return []

    def list_servers(self) -> list[ServerView]:
        return []


@dataclass(frozen=True)
class DriveServices:
    """The deps, and the parts of them the engine itself uses."""

    deps: Deps
    transcript: ChainTranscript
    journal: SqlJournal
    models: LazyService[ChatModels]
    processes: SupervisedProcesses
    mcp: "LazyService[Servers]"
    index: "LazyService[WorkspaceIndex]"
    language_servers: "LazyService[LanguageServers] | None"

    async def close(self) -> None:
        self.deps.snapshots.save_and_close()
        if self.language_servers and self.language_servers.made:
            await self.language_servers.made.close()
        self.processes.close()
        if self.index.made:
            await asyncio.to_thread(self.index.made.close)
        if self.mcp.made:
            await self.mcp.made.close()
        if self.models.made:
            await self.models.made.aclose()


def compose_services(
    prepared: RunConfig,
    info: RunInfo,
    store: Store,
    conn: Connection,
    *,
    epoch: int,
    token: Token,
    steps: StepLog,
    emit: Emit,
    on_refused: Callable[[str, str], None],
) -> DriveServices:
    """Wire the services of one drive; nothing is connected or started yet.

    `conn`: fenced by the lease of this `epoch`. `on_refused`: called when a budget is used up, with a message for the
    user and the kind of error.
    """
    outputs = _open_outputs_and_fetch_plans(prepared, info, store, conn)
    index = LazyService(partial(_open_index, prepared, store))
    redact, plans = prepared.redact, prepared.workspace.plans
    transcript = ChainTranscript(SqlChain(conn), store.outputs, info.run, redact=redact)
    journal = SqlJournal(conn, transcript, store.outputs, info.run, epoch, redact, plans)
    processes, commands = of_run = _make_hook_and_command_processes(prepared, outputs)
    opened = partial(make_mcp_servers, prepared, outputs, emit, journal.record_server_reply)
    servers = LazyService(opened) if prepared.settings.mcp_servers else _NoMcpServers(opened)
    policy = _make_policy(prepared, commands if prepared.options.repository else processes, servers)
    models = cast(
        ChatModels,
        lazy := LazyService(partial(_make_models, prepared, info, transcript, conn, epoch, on_refused)),
    )
    tools, approvals = _available_tools(prepared, info), SqlApprovals(conn, info.run, prepared.redact, store)
    for confirmed in list_confirmed_encodings(conn, info.run):
        prepared.workspace.confirm_encoding(confirmed)
    checkers = _make_language_servers(prepared, commands, emit)
    toolset = partial(_make_toolset, prepared, commands, outputs, servers, models, emit, index, checkers)
    hooks = _make_hooks(prepared, info, HookLog(conn, store.outputs, info.run, epoch), approvals, of_run)
    kept = _make_snapshots(prepared, store, partial(SqlSnapshots, conn, info.run, steps, emit))
    agents = RunAgents(
        prepared.agents,
        tools,
        transcript,
        models,
        policy,
        toolset,
        hooks,
        partial(find_model_problem, prepared.settings, prepared.env),
    )
    options = prepared.options
    context = WorkspaceContext(
        info=info,
        settings=prepared.settings,
        env=prepared.env,
        workspace=prepared.workspace,
        flags=PromptFlags(options.system_prompt, options.append_system_prompt, options.ide_context),
        home=options.user_home,
        trusted=prepared.trusted,
        definition_folders=prepared.definition_folders,
        skills=prepared.skills,
    )
    agents.root = deps = Deps(
        info=info,
        settings=prepared.settings,
        clock=Clock(),
        cancel=token,
        transcript=transcript,
        models=models,
        toolset=toolset(_select_root_agent_tools(prepared, info, tools)),
        policy=policy,
        journal=journal,
        effects=make_effect_journal(conn, info.run, epoch, prepared.redact),
        approvals=approvals,
        context=context,
        outputs=outputs,
        steps=steps,
        snapshots=kept,
        agents=agents,
        plans=RunPlans(store, info, prepared),
        tasks=RunTasks(store, info, prepared),
        hooks=hooks,
        checks=_make_checks(prepared, hooks, kept, outputs, commands),
        mcp=cast("Servers", servers),
        index=index,
        modes=prepared.modes,
        emit=emit,
    )
    return DriveServices(deps, transcript, journal, lazy, commands, servers, index, checkers)


def _open_outputs_and_fetch_plans(
    prepared: RunConfig, info: RunInfo, store: Store, conn: Connection
) -> OutputFiles:
    """What the run itself wrote, perhaps on another host, is there for its tools; returns where they write more."""
    outputs = OutputFiles(store.home, prepared.redact)
    prepared.workspace.plans = store.plans / info.run
    if store.blobs:
        from interlock.engine.store.blobs import (
            fetch_output_file_if_stored,
            fetch_plans_keeping_local_edits,
            store_output_file,
        )

        prepared.workspace.fetch_output = partial(fetch_output_file_if_stored, store)
        fetch_plans_keeping_local_edits(conn, store.home, info.run)
        outputs = replace(outputs, on_complete=partial(store_output_file, store))
    return outputs


def _open_index(prepared: RunConfig, store: Store) -> "WorkspaceIndex":
    require_optional_part("index", "Searching by meaning needs", "services/index")
    from interlock.services.index import open_index

    name = prepared.settings.search.embeddings
    return open_index(store.home, prepared.workspace, name, prepared.env, prepared.redact)


def _make_snapshots(
    prepared: RunConfig, store: Store, make_sql_snapshots: Callable[..., SqlSnapshots]
) -> SqlSnapshots:
    def make() -> "WorkspaceSnapshots":
        from interlock.services.snapshots.snapshots import WorkspaceSnapshots

        return WorkspaceSnapshots(store.home, prepared.workspace, prepared.settings.snapshots)

    def keep_ignored(repository: "ShadowRepository", ref: str, snapshot: str) -> str:
        from interlock.services.checks.ignored_tests import store_ignored_tests as keep

        workspace, command = prepared.workspace, prepared.options.check
        return keep(repository, ref, snapshot, workspace, command, prepared.redact)

    needed, checked = prepared.options.repository is not None, requires_original_tests(prepared)
    wanted = needed or prepared.settings.snapshots.enabled or checked
    ignored = keep_ignored if checked else None
    return make_sql_snapshots(make if wanted else None, ignored, needed, prepared.options.commits)


async def discover_and_add_tools(prepared: RunConfig, home: Path) -> RunConfig:
    """Add the tools declared by the project's discovery command, if settings name one; `home`: the state directory."""
    if not prepared.settings.tools.discovery_command:
        return prepared
    from interlock.services.project_tools import discover_tools

    processes, _ = _make_hook_and_command_processes(prepared, OutputFiles(home, prepared.redact))
    tools, problems = await discover_tools(prepared.settings, prepared.workspace.root, processes)
    prepared.warnings.extend(problems)
    return replace(prepared, discovered=tools)


def _make_hook_and_command_processes(
    prepared: RunConfig, outputs: OutputFiles
) -> tuple[SupervisedProcesses, SupervisedProcesses]:
    """Processes for hooks and checkers, and those for commands."""
    make = partial(
        SupervisedProcesses,
        outputs=outputs,
        env=prepared.tool_env,
        redact=prepared.redact,
        most=_process_limits(prepared),
    )
    return make(), make(sandbox=prepared.sandbox)


def _process_limits(prepared: RunConfig) -> tuple[int, int]:
    """Limits for one command or server: number of processes, bytes of memory."""
    shell = prepared.settings.tools.shell
    machine = int(os.sysconf("SC_PHYS_PAGES")) * int(os.sysconf("SC_PAGE_SIZE"))
    memory = machine * 3 // 4 if shell.max_memory_mb is None else shell.max_memory_mb << 20
    return shell.max_processes, memory


def make_mcp_servers(
    prepared: RunConfig, outputs: OutputFiles, emit: Emit, record_reply: "Keep" = lambda _asked, _answer: None
) -> "Servers":
    from interlock.services.mcp import Servers, build_server_specs

    root = prepared.workspace.root
    return Servers(
        build_server_specs(prepared.settings, root),
        workspace=root,
        env=prepared.tool_env,
        most=_process_limits(prepared),
        outputs=outputs,
        emit=emit,
        home=prepared.options.home,
        learn=prepared.redact.add_secrets,
        keep=record_reply,
    )


def _make_policy(
    prepared: RunConfig, processes: SupervisedProcesses, servers: "LazyService[Servers]"
) -> "RulePolicy":
    def made() -> "RulePolicy":
        policy = prepared.policy
        policy.set_checker_processes(processes)
        if prepared.settings.mcp_servers:
            policy = policy.for_servers(servers().enabled_server_names(), servers().trusted_tool_annotations)
        return policy

    return cast("RulePolicy", LazyService(made))


def _make_hooks(
    prepared: RunConfig,
    info: RunInfo,
    log: HookLog,
    approvals: SqlApprovals,
    processes: tuple[SupervisedProcesses, SupervisedProcesses],
) -> RunHooks:
    environment = HookEnvironment(
        info.run,
        info.workspace,
        prepared.workspace.plans,
        info.agent,
        redact=prepared.redact,
        servers=frozenset(prepared.settings.mcp_servers),
    )
    checked = bool(prepared.options.check)
    made = RunHooks(prepared.hooks, log, approvals, processes[0], environment, checked=checked)
    return replace(made, inside=processes[1]) if prepared.sandbox else made


def requires_original_tests(prepared: RunConfig) -> bool:
    """Whether the run has a check that must succeed with the tests of the run's start."""
    how = prepared.options.check_tests or prepared.settings.check.tests
    return bool(prepared.options.check) and how == AS_BEFORE


def _make_checks(
    prepared: RunConfig,
    hooks: RunHooks,
    snapshots: SqlSnapshots,
    outputs: OutputFiles,
    commands: SupervisedProcesses,
) -> RunChecks:
    def processes_in(copy: Path | None) -> SupervisedProcesses:
        sandbox = prepared.sandbox
        if sandbox and copy:
            sandbox = replace(sandbox, roots=[copy, *sandbox.roots[1:]])
        return _make_hook_and_command_processes(replace(prepared, sandbox=sandbox), outputs)[1]

    return RunChecks(
        command=prepared.options.check,
        must_pass_with_original_tests=requires_original_tests(prepared),
        log=hooks.log,
        snapshots=snapshots,
        workspace=prepared.workspace,
        around=hooks.around,
        home=prepared.options.home,
        make_processes=processes_in,
        commands=commands,
        copies_workspace=prepared.sandbox is not None,
    )


def _make_toolset(
    prepared: RunConfig,
    processes: SupervisedProcesses,
    outputs: OutputFiles,
    servers: "LazyService[Servers]",
    models: ChatModels,
    emit: Emit,
    index: "LazyService[WorkspaceIndex]",
    checkers: "LazyService[LanguageServers] | None",
    tools: Mapping[str, Tool],
    includes_server_tool: Callable[[str], bool] = lambda _: True,
) -> Toolset:
    """`includes_server_tool`: whether an MCP server's tool is included."""
    kind = BuiltinToolset
    if prepared.settings.mcp_servers:
        from interlock.services.mcp import JoinedToolset

        kind = partial(JoinedToolset, servers=servers(), is_included=includes_server_tool)
    return kind(
        workspace=prepared.workspace,
        processes=processes,
        outputs=outputs,
        settings=prepared.settings,
        tools=tools,
        models=models,
        emit=emit,
        index=index,
        brief=prepared.uses_small_prompt,
        problem_finder=cast("LanguageServers | None", checkers),
    )


def _make_language_servers(
    prepared: RunConfig, processes: SupervisedProcesses, emit: Emit
) -> "LazyService[LanguageServers] | None":
    """Return the servers that check edits; None: the folder isn't trusted, and they execute its configuration."""
    if not prepared.trusted or not prepared.settings.tools.diagnostics:
        return None

    def make() -> "LanguageServers":
        from interlock.services.language_servers.servers import LanguageServers
        from interlock.services.language_servers.table import ServerFinder, merge_server_settings

        known = merge_server_settings(prepared.settings.tools.language_servers)
        workspace = prepared.workspace
        finder = ServerFinder(known, workspace.roots, prepared.tool_env.get("PATH", ""))
        return LanguageServers(finder, processes=processes, display_path=workspace.display_path, emit=emit)

    return LazyService(make)


def _available_tools(prepared: RunConfig, info: RunInfo) -> dict[str, Tool]:
    tools = {**TOOLS, **prepared.defined_tools, **prepared.discovered}
    task = prepared.settings.task
    off = {
        ACTIVATE_SKILL.name: ACTIVATE_SKILL.name not in prepared.defined_tools,
        FIND_SKILLS.name: FIND_SKILLS.name not in prepared.defined_tools,
        UPDATE_TODO_LIST.name: not task.todo_list,
        APPLY_DIFF.name: not task.diff,
    }
    if info.workflow == "tools":
        tools |= prepared.options.own_tools
    return {name: tool for name, tool in tools.items() if not off.get(name)}


def _select_root_agent_tools(
    prepared: RunConfig, info: RunInfo, tools: Mapping[str, Tool]
) -> dict[str, Tool]:
    """Omit tools that end a sub-agent or belong to another loop, and those that start one if settings allow none."""
    if prepared.uses_small_prompt and info.workflow not in _ALL_TOOLS:
        return {
            name: tools[name]
            for name in most_important_tool_names(info.workflow, prepared.approval_mode)
            if name in tools
        }
    hidden = {*ONLY_AGENTS, *(() if prepared.settings.agents.max_depth else AGENT_TOOLS)}
    if info.workflow == "task":
        hidden |= OTHERS_OF_TASK
    elif info.workflow not in _ALL_TOOLS:
        hidden |= TASK_LOOP
    return {name: tool for name, tool in tools.items() if name not in hidden}


def _make_models(
    prepared: RunConfig,
    info: RunInfo,
    transcript: ChainTranscript,
    conn: Connection,
    epoch: int,
    on_refused: Callable[[str, str], None],
) -> ChatModels:
    usage = UsageLedger(conn, info.run, epoch)
    options, prices, over_all = prepared.options, prepared.model_facts.prices, None
    if options.limited:
        user: str = (options.submitted or {}).get("user", "")
        over_all = options.limited.make_call_limiter(conn, user, info.workflow, prices)
    budget = RunBudget(usage, prepared.limits, prices, on_refused, over_all)
    return ChatModels(
        only_own_scripts=prepared.options.repository is not None,
        settings=prepared.settings,
        log=SqlModelLog(conn, transcript, info.run),
        clock=Clock(),
        env=prepared.env,
        agent=info.agent or prepared.options.task_path,
        record_to=prepared.options.record_to,
        fake=prepared.options.fake,
        delay_scale=prepared.settings.model.retry_delay_scale,
        budget=budget,
        redact=prepared.redact,
        facts=prepared.model_facts,
        on_commands=SUPERVISORS.start_in_advance,
        files=cast("RepairFiles", LazyService(partial(_make_repair_files, prepared))),
    )


def _make_repair_files(prepared: RunConfig) -> "RepairFiles":
    from interlock.services.checks.repair_files import RepairFiles  # deferred: small models ask for it
    from interlock.services.checks.test_table import CheckTable

    return RepairFiles(prepared.workspace.root, CheckTable(prepared.options.check))
