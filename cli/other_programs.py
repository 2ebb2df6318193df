"""other_programs: what people type who come from another agent, where Interlock has it by another name.

What works as it is typed there stands with its flag or command, as a synonym. `docs/coming-from.md` is the page."""

from collections.abc import Sequence

_EXTENSIONS = (
    "There are no extensions; put servers, skills and commands into ~/.interlock; see: interlock tools"
)

FLAGS = {
    "--list-sessions": "List runs with: interlock runs",
    "--delete-session": "Delete a run with: interlock runs rm RUN",
    **dict.fromkeys(
        ("--list-extensions", "-l", "--extensions", "-e", "--plugin-dir", "--plugin-url"), _EXTENSIONS
    ),
    **dict.fromkeys(
        ("--mcp-config", "--strict-mcp-config"),
        "Put servers into .mcp.json or settings; see: interlock mcp add --help",
    ),
    "--allowed-mcp-server-names": "Name the others in mcp.excluded of .interlock/settings.json",
    "--input-format": "Give input as JSON with: interlock run WORKFLOW --input @FILE",
    **dict.fromkeys(
        ("--json-schema", "--output-schema"),
        "A workflow has a schema for its output; see: interlock schema WORKFLOW",
    ),
    "--all-files": "Name files in the prompt instead",
    **dict.fromkeys(("--image", "--file"), "Attach a file with: --attach FILE"),
    "--checkpointing": "Every run is checkpointed already; see: interlock history latest",
    "--session-file": "Go on with a run: interlock -r RUN",
    "--session-id": "A run gets its id itself; -o json prints it as session_id. Go on with: interlock -r RUN",
    "--fork-session": "Fork a run first: interlock fork RUN --at STEP",
    **dict.fromkeys(("--name", "-n"), "A run is titled by its prompt; see: interlock runs"),
    **dict.fromkeys(
        ("--agents", "--agent"), "Write sub-agents into .interlock/agents; see: interlock agents"
    ),
    "--tools": "Deny the others with: --disallowed-tools; or choose a mode of work: interlock modes",
    "--settings": "Put them into .interlock/settings.json; see: interlock doctor",
    **dict.fromkeys(
        ("--setting-sources", "--bare", "--safe-mode"),
        "Leave out this folder's own with: interlock trust --untrust",
    ),
    "--disable-slash-commands": "Turn context.read.commands and context.read.skills off in ~/.interlock/settings.json",
    **dict.fromkeys(
        ("--allow-dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox"),
        "Approve everything with: -y",
    ),
    **dict.fromkeys(
        ("--init", "--init-only", "--maintenance"),
        "SessionStart hooks run at each start; see: interlock hooks",
    ),
    **dict.fromkeys(("--bg", "--background"), "Let a worker drive the run with: --detach"),
    **dict.fromkeys(
        ("--cloud", "--remote", "--teleport", "--environment"),
        "Drive runs on other machines with: interlock worker",
    ),
    **dict.fromkeys(
        ("--remote-control", "--rc"), "Follow and decide runs in a browser with: interlock serve"
    ),
    **dict.fromkeys(
        ("--thinking", "--max-thinking-tokens"), "Choose how much the model thinks with: --effort"
    ),
    "--from-pr": "Runs have no pull request; see: interlock runs",
    "--oss": "Choose a local model with: -m; see: interlock models",
    "--skip-git-repo-check": "Leave it out: no git repository is needed",
    "--output-last-message": "-o text prints the last message alone",
    "--fallback-model": "Name models in model.fallback of .interlock/settings.json; see: interlock models",
    **dict.fromkeys(
        ("--acp", "--experimental-acp", "--experimental-zed-integration", "--ide"),
        "An editor starts: interlock acp",
    ),
    **dict.fromkeys(
        ("--ask-for-approval", "-a"),
        "Choose with: --approval-mode default, auto_edit, plan or yolo",
    ),
    "--include-partial-messages": "-o stream-json prints each part of a message already",
    **dict.fromkeys(
        ("--no-session-persistence", "--ephemeral"),
        "Keep the run elsewhere: INTERLOCK_HOME=$(mktemp -d) interlock -p …",
    ),
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
    **dict.fromkeys(
        ("config", "settings"), "Settings are in ~/.interlock/settings.json; see: interlock doctor"
    ),
    **dict.fromkeys(("login", "logout", "setup-token"), "Set or remove a key with: interlock auth"),
    **dict.fromkeys(("ls", "list", "ps", "session", "sessions", "status"), "List runs with: interlock runs"),
    **dict.fromkeys(("cost", "usage"), "Show tokens and cost with: interlock stats"),
    **dict.fromkeys(("extensions", "plugin", "plugins"), _EXTENSIONS),
    "skills": "Skills count where they are; see: interlock doctor",
    "agent": "List sub-agents with: interlock agents",
    "version": "Print it with: interlock --version",
    **dict.fromkeys(
        ("update", "upgrade", "uninstall", "migrate-installer"),
        "Update or remove Interlock with what installed it: pipx, uv or pip",
    ),
    **dict.fromkeys(("exec", "e"), "Run one prompt with: interlock -p 'PROMPT'"),
    "respawn": "Go on with a run: interlock -r RUN",
    **dict.fromkeys(("stop", "kill"), "Stop a run with: interlock cancel RUN"),
    **dict.fromkeys(("rm", "project"), "Delete a run with: interlock runs rm RUN"),
    **dict.fromkeys(
        ("web", "remote-control", "daemon", "app-server"),
        "Follow and decide runs in a browser with: interlock serve",
    ),
    "mcp-server": "Serve workflows over MCP with: interlock mcp serve",
    "ultrareview": "Ask for a review in a prompt",
    "auto-mode": "Choose with: --approval-mode default, auto_edit, plan or yolo",
    "gemma": "Set the address of a local model server with: interlock auth set",
}
"""Commands of other agents, and what to use here instead; hardly anybody sends one of these words as a prompt."""
_SECOND_WORDS = {
    "config": "get set list add remove ls",
    "extensions": "install list update uninstall enable disable link new validate config",
    "plugin": "install list update uninstall enable disable marketplace",
    "plugins": "install list",
    "skills": "list install uninstall enable disable add link",
    "session": "list delete",
    "agent": "list create",
    "daemon": "status stop",
    "project": "purge",
    "auto-mode": "defaults config reset",
    "gemma": "setup start stop status logs",
}
"""What follows such a command there. Other words after it are a prompt's."""
_WITH_A_PROMPT = {"exec", "e"}
_WITH_ONE_WORD = {"respawn", "stop", "kill", "rm", "update", "upgrade", "ultrareview"}

