"""_source: the output that is shortened: a call's result in the journal, or a text that was handed in."""

from dataclasses import dataclass

from typing_extensions import TypedDict

from interlock.nodes.summarize._rules import rule_alone, rule_of
from interlock.nodes.tools._results import recorded
from interlock.state.calls import CallKey
from interlock.state.deps import Deps
from interlock.state.settings import OutputRule


class SourceIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    tool: str
    source: str
    head: str
    max_output_tokens: int


@dataclass(frozen=True)
class Source:
    """One output, and what is to become of it."""

    tool: str
    text: str
    rule: OutputRule
    context: str
    """Head of the conversation; empty: none."""
    kept_in: str
    """File in which the tool itself kept all of it; empty: it was short enough for the tool."""


def source_of(state: SourceIn, deps: Deps) -> Source:
    if not state.get("message"):
        text = deps.transcript.message(state["source"]).text
        rule = rule_alone(deps.settings, state["tool"], state["max_output_tokens"])
        return Source(state["tool"], text, rule, state.get("head", ""), "")
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call, result = deps.journal.call(key), recorded(deps.journal, key)
    kept = result.meta.get("full_output")
    rule = rule_of(deps.settings, call.name)
    return Source(call.name, result.content, rule, state["message"], kept if isinstance(kept, str) else "")
