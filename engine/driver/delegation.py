"""delegation: hands work on: to sub-agents within a run, to the run that carries out its plan, and to subtasks."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.engine.driver.hooks import RunHooks
from interlock.engine.driver.run_config import RunConfig
from interlock.engine.driver.run_definition import options_to_store
from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.model_calls import count_replies_by_agent_and_role
from interlock.engine.store.runs import (
    ALPHABET,
    NewRun,
    insert_child_run_if_missing,
    is_row_sealed,
    read_ended_subtask_status,
    read_options,
)
from interlock.prompts import render_prompt
from interlock.services.context.agents import can_call_server_tool, select_agent_tools
from interlock.services.files.filesystem import write_atomically
from interlock.services.models.chat import ChatModels
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey, CallView
from interlock.state.conversation import refusals_from_state
from interlock.state.deps import Deps, RunInfo
from interlock.state.messages import Message
from interlock.state.plan import ApprovedPlan
from interlock.state.subagent import AgentDefinition, AgentInstance
from interlock.state.task import Subtask, TaskEnd, TaskState
from interlock.state.tooling import Tool, Toolset

if TYPE_CHECKING:
    from interlock.services.policy.policy import RulePolicy

MakeToolset = Callable[[Mapping[str, Tool], Callable[[str], bool]], Toolset]
"""Takes our tools, and a predicate for MCP servers' tools."""


@dataclass
class RunAgents:
    """Implements `Agents`. A scope is built once per drive from its instance alone, so a resumed run has the same."""

    definitions: Mapping[str, AgentDefinition]
    tools: Mapping[str, Tool]
    transcript: ChainTranscript
    models: ChatModels
    policy: "RulePolicy"
    toolset: MakeToolset
    hooks: RunHooks
    explain_unusable_model: Callable[[str], str]
    """Takes a model's name; returns why it can't be asked, or an empty text."""
    root: Deps | None = None
    """Set once the root deps, which hold this object, are built."""
    _scopes: dict[str, Deps] = field(default_factory=dict[str, Deps])

    def find_agent_definition(self, name: str) -> AgentDefinition | None:
        return self.definitions.get(name)

    def find_model_problem(self, definition: AgentDefinition) -> str:
        return "" if definition.model == "inherit" else self.explain_unusable_model(definition.model)

    def record_instance(self, instance: AgentInstance) -> str:
        message = Message(role="system", origin="agent", content=instance.model_dump_json())
        return self.transcript.for_agent(instance.path, instance.call).append("", [message])

    def load_instance(self, agent: str) -> AgentInstance:
        return AgentInstance.model_validate_json(self.transcript.read_message(agent).text)

    def deps_for_agent(self, agent: str) -> Deps:
        if agent not in self._scopes:
            self._scopes[agent] = self._build_agent_deps(self.load_instance(agent))
        return self._scopes[agent]

    def _build_agent_deps(self, instance: AgentInstance) -> Deps:
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
                select_agent_tools(definition, self.tools, instance.depth),
                partial(can_call_server_tool, definition),
            ),
            journal=self.root.journal.for_agent(instance.path),
            hooks=self.hooks.for_agent(instance.path),
        )


def derive_run_id(key: str) -> str:
    """Derive a run id from the key, so that a start repeated after a kill doesn't create a second run."""
    digest = hashlib.sha256(key.encode()).digest()
    return "".join(ALPHABET[byte % 32] for byte in digest[:8])


def insert_linked_run(
    store: Store, prepared: RunConfig, parent: str, run: str, make_run: Callable[[ChainTranscript], NewRun]
) -> str:
    """Insert a child run; idempotent. `make_run` writes the initial messages to its chain.

    It starts with the parent's current rules: some may have been saved since `prepared` was made.
    """
    with closing(store.connect()) as conn:
        new = make_run(ChainTranscript(SqlChain(conn), store.outputs, run, redact=prepared.redact))
        with conn.transaction():
            sealed = is_row_sealed(conn, parent)  # from here on, nobody else changes the parent's row
            new = replace(new, options={**new.options, "rights": read_options(conn, parent)["rights"]})
            insert_child_run_if_missing(conn, parent, new, sealed=sealed)
    return run