_KEYS = "Set a key with: interlock auth set PROVIDER"
SUBCOMMANDS = {
    "auth login": _KEYS,
    "auth logout": "Remove a key with: interlock auth remove PROVIDER",
    "auth status": "Show keys with: interlock auth",
    "mcp get": "Show a server with: interlock mcp test SERVER",
    "mcp login": "Sign in with: interlock mcp auth SERVER",
    "mcp logout": "Sign out with: interlock mcp auth SERVER --forget",
    "mcp add-json": "Put the JSON under mcpServers into .interlock/settings.json, or see: interlock mcp add --help",
    **dict.fromkeys(
        ("mcp enable", "mcp disable"), "Name servers to leave out in mcp.excluded of .interlock/settings.json"
    ),
    "mcp reset-project-choices": "A folder's servers count once you trust it: interlock trust",
    "mcp add-from-claude-desktop": "Add each with: interlock mcp add",
    **{
        f"import {name}": f"Take over its files with: interlock import --agent {name}"
        for name in ("claude", "codex", "gemini", "roo", "opencode")
    },
    "hooks migrate": "Claude Code's hooks count where they are; see: interlock hooks",
}
"""Words that other agents have after a command of the same name, and what to use here instead."""

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
    **dict.fromkeys(
        ("permissions", "allowed-tools"),
        "Rules are in ~/.interlock/policies; see /approval-mode, and /policy check TOOL JSON",
    ),
    **dict.fromkeys(
        ("add-dir", "directory", "dir"), "Leave with /quit, then: interlock -c --include-directories DIR"
    ),
    **dict.fromkeys(
        ("config", "settings"),
        "Settings are in ~/.interlock/settings.json; see /doctor. Here: /model, /approval-mode, /theme, /vim",
    ),
    **dict.fromkeys(
        ("status", "about", "checkup"),
        "See /stats for tokens and cost, /context for the window, /doctor for the rest",
    ),
    **dict.fromkeys(("login", "logout", "connect"), "Show, set or remove keys with: /auth"),
    **dict.fromkeys(("bug", "feedback"), "Write this run to a file with /export FILE, and send that"),
    "skills": "Skills are listed with the commands: /help. The model uses them by itself",
    **dict.fromkeys(
        ("extensions", "plugin", "plugins", "marketplace"),
        "There are no extensions. Add servers (/mcp), skills and commands in ~/.interlock",
    ),
    **dict.fromkeys(
        (
            *("review", "security-review", "code-review", "ultrareview", "pr-comments", "pr_comments"),
            *("autofix-pr", "simplify", "verify", "batch", "deep-research", "insights", "recap"),
        ),
        "Ask for it in a prompt, or write it as a command: .interlock/commands/NAME.toml",
    ),
    **dict.fromkeys(
        ("background", "bg", "subtask"),
        "Start another run in a second terminal; open one with: interlock attach RUN; list runs with /runs",
    ),
    **dict.fromkeys(
        ("remote-control", "rc", "mobile", "ios", "android", "desktop", "app", "teleport"),
        "Follow and decide runs in a browser with: interlock serve",
    ),
    **dict.fromkeys(
        ("loop", "proactive", "schedule", "routines"),
        "Let workers start runs at set times with: interlock schedule",
    ),
    **dict.fromkeys(
        ("reload-skills", "reload-plugins", "commands"),
        "Commands and skills are read at each prompt; they are listed by /help",
    ),
    **dict.fromkeys(
        ("setup-bedrock", "setup-vertex", "usage-credits", "privacy", "privacy-settings"),
        "Show, set or remove keys with: /auth",
    ),
    **dict.fromkeys(
        ("update", "upgrade", "release-notes"),
        "Update Interlock in a shell, with what installed it: pipx, uv or pip",
    ),
    "branch": "Fork this conversation with: /fork",
    "btw": "Ask in a prompt, and take it back with: /rewind",
    "cd": "Leave with /quit, then: interlock -C DIR",
    "color": "Choose colours with: /theme",
    "fast": "Choose a quick model with: /model flash",
    "goal": "Leave with /quit, then work until a command succeeds: interlock -c --check COMMAND",
    "import": "Take over another agent's files in a shell: interlock import --agent NAME",
    "rename": "A run is titled by its prompt; list runs with: /runs",
    "statusline": "The line can't be changed. See /stats and /context for more",
    "autocompact": "Set model.compressionThreshold in ~/.interlock/settings.json; compress now with: /compress",
    "policies": "Ask what decides about a call with: /policy check TOOL JSON",
    "workflows": "List workflows in a shell: interlock workflows. Run one with: /run WORKFLOW",
    "docs": "Keys and commands: /help. Pages are in the folder docs of Interlock's repository",
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
    **dict.fromkeys(("tasks", "bashes", "shells", "ps"), "List runs with: /runs"),
    **dict.fromkeys(("install-github-app", "setup-github"), "See docs/headless.md for runs in CI"),
    **dict.fromkeys(("subagents", "list-agents"), "List sub-agents with: /agents"),
    **_ROO_MODES,
}
"""Other agents' commands of a session, with a second word where that counts, and what to use here instead."""


def find_other_programs_command(word: str, rest: Sequence[str]) -> str | None:
    """Return what to use here for a command of another agent; None: the words are a prompt."""
    fits = (
        not rest
        or word in _WITH_A_PROMPT
        or (word in _WITH_ONE_WORD and len(rest) == 1)
        or rest[0] in _SECOND_WORDS.get(word, "").split()
    )
    return COMMANDS.get(word) if fits else None
