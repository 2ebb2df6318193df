"""scripted: replies of a scripted model that ask for calls."""

from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one dot, in base 64."""


def call(name: str, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def shell(command: str) -> dict[str, Any]:
    return call("run_shell_command", command=command)


def tools(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One reply with these calls."""
    return {"tool_calls": list(calls), **more}


def says(name: str, /, **args: Any) -> dict[str, Any]:
    """One reply with one call."""
    return tools(call(name, **args))
