"""choices: what a conversation's next prompt runs with: model, mode of work, approval mode."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from interlock.state.errors import UserError
from interlock.state.text import did_you_mean

if TYPE_CHECKING:
    from interlock.engine.client.conversation import Conversation
    from interlock.state.settings import Thinking

APPROVAL_MODES = {
    "default": "asks before anything is changed or run",
    "auto_edit": "edits files without asking; asks before commands",
    "plan": "reads, and writes a plan that you approve",
}
LOOPS = {"on": "a model that repeats itself is stopped", "off": "nothing stops a model that repeats itself"}
THINKING: "Mapping[Thinking, str]" = {
    "auto": "the model's default",
    "low": "answers sooner",
    "medium": "thinks a while before it answers",
    "high": "thinks longer before it answers",
}
_YOLO = {"yolo": "asks nothing"}


def list_models(conversation: "Conversation") -> dict[str, str]:
    """Alias → which model it is; first what chooses among them."""
    from interlock.services.models.names import configured_context_window

    settings = conversation.client.settings(conversation.workspace)
    aliases = settings.model.aliases.items()
    found = {
        alias: f"{name}, {configured_context_window(settings, name):,} tokens" for alias, name in aliases
    }
    own = (
        {conversation.model: "now"}
        if conversation.model and conversation.model not in {"auto", *found}
        else {}
    )
    return {**own, "auto": "chosen for each prompt", **found}


def choose_model(conversation: "Conversation", name: str) -> None:
    """Let a model answer from the next prompt on. Raises `InterlockError` if it can't be used."""
    from interlock.engine.driver.run_config import prepare_run

    prepare_run(replace(conversation.options, model=name, workspace=conversation.workspace), needs_model=True)
    conversation.options, conversation.model, conversation.answering = (
        replace(conversation.options, model=name),
        name,
        "",
    )
    conversation.send_notice("chosen", f"From the next prompt on {name} answers.")


def list_modes(conversation: "Conversation") -> dict[str, str]:
    """Mode of work → when to use it."""
    found, _ = conversation.options.configuration(conversation.workspace).modes
    return {mode.slug: mode.when_to_use or mode.name for mode in found.list_modes()}


def choose_mode(conversation: "Conversation", name: str) -> None:
    """Work in a mode from the next prompt on. Raises `UserError`."""
    _require_known_name(name, list_modes(conversation), "mode")
    conversation.options, conversation.mode = replace(conversation.options, mode=name), name
    conversation.send_notice("chosen", f"From the next prompt on: mode {name}.")


def list_approval_modes(conversation: "Conversation") -> dict[str, str]:
    """Approval mode → what it asks about. `yolo` is only for conversations that are started with it."""
    return {**APPROVAL_MODES, **(_YOLO if conversation.may_yolo else {})}


def choose_approval_mode(conversation: "Conversation", name: str) -> None:
    """Ask by this mode from the next prompt on. Raises `UserError`."""
    known = list_approval_modes(conversation)
    if name in _YOLO and name not in known:
        raise UserError("yolo is only for sessions that are started with it: interlock --yolo")
    _require_known_name(name, known, "approval mode")
    set_approval_mode(conversation, name)
    conversation.send_notice("chosen", f"Approval mode {name}: {known[name]}.")


def set_approval_mode(conversation: "Conversation", name: str) -> None:
    conversation.approval_mode = name
    conversation.options = replace(conversation.options, approval_mode=name)


def switch_to_next_approval_mode(conversation: "Conversation") -> None:
    there = [*list_approval_modes(conversation)]
    now = there.index(conversation.approval_mode) if conversation.approval_mode in there else -1
    set_approval_mode(conversation, there[(now + 1) % len(there)])


def thinking_level_and_choices(conversation: "Conversation") -> "tuple[Thinking, Mapping[Thinking, str]]":
    """The thought level now, and what may be chosen; nothing for a model without one."""
    from interlock.services.models.names import resolve_model, supports_thinking_level

    settings = conversation.client.settings(conversation.workspace)
    chosen = conversation.options.overrides.get("model", {}).get("thinking", settings.model.thinking)
    able = supports_thinking_level(resolve_model(settings, conversation.model or settings.model.name))
    return chosen, THINKING if able else {}


def choose_thinking_level(conversation: "Conversation", level: str) -> None:
    """Let the model think this much from the next prompt on. Raises `UserError`."""
    known = thinking_level_and_choices(conversation)[1]
    if not known:
        raise UserError(
            f"Model {conversation.model!r} has no thought level. Choose another with -m or /model."
        )
    _require_known_name(level, {**known}, "thought level")
    _override_model_settings(conversation, thinking=level)
    conversation.send_notice("chosen", f"From the next prompt on, thought level {level}.")


def set_loop_detection(conversation: "Conversation", on_or_off: str) -> None:
    """Turn loop detection on or off; a run that a loop has ended goes on without it. Raises `UserError`."""
    _require_known_name(on_or_off, LOOPS, "choice")
    _override_model_settings(conversation, disableLoopDetection=on_or_off == "off")
    conversation.send_notice("chosen", f"Loop detection is {on_or_off}: {LOOPS[on_or_off]}.")
    if on_or_off == "off" and conversation.ended_by_loop:
        conversation.run_exclusively(conversation.resume_run)


def start_plan_mode(conversation: "Conversation", prompt: str) -> None:
    """Plan first, from the next prompt on, or from this one."""
    set_approval_mode(conversation, "plan")
    conversation.send_notice("chosen", "Plan mode: the agent reads, and writes a plan that you approve.")
    if prompt:
        conversation.submit_prompt(prompt)


def _override_model_settings(conversation: "Conversation", **settings: object) -> None:
    model = {**conversation.options.overrides.get("model", {}), **settings}
    conversation.options = replace(
        conversation.options, overrides={**conversation.options.overrides, "model": model}
    )


def _require_known_name(name: str, known: Mapping[str, str], kind: str) -> None:
    if name not in known:
        raise UserError(f"No {kind} {name!r}.{did_you_mean(name, known)} There are {', '.join(known)}.")
