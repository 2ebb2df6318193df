"""agents: the sub-agents of a drive: their instances in the chain, and the deps of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from interlock.engine.driver.hooks import RunHooks
from interlock.services.agents.definitions import names_server_tool, own_tools
from interlock.services.models import ChatModels
from interlock.services.policy.policy import RulePolicy
from interlock.services.transcript import ChainTranscript
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.subagent import AgentDefinition, AgentInstance
from interlock.state.tooling import Tool, Toolset

MakeToolset = Callable[[Mapping[str, Tool], Callable[[str], bool]], Toolset]
"""From tools of ours, and whether an MCP server's tool counts."""


@dataclass
class RunAgents:
    """Implements `Agents`. A scope is made once a drive, from its instance alone: a resumed run has the same."""

    definitions: Mapping[str, AgentDefinition]
    tools: Mapping[str, Tool]
    transcript: ChainTranscript
    models: ChatModels
    policy: RulePolicy
    toolset: MakeToolset
    hooks: RunHooks
    root: Deps | None = None
    """Set once the deps of the root are made; they hold this."""
    _scopes: dict[str, Deps] = field(default_factory=dict[str, Deps])

    def definition(self, name: str) -> AgentDefinition | None:
        return self.definitions.get(name)

    def names(self) -> list[str]:
        return list(self.definitions)

    def open(self, instance: AgentInstance) -> str:
        message = Message(role="system", origin="agent", content=instance.model_dump_json())
        return self.transcript.for_agent(instance.path, instance.call).append("", [message])

    def instance(self, agent: str) -> AgentInstance:
        return AgentInstance.model_validate_json(self.transcript.message(agent).text)

    def scope(self, agent: str) -> Deps:
        if agent not in self._scopes:
            self._scopes[agent] = self._made(self.instance(agent))
        return self._scopes[agent]

    def _made(self, instance: AgentInstance) -> Deps:
        if self.root is None:
            raise TypeError("RunAgents.root isn't set: compose the deps first.")
        definition = instance.definition
        return replace(
            self.root,
            info=replace(self.root.info, agent=instance.path),
            transcript=self.transcript.for_agent(instance.path, instance.call),
            models=self.models.for_agent(instance.path, definition.temperature),
            policy=self.policy.for_agent(definition.name),
            toolset=self.toolset(
                own_tools(definition, self.tools, instance.depth), partial(names_server_tool, definition)
            ),
            hooks=self.hooks.for_agent(instance.path),
        )
