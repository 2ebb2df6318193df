"""secret_notice: tells a person that a graph of theirs keeps a secret in the store."""

from collections.abc import Callable
from typing import Any

from interlock.graphs.foreign_requests import to_json_value
from interlock.services.secrets.redaction import Redactor
from interlock.state.text import json_text


class SecretNotice:
    """Warns of the first secret that a graph stores: state is kept as its nodes wrote it, as they need it again."""

    def __init__(self, redact: Redactor, warn: Callable[[str], None]) -> None:
        self._redact, self._warn = redact, warn
        self._warned = False

    def __call__(self, what: str, value: Any) -> None:
        """Look at a value. `what` begins the warning."""
        if self._warned or not self._redact.enabled:
            return
        if spans := self._redact.find_secrets(json_text(to_json_value(value))):
            self._warned = True
            self._warn(
                f"{what} holds a secret ({spans[0].name}). It is masked wherever it is shown or exported, but the "
                "store keeps state unmasked. Keep the name of a variable in the state instead."
            )
