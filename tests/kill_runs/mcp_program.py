"""mcp_program: kills a run that calls an MCP server: with approval, with an effect, and asking a person for input.

The server itself records what it did; each call may have been made only once.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from folders import put
from kill_runs.harness import Play, show
from kill_runs.scene import READ_A, Scene, call
from mcp_servers.place import SERVER
from scripted import tools

REPLIES: list[dict[str, Any]] = [
    tools(
        call("mcp_odd_note", text="first"),
        READ_A,
        call("mcp_odd_quiz", text="second"),
        call("mcp_odd_picture"),
    ),
    {"text": "All done."},
]


@dataclass(frozen=True)
class ServedScene(Scene):
    def prepare(self) -> None:
        super().prepare()
        env = {"ODD_LOG": str(self.folder / "effects.log"), "ODD_TOOLS": "note,quiz,picture"}
        odd = {"command": sys.executable, "args": ["-I", "-S", str(SERVER)], "env": env}
        own = {"mcpServers": {"odd": odd}, "model": {"skipNextSpeakerCheck": True}}
        put(self.folder / "user" / ".interlock" / "settings.json", own)

    def expected_effects(self) -> tuple[str, ...]:
        return ("first", "second")

    def effects(self) -> list[str]:
        log = self.folder / "effects.log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.split()[1] for line in lines if line.startswith(("note", "quiz"))]


def happened(scene: Scene, request: dict[str, Any]) -> bool:
    """Check the server's record, as a person would; a picture leaves nothing there."""
    return request["call"]["args"].get("text") in scene.effects()


if __name__ == "__main__":
    import mcp.client.client  # once, not in each child
    import mcp.client.subscriptions  # noqa: F401

    show(Play(REPLIES, scene=ServedScene, happened=happened, exact=False))
