"""other_programs: what people type who come from another agent, where Interlock has it by another name.

What works as it is typed there stands with its flag or command, as a synonym. `docs/coming-from.md` is the page."""

from collections.abc import Sequence

FLAGS = {
    "--list-sessions": "List runs with: interlock runs",
    "--delete-session": "Delete a run with: interlock runs rm RUN",
    **dict.fromkeys(
        ("--list-extensions", "--extensions", "-e", "--plugin-dir"),
        "There are no extensions; put servers, skills and commands into ~/.interlock; see: interlock tools",
    ),
    **dict.fromkeys(
        ("--mcp-config", "--strict-mcp-config"),
        "Put servers into .mcp.json or settings; see: interlock mcp add --help",
    ),
    "--allowed-mcp-server-names": "Name the others in mcp.excluded of .interlock/settings.json",
    "--input-format": "Give input as JSON with: interlock run WORKFLOW --input @FILE",
    "--json-schema": "A workflow has a schema for its output; see: interlock schema WORKFLOW",
    "--all-files": "Name files in the prompt instead",
    **dict.fromkeys(("--image", "--file"), "Attach a file with: --attach FILE"),
    "--checkpointing": "Every run is checkpointed already; see: interlock history latest",
    "--session-id": "A run gets its id itself; -o json prints it as session_id. Go on with: interlock -r RUN",
    "--fork-session": "Fork a run first: interlock fork RUN --at STEP",
    **dict.fromkeys(("--name", "-n"), "A run is titled by its prompt; see: interlock runs"),
    **dict.fromkeys(
        ("--agents", "--agent"), "Write sub-agents into .interlock/agents; see: interlock agents"
    ),
    "--tools": "Deny the others with: --disallowed-tools; or choose a mode of work: interlock modes",
    "--settings": "Put them into .interlock/settings.json; see: interlock doctor",
    "--setting-sources": "Leave out this folder's own with: interlock trust --untrust",
    "--fallback-model": "Name models in model.fallback of .interlock/settings.json; see: interlock models",
    **dict.fromkeys(("--acp", "--experimental-acp"), "An editor starts: interlock acp"),
    "--ide": "An editor starts: interlock acp",
    **dict.fromkeys(
        ("--ask-for-approval", "-a"),
        "Choose with: --approval-mode default, auto_edit, plan or yolo",
    ),
    "--include-partial-messages": "-o stream-json prints each part of a message already",
    "--no-session-persistence": "Keep the run elsewhere: INTERLOCK_HOME=$(mktemp -d) interlock -p …",
    "--permission-prompt-tool": "A call that needs approval parks the run: interlock resume RUN --approve ID",
    "--search": "The model searches with web_search already; see: interlock tools",
    "--profile": "Choose a model with -m, a mode of work with --mode",
    "--raw-output": "-o text prints the answer alone",
    "--system-prompt-file": 'Give its text: --system-prompt "$(cat FILE)"',
    "--append-system-prompt-file": 'Give its text: --append-system-prompt "$(cat FILE)"',
    "--debug-file": "Send what -d prints to a file: interlock -d … 2> FILE",
    "--chrome": "The model opens pages with browser_action; see: interlock tools",
}
"""Other agents' flags, and what to use here instead."""

SANDBOXES = ("read-only", "workspace-write", "danger-full-access")
SANDBOX_HINT = (
    "-s takes no value: commands then write in the workspace only; reading alone is --approval-mode plan."
)
"""For Codex's kinds of a sandbox."""

APPROVAL_MODES = {
    "autoEdit": "auto_edit",
    "acceptEdits": "auto_edit",
    "bypassPermissions": "yolo",
    "manual": "default",
}
"""Other agents' modes, and ours of the same meaning."""

