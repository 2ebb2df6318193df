"""configuration_checks: asks policy, hooks and MCP servers what they would answer a run in this folder."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from interlock.engine.driver.hooks import RunHooks
from interlock.engine.driver.run_config import RunConfig, check_hooks_trusted, prepare_run
from interlock.engine.options import Options
from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.journal import HookLog
from interlock.nodes.mcp import MCP_BY_NAMES
from interlock.services.context.agents import ONLY_AGENTS, build_agent_tools, select_agent_tools
from interlock.services.files.filesystem import OutputFiles
from interlock.services.hooks.hook_replies import HookEnvironment
from interlock.services.hooks.hook_settings import Hook, event_subject_names
from interlock.services.policy.decision import Explanation
from interlock.services.policy.policy import PRIVATE_RULE, RulePolicy
from interlock.services.policy.rule_files import MODE_NAMES
from interlock.services.policy.safety_checkers import CheckerAnswer, apply_checker_answers
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.toolset import describe_argument_errors
from interlock.state.calls import ApprovalMode, CallView, Choice, Risk, Verdict
from interlock.state.errors import InputError
from interlock.state.events import Event
from interlock.state.hooks import HookOutcome
from interlock.state.messages import Frozen
from interlock.state.names import WAIT, mcp_tool_name, mcp_tool_prefix
from interlock.state.run import HookEvent
from interlock.state.text import did_you_mean, first_validation_error
from interlock.state.tooling import ProcessEnd, Tool
from interlock.state.workspace import PathRefused
from interlock.tools.table import TOOLS

_SERVER_TOOL = "mcp_"
_CHECKER = "No session rule lifts what a safety checker says."
_PRIVATE = "Private addresses ask every time; a rule of yours with its `host` allows it."


class PolicyQuestion(BaseModel):
    """A call to decide on; one line of a batch."""

    model_config = ConfigDict(extra="forbid")

    tool: str
    args: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    mode: ApprovalMode | None = None
    agent: str | None = None
    server: str | None = None
    annotations: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])

    @field_validator("mode", mode="before")
    @classmethod
    def _convert_gemini_mode_name(cls, value: object) -> object:
        return MODE_NAMES.get(value, value) if isinstance(value, str) else value


class PolicyAnswer(Frozen):
    """The decision, and its basis."""

    agent: str | None = None
    explanation: Explanation
    checkers: tuple[CheckerAnswer, ...] = ()
    """Answers of the safety checkers."""


class PolicyCheck:
    """Prepared once, for any number of questions."""

    def __init__(self, options: Options) -> None:
        """Raises what would stop a run before it starts, except a missing API key."""
        self._prepared = prepare_run(options, needs_model=False)
        self.warnings: Sequence[str] = self._prepared.warnings
        processes = SupervisedProcesses(outputs=OutputFiles(options.home), env=self._prepared.tool_env)
        self._prepared.policy.set_checker_processes(processes)
        self._servers = _startable_server_names(self._prepared)
        agents = self._prepared.agents
        every = {**TOOLS, **build_agent_tools(agents)}
        self._agents = {name: select_agent_tools(d, every, depth=1) for name, d in agents.items()}
        self._tools = {name: tool for name, tool in every.items() if name not in ONLY_AGENTS}

    async def evaluate_call(self, question: Mapping[str, Any]) -> PolicyAnswer:
        """Decide on one call. Raises `InputError` naming the field: unknown tool or agent, wrong arguments."""
        asked = self._unwrap_mcp_call(_parse_question(question))
        policy = self._policy_for(asked)
        call = CallView(
            id="",
            name=_full_tool_name(asked),
            args={name: value for name, value in asked.args.items() if name != WAIT},
        )
        risk, refused = self._tool_risk_and_refusal_reason(call, asked.agent)
        mode = asked.mode or self._prepared.approval_mode
        found = policy.explain_decision(call, risk, mode, asked.annotations)
        if refused:
            return PolicyAnswer(agent=asked.agent, explanation=_replace_with_denial(found, refused))
        checkers = await policy.ask_checkers(call, risk, mode, found.verdict, asked.annotations)
        verdict = await policy.lower_to_ask_if_private(
            call, risk, mode, apply_checker_answers(found.verdict, checkers)
        )
        if verdict.by_checker:
            choices = policy.offered_choices(call, risk, verdict) if verdict.decision == "ask" else ()
            private = verdict.rule.startswith(PRIVATE_RULE)
            found = _replace_verdict(found, verdict, choices, _PRIVATE if private else _CHECKER)
        return PolicyAnswer(agent=asked.agent, explanation=found, checkers=tuple(checkers))

    def _unwrap_mcp_call(self, question: PolicyQuestion) -> PolicyQuestion:
        """The server's own call that `use_mcp_tool` or `access_mcp_resource` stands for, as a run decides on it."""
        server = question.args.get("server_name")
        if question.tool not in MCP_BY_NAMES or not isinstance(server, str):
            return question
        call = CallView(id="", name=question.tool, args=question.args)
        if self._policy_for(question).check(call, "execute", "yolo").decision == "deny":
            return question
        given = question.args.get("arguments")
        args = given if isinstance(given, dict) else {k: v for k, v in question.args.items() if k == "uri"}
        tool = str(question.args.get("tool_name") or "read_resource")
        return question.model_copy(
            update={"tool": mcp_tool_name(server, tool), "server": server, "args": args}
        )

    def _policy_for(self, question: PolicyQuestion) -> RulePolicy:
        named = [question.server] if question.server else []
        policy = self._prepared.policy.for_servers([*self._servers, *named])
        if question.agent is None:
            return policy
        if question.agent not in self._agents:
            near = did_you_mean(question.agent, self._agents, 3)
            raise InputError(f"No agent {question.agent!r}.{near} List them with: interlock agents", "agent")
        return policy.for_agent(question.agent)

    def _tool_risk_and_refusal_reason(self, call: CallView, agent: str | None) -> tuple[Risk, str | None]:
        """The tool's risk, and why the call would be refused before any rule applies."""
        if call.name.startswith(_SERVER_TOOL):
            return "execute", None
        tools = self._tools if agent is None else self._agents[agent]
        tool = _find_tool(tools, call.name)
        if tool is not None:
            return tool.risk, self._path_refusal_reason(tool, call)
        other = _find_tool({**TOOLS, **self._tools}, call.name)
        if other is None:
            near = did_you_mean(call.name, tools, 3) or " List them with: interlock tools"
            named = ", ".join(map(repr, self._servers))
            hint = f" A tool of an MCP server ({named}) needs --server NAME." if named else ""
            if " " in call.name.strip():
                text = "expected a tool's name; for a shell line: interlock policy check run_shell_command 'LINE'."
                raise InputError(f"No tool {call.name!r}: {text}", "tool")
            raise InputError(f"No tool {call.name!r}.{hint}{near}", "tool")
        whose = f"sub-agent {agent!r}" if agent else "the main agent"
        return other.risk, f"`{call.name}` isn't a tool of {whose}."

    def _path_refusal_reason(self, tool: Tool, call: CallView) -> str | None:
        try:
            args = tool.args.model_validate(call.args)
        except ValidationError as error:
            raise InputError(
                describe_argument_errors(call.name, tool.args, error),
                first_validation_error(error, "args")[0],
            ) from error
        space = self._prepared.workspace
        try:
            for path, access in tool.paths(args):
                (space.resolve_readable if access == "read" else space.resolve_writable)(path)
        except PathRefused as refused:
            return f"`{call.name}`: {refused}"
        return None


