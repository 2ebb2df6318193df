"""models: chat models by role, alias or name, with retries, finish reasons, recording and replay.

Importing this loads no LangChain: a provider's package is loaded on its first request.
"""

from interlock.services.models.chat import ChatModels
from interlock.services.models.names import check_credentials, resolve, role_model, turn_tracing_off
from interlock.services.models.request import ModelLog
from interlock.services.models.script import ScriptError

__all__ = [
    "ChatModels",
    "ModelLog",
    "ScriptError",
    "check_credentials",
    "resolve",
    "role_model",
    "turn_tracing_off",
]