COMMANDS = {
    **dict.fromkeys(("config", "settings"), "doctor"),
    **dict.fromkeys(("login", "logout", "setup-token"), "auth"),
    **dict.fromkeys(("ls", "list", "ps", "sessions", "status"), "runs"),
    **dict.fromkeys(("cost", "usage"), "stats"),
    **dict.fromkeys(("extensions", "plugin", "plugins"), "mcp"),
    "skills": "tools",
    "version": "--version",
}
"""Commands of other agents, and ours that serves them; hardly anybody sends one of these words as a prompt."""
_SECOND_WORDS = {
    "config": "get set list add remove ls",
    "extensions": "install list update uninstall enable disable link new",
    "plugin": "install list update uninstall enable disable marketplace",
    "plugins": "install list",
    "skills": "list install uninstall enable disable add",
}
"""What follows such a command there. Other words after it are a prompt's."""

_ROO_MODES = {
    name: f"Choose a mode of work with: /mode {name}"
    for name in ("code", "architect", "ask", "debug", "orchestrator")
}
SLASH_COMMANDS = {
    "chat save": "Every conversation is saved already. Go back to one with: /resume",
    "chat list": "List conversations of this folder with: /resume; all runs with: /runs",
    "chat resume": "Conversations have no tags. Choose one with: /resume",
    "chat load": "Conversations have no tags. Choose one with: /resume",
    "chat delete": "Delete a run with: /runs rm RUN",
    "chat share": "Write this run to a file with: /export FILE",
    "tools desc": "List tools and what they do with: /tools",
    "tools nodesc": "List tools and what they do with: /tools",
    "memory list": "List memory files with: /memory",
    "permissions": "Rules are in ~/.interlock/policies; see /approval-mode, and /policy check TOOL JSON",
    **dict.fromkeys(
        ("add-dir", "directory", "dir"), "Leave with /quit, then: interlock -c --include-directories DIR"
    ),
    **dict.fromkeys(
        ("config", "settings"),
        "Settings are in ~/.interlock/settings.json; see /doctor. Here: /model, /approval-mode, /theme, /vim",
    ),
    **dict.fromkeys(
        ("status", "about"), "See /stats for tokens and cost, /context for the window, /doctor for the rest"
    ),
    **dict.fromkeys(("login", "logout", "connect"), "Show, set or remove keys with: /auth"),
    **dict.fromkeys(("bug", "feedback"), "Write this run to a file with /export FILE, and send that"),
    "skills": "Skills are listed with the commands: /help. The model uses them by itself",
    **dict.fromkeys(
        ("extensions", "plugin", "plugins", "marketplace"),
        "There are no extensions. Add servers (/mcp), skills and commands in ~/.interlock",
    ),
    **dict.fromkeys(
        ("review", "security-review", "pr-comments", "pr_comments"),
        "Ask for it in a prompt, or write it as a command: .interlock/commands/NAME.toml",
    ),
    **dict.fromkeys(("ide", "acp"), "An editor starts: interlock acp"),
    **dict.fromkeys(("output-style", "personality"), "Say how to answer with: /memory add TEXT"),
    **dict.fromkeys(
        ("terminal-setup", "keybindings"), "Alt-Enter or Ctrl-J starts a new line; all keys: /help"
    ),
    **dict.fromkeys(("effort", "thinking"), "Choose it when you start: interlock -c --effort high"),
    "sandbox": "Choose it when you start: interlock -c -s",
    **dict.fromkeys(("trust", "folder-trust"), "Decide in a shell: interlock trust"),
    "mention": "Type @ and the name of a file",
    "checkpoint": "Each step is a checkpoint: /history. Go back with: /rewind",
    "redo": "Go back to another prompt with: /rewind",
    **dict.fromkeys(("tasks", "bashes", "ps"), "List runs with: /runs"),
    **dict.fromkeys(("install-github-app", "setup-github"), "See docs/headless.md for runs in CI"),
    "subagents": "List sub-agents with: /agents",
    **_ROO_MODES,
}
"""Other agents' commands of a session, with a second word where that counts, and what to use here instead."""


def find_other_programs_command(word: str, rest: Sequence[str]) -> str | None:
    """Return our command for a command of another agent; None: the words are a prompt."""
    fits = not rest or rest[0] in _SECOND_WORDS.get(word, "").split()
    return COMMANDS.get(word) if fits else None