def _parse_question(fields: Mapping[str, Any]) -> PolicyQuestion:
    try:
        return PolicyQuestion.model_validate(fields)
    except ValidationError as error:
        place, what = first_validation_error(error)
        extra = error.errors()[0]["type"] == "extra_forbidden"
        known = f"; expected {', '.join(PolicyQuestion.model_fields)}" if extra else ""
        raise InputError(f"{place}: {what}{known}.", place) from error


def _full_tool_name(question: PolicyQuestion) -> str:
    """Complete a server tool's name: `--server s` accepts the server's own name for it or the full one."""
    prefix = mcp_tool_prefix(question.server or "")
    return (
        question.tool
        if question.server is None or question.tool.startswith(prefix)
        else prefix + question.tool
    )


def _find_tool(tools: Mapping[str, Tool], name: str) -> Tool | None:
    return tools.get(name) or next((t for t in tools.values() if name in t.aliases), None)


def _replace_with_denial(explanation: Explanation, why: str) -> Explanation:
    """Deny before policy is consulted, as a run does for an unknown tool or a path that no tool may touch."""
    verdict = Verdict(decision="deny", rule="refused before any rule", reason=why, deny_message=why)
    return _replace_verdict(explanation, verdict, (), "No rule lifts that.")


def _replace_verdict(
    explanation: Explanation, verdict: Verdict, choices: tuple[Choice, ...], why: str
) -> Explanation:
    changes = {"verdict": verdict, "choices": choices, "always": None, "covers": "", "not_always": why}
    return explanation.model_copy(update=changes)


_SESSION = "hooks-test"
SUBJECTS: dict[HookEvent, str] = {
    "BeforeTool": "tool_name",
    "AfterTool": "tool_name",
    "SessionStart": "source",
    "SessionEnd": "reason",
    "PreCompress": "trigger",
    "Notification": "notification_type",
}
"""Event → the input field that matchers test; other events have none."""


