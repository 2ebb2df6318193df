"""agents: what nodes ask of sub-agents, and of the run's plan files."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from interlock.state.calls import CallView
from interlock.state.plan import ApprovedPlan
from interlock.state.subagent import AgentDefinition, AgentInstance

if TYPE_CHECKING:
    from interlock.state.deps import Deps


class Agents(Protocol):
    """The kinds of sub-agents, and what nodes of one of them reach."""

    def definition(self, name: str) -> AgentDefinition | None: ...

    def names(self) -> list[str]: ...

    def open(self, instance: AgentInstance) -> str:
        """Record a sub-agent that starts; its id, the same when called twice."""
        ...

    def instance(self, agent: str) -> AgentInstance:
        """The sub-agent with this id, as it was when it started."""
        ...

    def scope(self, agent: str) -> "Deps":
        """`Deps` of the sub-agent with this id: its own models, tools, policy and agent path."""
        ...


class Plans(Protocol):
    """The run's plan files: `plans/RUN/` in the state directory."""

    @property
    def folder(self) -> Path: ...

    def placed(self, call: CallView) -> CallView | None:
        """A call that writes a Markdown file by a relative path, with that file in the plans folder; else None."""
        ...

    def find(self, name: str) -> Path | None:
        """The real path of a plan file by its name or path; None: it is no `*.md` of the folder."""
        ...

    def write(self, path: Path, text: str, token: str) -> None:
        """Replace a plan's text, at once; `token` names the leftover of a write that was killed."""
        ...

    def hand_over(self, prompt: str, mode: str, plan: ApprovedPlan) -> str:
        """Begin the linked `main` run that carries the plan out; its id, the same when called twice."""
        ...
