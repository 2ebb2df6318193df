"""session_options: a session's settings as the protocol's modes and options, and how full the model's window is."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from interlock.acp.session_updates import Update, message_chunk
from interlock.acp.wire import PARAMS, RpcError
from interlock.engine.client import choices
from interlock.state.errors import InterlockError

if TYPE_CHECKING:
    from interlock.engine.client.conversation import Conversation

_OWN = "-"
"""Value of a mode of work that is none."""


class SessionOptions:
    """A session's modes and options. Changes count from the next prompt on."""

    def __init__(
        self, talk: "Conversation", send: Callable[[Update], None], keep: Callable[[], None]
    ) -> None:
        """Reads the settings. Raises `InterlockError`. `keep`: stores `kept`."""
        self._talk, self._send, self._keep = talk, send, keep
        self.kept: Mapping[str, str] = {}
        """What was chosen for the next prompt."""
        self._models, self._modes = choices.list_models(talk), choices.list_modes(talk)
        self._told = self._now()

    def state(self) -> dict[str, Any]:
        """As a new or loaded session is answered with."""
        known = choices.list_approval_modes(self._talk)
        modes = [{"id": name, "name": name, "description": about} for name, about in known.items()]
        now = {"currentModeId": self._talk.approval_mode, "availableModes": modes}
        return {"modes": now, "configOptions": self.options()}

    def options(self) -> list[Update]:
        talk = self._talk
        work = {_OWN: "no mode of work", **self._modes}
        models = {
            **({talk.model: "now"} if talk.model not in self._models and talk.model else {}),
            **self._models,
        }
        level, levels = choices.thinking_levels(talk)
        thinking = (
            [_select_option("thinking", "Thought level", "thought_level", level, levels)] if levels else []
        )
        return [
            _select_option("model", "Model", "model", talk.model or "auto", models),
            *thinking,
            _select_option(
                "approval_mode", "Approvals", "mode", talk.approval_mode, choices.list_approval_modes(talk)
            ),
            _select_option("mode", "Mode of work", None, talk.mode or _OWN, work),
        ]

    def take(self, option: str, value: object) -> None:
        """Raises `RpcError` and `UserError`."""
        take = {
            "model": choices.choose_model,
            "thinking": choices.choose_thinking,
            "approval_mode": choices.choose_approval_mode,
            "mode": choices.choose_mode,
        }
        if option not in take:
            raise RpcError(PARAMS, f"No option {option!r}. There are {', '.join(take)}.")
        if not isinstance(value, str):
            raise RpcError(PARAMS, f"Option {option!r} takes a string, got {value!r}.")
        if option == "mode" and value == _OWN:
            raise RpcError(PARAMS, "You can change the mode of work, but not leave it.")
        take[option](self._talk, value)
        if self.kept.get(option) != value:
            self.kept = {**self.kept, option: value}
            self._keep()
        self.tell()

    def again(self, kept: Mapping[str, str]) -> None:
        """Choose what was chosen before the editor died; what isn't there any more is left out, and told."""
        self.kept = kept
        for option, value in kept.items():
            try:
                self.take(option, value)
            except InterlockError as error:
                self._send(message_chunk("agent_thought", f"{error}\n"))

    def counted(self) -> None:
        """A prompt runs with what was chosen: from now on the run keeps it."""
        if self.kept:
            self.kept = {}
            self._keep()

    def tell(self) -> None:
        """Send what has changed: a plan that was approved, or the model, may have."""
        if (now := self._now()) == self._told:
            return
        if now[0] != self._told[0]:
            self._send({"sessionUpdate": "current_mode_update", "currentModeId": now[0]})
        self._told = now
        self._send({"sessionUpdate": "config_option_update", "configOptions": self.options()})

    def usage(self, used: Mapping[str, int]) -> Update:
        """How much of the model's window the last request filled."""
        from interlock.services.models.names import configured_context_window

        settings = self._talk.client.settings(self._talk.workspace)
        size = configured_context_window(
            settings, settings.model.aliases.get(self._talk.model, self._talk.model)
        )
        return {
            "sessionUpdate": "usage_update",
            "used": used.get("input", 0) + used.get("output", 0),
            "size": size,
        }

    def _now(self) -> tuple[str, ...]:
        talk = self._talk
        return talk.approval_mode, talk.model, talk.mode, choices.thinking_levels(talk)[0]


def _select_option(
    name: str, label: str, category: str | None, now: str, values: Mapping[Any, str]
) -> Update:
    options = [{"value": value, "name": value, "description": about} for value, about in values.items()]
    known = [*options] if now in values else [{"value": now, "name": now}, *options]
    more = {"category": category} if category else {}
    return {"type": "select", "id": name, "name": label, "currentValue": now, "options": known, **more}
