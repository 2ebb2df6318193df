"""modes: the built-in modes and the groups of tools that each may use."""

from typing import NamedTuple

GROUPS = {
    "edit": frozenset({"write_file", "replace", "save_memory"}),
    "command": frozenset({"run_shell_command"}),
}
"""Tools that not every mode has; those that read, ask or hand on belong to none."""


class Mode(NamedTuple):
    """What a mode allows; what it is for stands in `prompts/modes/`."""

    name: str
    groups: tuple[str, ...]

    def allows(self, tool: str) -> bool:
        needed = (group for group, tools in GROUPS.items() if tool in tools)
        return all(group in self.groups for group in needed)


MODES = {
    "architect": Mode("Architect", ("read", "edit", "mcp")),
    "code": Mode("Code", ("read", "edit", "command", "mcp")),
    "ask": Mode("Ask", ("read", "mcp")),
    "debug": Mode("Debug", ("read", "edit", "command", "mcp")),
    "orchestrator": Mode("Orchestrator", ()),
}