@dataclass(frozen=True)
class RunTasks:
    """Implements `Tasks`."""

    store: Store
    info: RunInfo
    prepared: RunConfig

    def create_subtask_run(self, subtask: Subtask, parent: TaskState) -> str:
        key = f"task {subtask.call} after {parent['reply']} of {self.info.run}"
        run, path = derive_run_id(key), "/".join(filter(None, [parent["path"], f"task:{subtask.call}"]))

        def made(chain: ChainTranscript) -> NewRun:
            message = Message(role="user", origin="agent", content=subtask.message)
            kept = {**options_to_store(self.prepared.options), "approval_mode": parent["approval_mode"]}
            options = {**kept, "task_path": path, "subtask_of": self.info.run}
            title = self.prepared.redact(subtask.message)[:200]
            first = {
                **self._inherited_state(parent),
                "prompt": chain.append("", [message]),
                "head": "",
                "mode": subtask.mode,
                "first_todos": subtask.todos,
                "depth": parent["depth"] + 1,
                "path": path,
                "session_turns": 0,
                "last_prompt_tokens": 0,
            }
            return NewRun(run, "task", str(self.info.workspace), title, options, first)

        return insert_linked_run(self.store, self.prepared, self.info.run, run, made)

    def _inherited_state(self, parent: TaskState) -> dict[str, object]:
        limits = self.prepared.limits
        return {
            "approval_mode": parent["approval_mode"],
            "chosen_mode": parent.get("chosen_mode") or self.info.approval_mode,
            "protocol": parent.get("protocol", ""),
            "model": self.prepared.model,
            "max_turns": limits.max_turns,
            "max_session_turns": limits.max_session_turns,
        }

    def find_subtask_end(self, run: str) -> TaskEnd | None:
        with closing(self.store.connect()) as conn:
            ended = read_ended_subtask_status(conn, run)
            if ended in (None, "removed"):
                return ended and TaskEnd("removed", "", {})
            values = read_state_at_step(self.store.home, run)
            if ended != "done" or not values.get("result"):
                return TaskEnd("cancelled", "", refusals_from_state(values))
            text = (
                ChainTranscript(SqlChain(conn), self.store.outputs, run).read_message(values["result"]).text
            )
        return TaskEnd("done", text, refusals_from_state(values))


_WRITES = ("write_file", "replace")


@dataclass(frozen=True)
class RunPlans:
    """Implements `Plans`."""

    store: Store
    info: RunInfo
    prepared: RunConfig

    @property
    def folder(self) -> Path:
        return self.store.plans / self.info.run

    def redirect_to_plans_folder(self, call: CallView) -> CallView | None:
        path = call.args.get("file_path")
        if not isinstance(path, str) or call.name not in (*_WRITES, "read_file"):
            return None
        relative = Path(path.removeprefix("@"))
        if (
            relative.is_absolute()
            or relative.suffix != ".md"
            or ".." in relative.parts
            or path.startswith("~")
        ):
            return None
        place = self.folder / relative
        if call.name not in _WRITES and (
            (self.prepared.workspace.root / relative).exists() or not place.is_file()
        ):
            return None  # it reads a workspace file
        return CallView(id=call.id, name=call.name, args={**call.args, "file_path": str(place)})

    def find_plan(self, name: str) -> Path | None:
        return self.prepared.workspace.find_plan_file(str(self.folder / name.removeprefix("@")))

    def write_plan(self, path: Path, text: str, token: str) -> None:
        own = self.prepared.workspace.find_plan_file(str(path)) or path  # another host's name of it
        with self.prepared.workspace.open_parent_directory(own, create_missing=True) as place:
            write_atomically(place, text.encode(), CallKey.parse(token))

    def create_main_run(self, prompt: str, modes: Mapping[str, str], plan: ApprovedPlan) -> str:
        run = derive_run_id(f"main of {self.info.run}")
        text = render_prompt("plan/carry_out", prompt=prompt, file=plan.file, plan=plan.text)

        def made(chain: ChainTranscript) -> NewRun:
            head = chain.append("", [Message(role="user", origin="person", content=text)])
            return self._make_run_from_plan(run, head, prompt, modes, plan)

        return insert_linked_run(self.store, self.prepared, self.info.run, run, made)

    def _make_run_from_plan(
        self, run: str, record: str, prompt: str, modes: Mapping[str, str], plan: ApprovedPlan
    ) -> NewRun:
        prepared = self.prepared
        state = {
            "prompt": record,
            "head": "",
            **modes,
            "chosen_mode": modes["chosen_mode"] or self.info.approval_mode,
            "model": prepared.model,
            "max_turns": prepared.limits.max_turns,
            "max_session_turns": prepared.limits.max_session_turns,
            "session_turns": 0,
            "last_prompt_tokens": 0,
            "plan_file": plan.file,
            "approved_plan": True,
            "plan_verdict": f"approve_{modes['approval_mode']}",
            "plan_steps": [dict(s) for s in plan.steps],
        }
        with closing(self.store.connect()) as conn:
            before = count_replies_by_agent_and_role(conn, self.info.run)
        kept = {**options_to_store(prepared.options), "approval_mode": modes["approval_mode"]}
        options = {**kept, "calls_before": before}
        title = prepared.redact(f"carries out: {prompt}")[:200]
        return NewRun(run, "main", str(self.info.workspace), title, options, state)
