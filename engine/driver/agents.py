"""agents: the sub-agents of a drive: their cards in the chain, and the deps of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from interlock.engine.driver.hooks import RunHooks
from interlock.services.agents import own_tools
from interlock.services.models import ChatModels
from interlock.services.policy.policy import RulePolicy
from interlock.services.transcript import ChainTranscript
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.subagent import AgentCard, AgentDefinition
from interlock.state.tooling import Tool
from interlock.state.toolset import Toolset

MakeToolset = Callable[[Mapping[str, Tool]], Toolset]


@dataclass(frozen=True)
class Shared:
    """What the agents of a drive share, and what each has a version of."""

    transcript: ChainTranscript
    models: ChatModels
    policy: RulePolicy
    toolset: MakeToolset
    hooks: RunHooks


class RunAgents:
    """Implements `Agents`. A scope is made once a drive, from the card alone, so that a resumed run has the same."""

    def __init__(
        self,
        definitions: Mapping[str, AgentDefinition],
        tools: Mapping[str, Tool],
        shared: Shared,
    ) -> None:
        self._definitions = definitions
        self._tools = tools
        self._shared = shared
        self._scopes: dict[str, Deps] = {}
        self.root: Deps | None = None
        """Set once the deps of the root are made; they hold this."""

    def definition(self, name: str) -> AgentDefinition | None:
        return self._definitions.get(name)

    def names(self) -> list[str]:
        return list(self._definitions)

    def open(self, card: AgentCard) -> str:
        message = Message(role="system", origin="agent", content=card.model_dump_json())
        return self._shared.transcript.for_agent(card.path, card.call).append("", [message])

    def card(self, agent: str) -> AgentCard:
        return AgentCard.model_validate_json(self._shared.transcript.message(agent).text)

    def scope(self, agent: str) -> Deps:
        if agent not in self._scopes:
            self._scopes[agent] = self._made(self.card(agent))
        return self._scopes[agent]

    def _made(self, card: AgentCard) -> Deps:
        if self.root is None:
            raise TypeError("RunAgents.root isn't set: compose the deps first.")
        definition = card.definition
        return replace(
            self.root,
            info=replace(self.root.info, agent=card.path),
            transcript=self._shared.transcript.for_agent(card.path, card.call),
            models=self._shared.models.for_agent(card.path, definition.temperature),
            policy=self._shared.policy.for_agent(definition.name),
            toolset=self._shared.toolset(own_tools(definition, self._tools, card.depth)),
            hooks=self._shared.hooks.for_agent(card.path),
        )