class _HookInputRecorder(SupervisedProcesses):
    """Records each hook's input: with sequential hooks it depends on the ones before."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inputs: dict[str, Any] = {}

    async def run(self, argv: Sequence[str], **kwargs: Any) -> ProcessEnd:
        self.inputs[argv[-1]] = json.loads(kwargs["stdin"])
        return await super().run(argv, **kwargs)


class HookTester:
    """Prepared once, for any number of events."""

    def __init__(self, options: Options) -> None:
        self._prepared = prepare_run(options, needs_model=False)
        servers = frozenset(self._prepared.settings.mcp_servers)
        self._around = HookEnvironment(_SESSION, self._prepared.workspace.root, None, servers=servers)
        self.warnings: Sequence[str] = self._prepared.warnings

    def list_hooks(self) -> list[dict[str, Any]]:
        """Every active hook, in execution order."""
        return [_hook_fields(hook) for hook in self._prepared.hooks.hooks]

    def plan_hooks(self, event: HookEvent, payload: Mapping[str, JsonValue]) -> dict[str, Any]:
        """What the event would run, with each hook's input as it is unless an earlier hook changes it.

        Raises `UntrustedError` if only ignored files have hooks for the event.
        """
        hooks = self._prepared.hooks.select_hooks(
            event, *event_subject_names(event, self._event_subject(event, payload), payload)
        )
        if not hooks and not self._prepared.trusted:
            check_hooks_trusted(event, self._around.workspace, self._prepared.options)
        stdin = self._around.build_input(event, payload)
        return {
            "event": event,
            "subject": self._event_subject(event, payload),
            "order": "sequential" if any(hook.sequential for hook in hooks) else "parallel",
            "hooks": [
                {**_hook_fields(hook), "input": self._around.translate_input(hook, stdin)} for hook in hooks
            ],
        }

    async def run_hooks(self, event: HookEvent, payload: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Like `plan_hooks`, but runs the hooks: adds each one's actual input and verdict, and the combined outcome."""
        plan = self.plan_hooks(event, payload)
        with tempfile.TemporaryDirectory(prefix="interlock-hooks-") as folder:
            outcome, inputs = await self._fire_with_temporary_store(event, payload, Path(folder))
        for hook, verdict in zip(plan["hooks"], outcome.verdicts, strict=True):
            hook["input"] = inputs.get(hook["command"], hook["input"])
            hook["verdict"] = verdict.model_dump()
        return {**plan, "outcome": outcome.model_dump(exclude={"verdicts", "unknown"})}

    async def _fire_with_temporary_store(
        self, event: HookEvent, payload: Mapping[str, JsonValue], folder: Path
    ) -> tuple[HookOutcome, dict[str, Any]]:
        """Fire through a throwaway log, so that no run is touched."""
        prepared, store = self._prepared, Store(folder)
        store.create_or_migrate()
        conn = store.connect()
        processes = _HookInputRecorder(
            outputs=OutputFiles(folder), env=prepared.tool_env, redact=prepared.redact
        )
        try:
            log = HookLog(conn, folder, _SESSION, 1)
            hooks = RunHooks(prepared.hooks, log, SqlApprovals(conn, _SESSION), processes, self._around)
            subject = self._event_subject(event, payload)
            outcome = await hooks.fire(event, _SESSION, payload, subject=subject, emit=_drop_event)
        finally:
            conn.close()
        return outcome, processes.inputs

    def _event_subject(self, event: HookEvent, payload: Mapping[str, JsonValue]) -> str:
        found = payload.get(SUBJECTS.get(event, ""))
        return found if isinstance(found, str) else ""


def _hook_fields(hook: Hook) -> dict[str, Any]:
    return {
        "event": hook.event,
        "name": hook.name,
        "command": hook.command,
        "matcher": hook.matcher.text,
        "timeout_s": hook.timeout_s,
        "sequential": hook.sequential,
        "required": hook.required,
        "idempotent": hook.idempotent,
        "env": sorted(hook.env),
        "source": hook.source,
        "place": hook.place,
        "broken": hook.broken,
    }


def _drop_event(event: Event, /) -> None:
    """Drop the event: the answer contains it."""


def _startable_server_names(prepared: RunConfig) -> list[str]:
    """Return the MCP servers that can be started."""
    if not prepared.settings.mcp_servers:
        return []
    from interlock.services.mcp import build_server_specs

    specs = build_server_specs(prepared.settings, prepared.workspace.root)
    return [name for name, spec in specs.items() if not (spec.problem or spec.disabled)]
