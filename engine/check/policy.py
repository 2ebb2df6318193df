"""policy: what policy would say of a call here and now: with the settings, trust and rules of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from interlock.engine.driver.prepare import prepare
from interlock.engine.options import Options
from interlock.services.agents.definitions import ONLY_AGENTS, agent_tools, own_tools
from interlock.services.files.outputs import OutputFiles
from interlock.services.policy.checkers import Said, lowered
from interlock.services.policy.decision import Explanation
from interlock.services.policy.fields import MODE_NAMES
from interlock.services.policy.policy import RulePolicy
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.services.toolset import describe, nearest_names
from interlock.state.calls import ApprovalMode, CallView, Choice, Risk, Verdict
from interlock.state.errors import InputError
from interlock.state.messages import Frozen
from interlock.state.names import WAIT
from interlock.state.tooling import PathRefused, Tool
from interlock.tools.table import TOOLS

_SERVER_TOOL = "mcp_"
_CHECKER = "No session rule lifts what a safety checker says."


class Question(BaseModel):
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
    def _as_gemini_spells_it(cls, value: object) -> object:
        return MODE_NAMES.get(value, value) if isinstance(value, str) else value


class Checked(Frozen):
    """The decision, and what it was made from."""

    agent: str | None = None
    explanation: Explanation
    checkers: tuple[Said, ...] = ()
    """What safety checkers say of it."""


class PolicyCheck:
    """One preparation, any number of questions."""

    def __init__(self, options: Options) -> None:
        """Raises what would stop a run before it begins, but for a missing key of a model."""
        self._prepared = prepare(options, needs_model=False)
        self.warnings: Sequence[str] = self._prepared.warnings
        outputs = OutputFiles(options.home)
        env = tool_environment(self._prepared.env, rules=self._prepared.settings.security.environment)
        self._prepared.policy.run_checkers_with(SupervisedProcesses(outputs=outputs, env=env))
        agents = self._prepared.agents
        every = {**TOOLS, **agent_tools(agents)}
        self._agents = {name: own_tools(d, every, depth=1) for name, d in agents.items()}
        self._tools = {name: tool for name, tool in every.items() if name not in ONLY_AGENTS}

    async def check(self, question: Mapping[str, Any]) -> Checked:
        """Raises `InputError` that names the field: no such tool or agent, wrong arguments."""
        asked = _question(question)
        policy = self._policy(asked)
        call = CallView(id="", name=_full_name(asked), args=_without_wait(asked.args))
        risk, refused = self._of_tool(call, asked.agent)
        mode = asked.mode or self._prepared.approval_mode
        found = policy.explain(call, risk, mode, asked.annotations)
        if refused:
            return Checked(agent=asked.agent, explanation=_refused(found, refused))
        said = await policy.checked(call, risk, mode, found.verdict, asked.annotations)
        verdict = lowered(found.verdict, said)
        if verdict.by_checker:
            choices = policy.choices(call, risk, verdict) if verdict.decision == "ask" else ()
            found = _changed(found, verdict, choices, _CHECKER)
        return Checked(agent=asked.agent, explanation=found, checkers=tuple(said))

    def _policy(self, asked: Question) -> RulePolicy:
        policy = self._prepared.policy.with_servers([asked.server] if asked.server else ())
        if asked.agent is None:
            return policy
        self._known_agent(asked.agent)
        return policy.for_agent(asked.agent)

    def _known_agent(self, name: str) -> None:
        if name not in self._agents:
            near = nearest_names(name, self._agents)
            raise InputError(f"No agent {name!r}. Did you mean one of: {', '.join(near)}?", "agent")

    def _of_tool(self, call: CallView, agent: str | None) -> tuple[Risk, str | None]:
        """The tool's risk, and why the call would be refused before any rule."""
        if call.name.startswith(_SERVER_TOOL):
            return "execute", None
        tools = self._tools if agent is None else self._agents[agent]
        tool = _find(tools, call.name)
        if tool is not None:
            return tool.risk, self._path_refused(tool, call)
        other = _find({**TOOLS, **self._tools}, call.name)
        if other is None:
            near = ", ".join(map(repr, nearest_names(call.name, tools)))
            raise InputError(f"No tool {call.name!r}. Did you mean one of: {near}?", "tool")
        whose = f"sub-agent {agent!r}" if agent else "the main agent"
        return other.risk, f"`{call.name}` is no tool of {whose}."

    def _path_refused(self, tool: Tool, call: CallView) -> str | None:
        try:
            args = tool.args.model_validate(call.args)
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise InputError(describe(call.name, tool.args, error), f"args.{place}") from error
        space = self._prepared.workspace
        try:
            for path, access in tool.paths(args):
                (space.readable if access == "read" else space.writable)(path)
        except PathRefused as refused:
            return f"`{call.name}`: {refused}"
        return None


def _question(given: Mapping[str, Any]) -> Question:
    try:
        return Question.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        known = f"; expected {', '.join(Question.model_fields)}" if first["type"] == "extra_forbidden" else ""
        raise InputError(f"{place}: {first['msg']}{known}.", place) from error


def _full_name(asked: Question) -> str:
    """`--server s` names a tool as the server does, or in full."""
    prefix = f"{_SERVER_TOOL}{asked.server}_"
    return asked.tool if asked.server is None or asked.tool.startswith(prefix) else prefix + asked.tool


def _find(tools: Mapping[str, Tool], name: str) -> Tool | None:
    return tools.get(name) or next((t for t in tools.values() if name in t.aliases), None)


def _refused(found: Explanation, why: str) -> Explanation:
    """Before policy is asked, a run refuses a tool that isn't there and a path that no tool may touch."""
    verdict = Verdict(decision="deny", rule="refused before any rule", reason=why, deny_message=why)
    return _changed(found, verdict, (), "No rule lifts that.")


def _changed(found: Explanation, verdict: Verdict, choices: tuple[Choice, ...], why: str) -> Explanation:
    changes = {"verdict": verdict, "choices": choices, "always": None, "not_always": why}
    return found.model_copy(update=changes)


def _without_wait(args: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in args.items() if name != WAIT}
