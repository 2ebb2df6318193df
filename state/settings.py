"""settings: the typed part of settings files. Gemini's nested keys; `doctor` reports unknown keys, which are kept."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from interlock.state.calls import ApprovalMode
from interlock.state.names import ALIASES
from interlock.state.text import parse_duration


class Section(BaseModel, extra="allow", populate_by_name=True, defer_build=True):
    """A part of the settings. Unknown keys are kept."""

    @classmethod
    def default(cls) -> Self:
        return cls.model_validate({})


class Price(Section):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    """Price of a million input tokens, in US dollars."""
    output: float = Field(ge=0)
    """Price of a million output tokens, in US dollars."""
    cached: float | None = Field(None, ge=0)
    """Price of a million input tokens read from the provider's cache; null: as `input`."""
    written: float | None = Field(None, alias="cacheWrite", ge=0)
    """Price of a million input tokens written to the provider's cache; null: as `input`."""


class OutputRule(Section):
    """How a tool's long outputs are shortened."""

    how: Literal["summarize", "truncate", "off"] = "summarize"
    """Summarise a long output with a model, cut it to its ends, or leave it whole."""
    token_budget: int = Field(2000, alias="tokenBudget", gt=0)
    """Estimated tokens: longer outputs are summarised, within this budget."""


class ModelEntry(Section):
    """What holds for one model, alias or provider."""

    first_token_timeout_s: float | None = Field(None, alias="firstTokenTimeout", gt=0)
    """Seconds until the first token; null: 900 for servers on this machine or a private network, else 120."""
    protocol: Literal["native", "xml", "json"] | None = None
    """How it calls tools under `auto`; null: as it turns out to."""
    response_format: bool | None = Field(None, alias="responseFormat")
    """Whether its server holds answers to a JSON Schema; null: as the server's kind says."""
    context_window: int | None = Field(None, alias="contextWindow", gt=0)
    """Tokens of its context window; null: as its server says, or as the table of models does."""
    output_limit: int | None = Field(None, alias="outputLimit", gt=0)
    """Tokens of a reply at most; null: as its provider's package says."""
    max_reply_tokens: int | None = Field(None, alias="maxReplyTokens", ge=0)
    """Its own `model.maxReplyTokens`; null: that."""
    takes: list[Literal["tools", "images", "PDFs", "audio", "thinking"]] | None = None
    """What it can take; null: as its provider's package says."""
    price: Price | None = None
    """What it costs; null: as the provider says, or as the table of models does. A budget in US dollars needs it."""
    api: Literal["responses", "chat"] | None = None
    """Which of OpenAI's APIs it is asked by, Responses or chat completions; null: as the model needs."""
    prompt_profile: Literal["full", "small"] | None = Field(None, alias="promptProfile")
    """Which system prompt and tools it gets; null: small ones if its window is under 32k, or its server slow."""


Thinking = Literal["auto", "low", "medium", "high"]


class ModelSettings(Section):
    name: str = Field("auto", description="An alias, a Gemini id, `provider:model` or `script:FILE`.")
    aliases: dict[str, str] = Field(default_factory=lambda: dict(ALIASES))
    """Alias → model id."""
    roles: dict[str, str] = Field(default_factory=dict[str, str])
    """Role → alias, overriding the defaults in `services/models`."""
    prompt_profile: Literal["auto", "full", "small"] = Field("auto", alias="promptProfile")
    """How much prompt and how many tools models get; `auto`: little if the window is under 32k, or the server slow."""
    max_session_turns: int = Field(-1, alias="maxSessionTurns", ge=-1)
    """Maximum model turns across all prompts of a run; -1: no limit."""
    temperature: float | None = None
    """Sampling temperature; null: 1, or 0.2 for model servers nearby, and 0 for helpers."""
    thinking: Thinking = "auto"
    """How much the model thinks before it answers; `auto`: the model's default."""
    compression_threshold: float = Field(0.5, alias="compressionThreshold", gt=0, le=1)
    """Share of the model's window at which the conversation is compressed (gemini-cli: 0.5)."""
    summarize_tool_output: dict[str, OutputRule] = Field(
        default_factory=dict[str, OutputRule], alias="summarizeToolOutput"
    )
    """Tool → rule, overriding the defaults: shell and MCP output is summarised, reads and searches never are."""
    stream_retry_delay_s: float = Field(1.0, alias="streamRetryDelay", ge=0)
    """Seconds before the first retry of an invalid stream; doubles with each retry."""
    retry_delay_scale: float = Field(1.0, alias="retryDelayScale", ge=0)
    """Multiplies the wait before a retry, including the server's own delay."""
    fallback: list[str] = Field(default_factory=lambda: ["pro", "flash", "flash-lite"])
    """Fallback models for an unavailable one: the next in the list, else an earlier one."""
    numerical_routing: list[str] = Field(default_factory=list[str], alias="numericalRouting")
    """Prefixes of model names (families) that are routed by a score instead of a choice."""
    classifier_threshold: int = Field(90, alias="classifierThreshold", ge=1, le=100)
    """Score from which a request goes to `pro` (gemini-cli: 90)."""
    max_reply_tokens: int = Field(16_000, alias="maxReplyTokens", ge=0)
    """Tokens (4 bytes each) of one reply's text outside of calls; its thoughts may have twice as many. 0: no limit."""
    disable_loop_detection: bool = Field(False, alias="disableLoopDetection")
    """Don't stop a model that repeats itself."""
    skip_next_speaker_check: bool = Field(False, alias="skipNextSpeakerCheck")
    """End a turn without asking a model whether the agent should continue."""


class ShellSettings(Section):
    timeout_s: float = Field(1800, alias="timeout", gt=0)
    """Maximum seconds a command may run."""
    inactivity_timeout_s: float = Field(300, alias="inactivityTimeout", ge=0)
    """Seconds without output before a command is killed; 0: never (gemini-cli: 300)."""
    max_processes: int = Field(1000, alias="maxProcesses", ge=0)
    """Maximum concurrent processes of a command, descendants included; 0: no limit."""
    max_memory_mb: int | None = Field(None, alias="maxMemoryMb", ge=0)
    """Maximum total memory of those processes, in MB; null: three quarters of the machine's; 0: no limit."""


class LanguageServer(Section):
    """A program that checks edits, in trusted folders. It speaks the Language Server Protocol on stdio."""

    command: list[str] = Field(default_factory=list[str])
    """Program and arguments. Interlock looks for a bare name in the project's own folders, then on the PATH."""
    suffixes: list[str] = Field(default_factory=list[str])
    """Suffixes of the files that it checks, such as `.py`."""
    role: str = "language"
    """Of the servers with the same role, the first that is installed checks a file."""
    roots: list[str] = Field(default_factory=list[str])
    """Names of files that mark a project: the server works in the nearest such folder, else in the workspace."""
    needs_root: bool = Field(False, alias="needsRoot")
    """Don't start the server for a file outside such a project."""
    needs: str = ""
    """A file that must exist in that folder or above it; empty: none."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Environment variables for the program."""
    initialization: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Options that the server gets when it starts."""
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Settings that the server gets when it asks for them."""
    disabled: bool = False
    """Don't start the server."""


class ToolSettings(Section):
    allowed: list[str] = Field(default_factory=list[str])
    """Tool names, or `run_shell_command(prefix)`, allowed without approval."""
    exclude: list[str] = Field(default_factory=list[str])
    """Tool names that are denied."""
    protocol: Literal["native", "xml", "json", "auto"] = "auto"
    """How models call tools: natively, by tags in their text, as JSON under a schema; `auto`: natively, but models on
    servers of this machine or its network as they turn out to."""
    confirmation_required: list[str] = Field(default_factory=list[str], alias="confirmationRequired")
    """Tool names, or `run_shell_command(prefix)`, that always need approval, whatever else allows them."""
    core: list[str] = Field(default_factory=list[str])
    """If non-empty: the only tools that may read, write, run commands or reach the network; no approval needed."""
    sandbox: bool | str = False
    """Run shell commands in a sandbox; a string is one of gemini-cli's sandbox names."""
    sandbox_network: bool = Field(False, alias="sandboxNetworkAccess")
    """Allow the network in the sandbox."""
    sandbox_paths: list[str] = Field(default_factory=list[str], alias="sandboxAllowedPaths")
    """Absolute or from `~/`; paths outside the workspace that commands may change or, ending in `:ro`, read."""
    reading_commands: bool = Field(True, alias="readingCommands")
    """Read-only shell commands with plain arguments inside the workspace need no approval: `ls`, `git status`."""
    diagnostics: bool = True
    """Tell the model which problems its edit brought: what no longer parses, and what language servers find."""
    language_servers: dict[str, LanguageServer] = Field(
        default_factory=dict[str, LanguageServer], alias="languageServers"
    )
    """Servers by name: new ones, and fields that differ from those of a known server ([the table](diagnostics.md))."""
    browser: str = ""
    """Browser executable for `browser_action`; empty: the first Chromium or Chrome on the PATH."""
    web_search: str = Field("", alias="webSearch")
    """Command line that answers `web_search`; it gets the query on stdin. Empty: Gemini with Google's search."""
    discovery_command: str = Field("", alias="discoveryCommand")
    """Command that prints declarations of further tools as JSON (gemini-cli)."""
    call_command: str = Field("", alias="callCommand")
    """Command that runs one of them: tool name as last argument, call arguments as JSON on stdin (gemini-cli)."""
    shell: ShellSettings = Field(default_factory=ShellSettings.default)
    max_concurrent_file_reads: int = Field(5, alias="maxConcurrentFileReads", ge=1)
    """Maximum files the task loop's model is told to read at once (Roo Code: 5)."""
    truncate_at: int = Field(40_000, alias="truncateToolOutputThreshold", gt=0)
    """Maximum characters of shell output sent to the model (gemini-cli: 40,000)."""


class FileFiltering(Section):
    respect_git_ignore: bool = Field(True, alias="respectGitIgnore")
    """Skip files that git ignores."""
    respect_gemini_ignore: bool = Field(True, alias="respectGeminiIgnore")
    """Skip files that `.geminiignore`, another agent's ignore file or Claude Code's `Read(…)` denials hide."""
    custom_ignore_files: list[str] = Field(default_factory=list[str], alias="customIgnoreFilePaths")
    """More ignore files, relative to the workspace."""


class ReadSettings(Section):
    """Kinds of files, Interlock's and other agents', that count in a folder."""

    memory: bool = True
    """Memory files, such as AGENTS.md and CLAUDE.md."""
    rules: bool = True
    """Rule files, such as .cursor/rules."""
    skills: bool = True
    """Skills, such as .claude/skills."""
    commands: bool = True
    """Custom commands, such as .claude/commands."""
    agents: bool = True
    """Sub-agents, such as .claude/agents."""
    servers: bool = True
    """MCP servers in other agents' files, such as .mcp.json."""
    hooks: bool = True
    """Hooks in Claude Code's settings of a folder."""
    permissions: bool = True
    """Permissions in Claude Code's settings of a folder, except `Read(…)` denials."""
    environment: bool = True
    """Variables in Claude Code's settings of a folder."""
    ignore: bool = True
    """Other agents' ignore files, such as .cursorignore, and Claude Code's `Read(…)` denials."""


class ContextSettings(Section):
    file_name: str | list[str] | None = Field(None, alias="fileName")
    """Names of memory files, in place of those of all agents (GEMINI.md, AGENTS.md, CLAUDE.md and others)."""
    read: ReadSettings = Field(default_factory=ReadSettings.default)
    include_directories: list[str] = Field(default_factory=list[str], alias="includeDirectories")
    """Folders outside the workspace that tools may use."""
    language: str = ""
    """Language the task loop's model writes to the user in; empty: the user's."""
    instructions: str = ""
    """Added to the task loop's system prompt."""
    use_agent_rules: bool = Field(True, alias="useAgentRules")
    """Include AGENTS.md in the task loop's system prompt."""
    file_filtering: FileFiltering = Field(default_factory=FileFiltering.default, alias="fileFiltering")

    @property
    def chosen_file_names(self) -> list[str] | None:
        """The names that somebody set; None: those of all agents count."""
        return [self.file_name] if isinstance(self.file_name, str) else self.file_name

    @property
    def file_names(self) -> list[str]:
        """Names of the memory files that Interlock writes."""
        chosen = self.chosen_file_names
        return ["GEMINI.md", "AGENTS.md", "CLAUDE.md"] if chosen is None else chosen


class FilesSettings(Section):
    encodings: dict[str, str] = Field(default_factory=dict[str, str])
    """Pattern of files, as in `.gitignore`, → their encoding, such as `"*.txt": "gb18030"`: where a file's bytes don't
    tell. The last pattern that matches counts."""


class SearchSettings(Section):
    embeddings: str = ""
    """Embedding model compared besides words: a Gemini id, `openai:MODEL` (at OPENAI_BASE_URL, any server) or
    `model2vec:FOLDER`; empty: words only."""


class IdeSettings(Section):
    context_file: str = Field("", alias="contextFile")
    """JSON file with the editor's open files; relative to the workspace."""


class AgentSettings(Section):
    max_depth: int = Field(2, alias="maxDepth", ge=0, le=4)
    """Levels of sub-agents below the main agent."""


class CheckSettings(Section):
    """The command that `--check` names."""

    tests: Literal["as-before", "may-change"] = "as-before"
    """Whether the command must also succeed with the tests of the run's start; else a person accepts their changes."""


class SnapshotSettings(Section):
    """Copies of the workspace's files around each change, for fork, rewind and undo."""

    enabled: bool = True
    """Save the workspace's files around each change."""
    max_file_mb: float = Field(20, alias="maxFileMb", ge=0)
    """Larger files are skipped."""
    max_files: int = Field(100_000, alias="maxFiles", ge=0)
    """In a workspace with more files, such as a home directory, nothing is kept."""


class WorktreeSettings(Section):
    """Git worktrees in which runs work: `--worktree`, `interlock worktrees`."""

    enabled: bool = False
    """Start each conversation in a new worktree, if the folder is in a git repository and is no worktree itself."""
    folder: str = ""
    """Where to make them: absolute, from `~/`, or in the repository; empty: `REPOSITORY.worktrees`, beside it."""
    include: list[str] = Field(default_factory=list[str])
    """Untracked files to copy into a new worktree, in `.gitignore` syntax; also those that `.worktreeinclude` lists."""

    def find_folder(self, main: Path, home: Path) -> Path | None:
        """The folder for worktrees of a repository; None: the default."""
        if not self.folder:
            return None
        return home / self.folder[2:] if self.folder.startswith("~/") else main / self.folder


class McpSettings(Section):
    allowed: list[str] = Field(default_factory=list[str])
    """Servers whose tools need no approval."""
    excluded: list[str] = Field(default_factory=list[str])
    """Servers whose tools are denied."""


class OAuthSettings(Section):
    """For a server that requires sign-in; without it the server advertises what it needs."""

    client_id: str = Field("", alias="clientId")
    """Client id if registered by hand; empty: registered dynamically."""
    client_secret: str = Field("", alias="clientSecret")
    """Client secret, if the server requires one."""
    redirect_uri: str = Field("", alias="redirectUri")
    """Local address the browser is redirected to; empty: a free port."""


class McpServer(Section):
    """One server, in gemini-cli's format; Claude Code's and Roo's files are converted to it."""

    type: Literal["stdio", "sse", "http", "streamable-http"] | None = None
    """Only needed to distinguish SSE from HTTP with `url`; `httpUrl` always means streamable HTTP."""
    command: str = ""
    """Program of a server on stdio."""
    args: list[str] = Field(default_factory=list[str])
    """Arguments of the program."""
    env: dict[str, str] = Field(default_factory=dict[str, str])
    """Environment variables for the program."""
    cwd: str = ""
    """Working directory of the program; empty: the workspace."""
    url: str = ""
    """Address of a server that speaks streamable HTTP or SSE."""
    http_url: str = Field("", alias="httpUrl")
    """Address of a server that speaks streamable HTTP."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """HTTP headers sent with each request."""
    timeout_ms: float = Field(600_000, alias="timeout", gt=0)
    """Request timeout in milliseconds (gemini-cli: 10 minutes); if set, runs wait that long for the server to start."""
    trust: bool = False
    """Its tools need no approval, and its claims about their effects are believed."""
    always_allow: list[str] = Field(default_factory=list[str], alias="alwaysAllow")
    """Tools that need no approval, by the server's names (Roo); ignored without `task.autoApprovalEnabled`."""
    include_tools: list[str] | None = Field(None, alias="includeTools")
    """Its only tools that count, by the server's names; null: all."""
    exclude_tools: list[str] = Field(default_factory=list[str], alias="excludeTools")
    """Tools that don't count, by the server's names; beats `includeTools`."""
    disabled: bool = False
    """Don't start the server."""
    oauth: OAuthSettings = Field(default_factory=OAuthSettings.default)


class HooksConfig(Section):
    enabled: bool = True
    """Run hooks."""
    disabled: list[str] = Field(default_factory=list[str])
    """Names or commands of hooks that don't run."""
    notifications: bool = True
    """Whether to mention hooks that have nothing to say."""


class EnvironmentSettings(Section):
    """Environment variables for tools, hooks and MCP servers (gemini-cli's `environmentVariableRedaction`)."""

    enabled: bool = True
    """False: pass all variables except those in `blocked`."""
    allowed: list[str] = Field(default_factory=list[str])
    """Names always passed on, whatever their value."""
    blocked: list[str] = Field(default_factory=list[str])
    """Names also withheld; beats `allowed`."""


class FolderTrust(Section):
    enabled: bool = True
    """False, in the user's own settings: every folder is trusted."""


class SecuritySettings(Section):
    redact_secrets: bool = Field(True, alias="redactSecrets")
    """Replace known secrets with a mark in what is shown, sent to models or stored, except in your graphs' state."""
    environment: EnvironmentSettings = Field(
        default_factory=EnvironmentSettings.default, alias="environmentVariableRedaction"
    )
    folder_trust: FolderTrust = Field(default_factory=FolderTrust.default, alias="folderTrust")


class TaskSettings(Section):
    """Settings of the task loop; names and meanings are Roo Code's."""

    consecutive_mistake_limit: int = Field(3, alias="consecutiveMistakeLimit", ge=0)
    """Consecutive mistakes after which a person is asked or, where nobody is, the task fails; 0: never."""
    ask_after_mistakes: bool | None = Field(None, alias="askAfterMistakes")
    """Whether the task waits for a person then; null: if one is at the terminal."""
    todo_list: bool = Field(True, alias="todoListEnabled")
    """Whether the model has `update_todo_list`."""
    no_open_todos: bool = Field(False, alias="preventCompletionWithOpenTodos")
    """Whether a result is refused while the todo list has steps that aren't done."""
    diff: bool = Field(True, alias="diffEnabled")
    """Whether the model has `apply_diff`."""
    confirm_completion: bool | None = Field(None, alias="confirmCompletion")
    """Whether a person confirms the result; null: if one is at the terminal."""
    auto_approval: bool = Field(True, alias="autoApprovalEnabled")
    """False: the settings below and `alwaysAllow` of servers are ignored. Reading never needs approval."""
    allow_write: bool = Field(False, alias="alwaysAllowWrite")
    """Allow edits without approval."""
    allow_execute: bool = Field(False, alias="alwaysAllowExecute")
    """Allow commands without approval if they begin like one of `allowedCommands`."""
    allowed_commands: list[str] = Field(default_factory=list[str], alias="allowedCommands")
    """Command prefixes that `alwaysAllowExecute` covers."""
    denied_commands: list[str] = Field(default_factory=list[str], alias="deniedCommands")
    """Command prefixes that are denied, with or without `alwaysAllowExecute`."""
    allow_browser: bool = Field(False, alias="alwaysAllowBrowser")
    """Allow `browser_action` without approval."""
    allow_mcp: bool = Field(False, alias="alwaysAllowMcp")
    """Allow reading servers' resources without approval; for tools see the server's `alwaysAllow`."""
    allow_mode_switch: bool = Field(False, alias="alwaysAllowModeSwitch")
    """Allow `switch_mode` without approval."""
    allow_subtasks: bool = Field(False, alias="alwaysAllowSubtasks")
    """Allow `new_task` without approval."""


class NotifySettings(Section):
    """How people are notified of a waiting run. Honoured only in the user's own settings: it runs commands unasked."""

    terminal: list[Literal["bell", "osc9", "osc777"]] = Field(
        default_factory=list[Literal["bell", "osc9", "osc777"]]
    )
    """Written to the terminal, if there is one: the bell or a desktop notification."""
    command: str | list[str] = ""
    """A line for bash, or a program and its arguments. Gets `INTERLOCK_RUN`, `_TITLE`, `_WAITING` and `_RESUME` as
    variables, and all of it as JSON on stdin."""
    webhook: str = ""
    """URL the same JSON is posted to."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Headers of that request; `$NAME` expands to an environment variable."""
    timeout_s: float = Field(5, alias="timeout", gt=0, le=60)
    """Timeout of each, in seconds."""

    @property
    def is_enabled(self) -> bool:
        return bool(self.terminal or self.command or self.webhook)

    @field_validator("webhook")
    @classmethod
    def _validate_address(cls, value: str) -> str:
        if value and not re.match(r"https?://[^/?#]", value):
            raise ValueError("an address that begins with https:// or http://")
        return value


class GeneralSettings(Section):
    default_approval_mode: ApprovalMode = Field("default", alias="defaultApprovalMode")
    """Approval mode of a run that no flag sets."""
    vim_mode: bool = Field(False, alias="vimMode")
    """Use vi keys in a session."""
    detach_when_closed: bool = Field(False, alias="detachWhenClosed")
    """Closing the terminal of a session leaves its run to a worker, as `/detach` does; else the run stops."""
    notify: NotifySettings = Field(default_factory=NotifySettings.default)

    @field_validator("default_approval_mode", mode="before")
    @classmethod
    def _accept_gemini_spelling(cls, value: object) -> object:
        return "auto_edit" if value == "autoEdit" else value


class UiSettings(Section):
    """Appearance of a session."""

    theme: str = ""
    """`dark`, `light`, `colorblind`, `no-color`, or a gemini-cli name; `default` is readable on any background."""
    thinking: str = Field("off", alias="inlineThinkingMode")
    """`full`: show thoughts verbatim; else one line about each."""


class StoreSettings(Section):
    """How long runs are kept. Honoured only in the user's own settings. `interlock store prune` applies them."""

    keep_days: int | None = Field(None, alias="keepDays", ge=1)
    """Delete ended runs unchanged for so many days; null: keep them."""
    max_gb: float | None = Field(None, alias="maxGb", gt=0)
    """Delete the oldest ended runs while the state directory is larger, in GB; null: no limit."""


class StartSettings(Section):
    """How commands and sessions start. Honoured only in the user's own settings."""

    keep_warm: str = Field("", alias="keepWarm")
    """Keep a process ready (`interlock warm`) until it is unused for this long: `90s`, `15m`, `2h`; empty: don't.
    Linux."""

    @field_validator("keep_warm")
    @classmethod
    def _validate_duration(cls, value: str) -> str:
        if value and not parse_duration(value) > 0:
            raise ValueError("a duration such as 90s, 15m or 2h, or nothing")
        return value


class TelemetrySettings(Section):
    """gemini-cli's settings. Honoured only in the user's own settings and environment: they send data elsewhere."""

    enabled: bool = False
    """Send traces, metrics and logs of runs to a collector (OpenTelemetry). Needs a part: `interlock install otel`."""
    target: Literal["local", "gcp"] = "local"
    """`gcp` needs a collector, too (gemini-cli's `useCollector`): nothing is sent to Google directly."""
    otlp_endpoint: str = Field("http://localhost:4317", alias="otlpEndpoint")
    """Address of the collector."""
    otlp_protocol: Literal["grpc", "http"] = Field("grpc", alias="otlpProtocol")
    """How the collector is spoken to; over `http`, paths such as `/v1/traces` are added to the address."""
    log_prompts: bool = Field(False, alias="logPrompts")
    """Include prompts, answers, arguments and results. (gemini-cli's default is true.)"""
    outfile: str = ""
    """Write JSON lines to this file instead."""
    use_collector: bool = Field(False, alias="useCollector")
    """Only for `target: gcp`: a collector at `otlpEndpoint` passes on what it gets."""


class FleetSettings(Section):
    """What a worker does for runs on git repositories. Only a user's own file sets it."""

    trusted_repositories: list[str] = Field(default_factory=list[str], alias="trustedRepositories")
    """Repositories whose own settings count, by address; `*` stands for anything: https://example.com/team/*."""
    local_repositories: list[str] = Field(default_factory=list[str], alias="localRepositories")
    """Folders of this host below which runs may name repositories with file:///PATH."""
    sandbox: Literal["always", "untrusted"] = "always"
    """Which runs on repositories run their commands in the sandbox; `untrusted`: not those of trusted repositories."""

    def is_trusted_repository(self, url: str) -> bool:
        return any(fnmatchcase(url, pattern) for pattern in self.trusted_repositories)

    def should_isolate_repository(self, url: str) -> bool:
        """Whether commands of a run on this repository must run in the sandbox."""
        return self.sandbox == "always" or not self.is_trusted_repository(url)

    def is_refused_local_repository(self, url: str) -> bool:
        """Whether the address names a folder of this host that runs may not name."""
        if not url.startswith("file://"):
            return False
        path = Path(os.path.realpath(urlsplit(url).path))
        return not any(path.is_relative_to(os.path.realpath(d)) for d in self.local_repositories)


class Settings(Section):
    """All settings, merged by precedence (`docs/internals.md#order-of-settings`)."""

    general: GeneralSettings = Field(default_factory=GeneralSettings.default)
    start: StartSettings = Field(default_factory=StartSettings.default)
    ui: UiSettings = Field(default_factory=UiSettings.default)
    model: ModelSettings = Field(default_factory=ModelSettings.default)
    models: dict[str, ModelEntry] = Field(default_factory=dict[str, ModelEntry])
    """Model name, alias or provider → what holds for it."""
    tools: ToolSettings = Field(default_factory=ToolSettings.default)
    task: TaskSettings = Field(default_factory=TaskSettings.default)
    agents: AgentSettings = Field(default_factory=AgentSettings.default)
    security: SecuritySettings = Field(default_factory=SecuritySettings.default)
    store: StoreSettings = Field(default_factory=StoreSettings.default)
    fleet: FleetSettings = Field(default_factory=FleetSettings.default)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.default)
    check: CheckSettings = Field(default_factory=CheckSettings.default)
    snapshots: SnapshotSettings = Field(default_factory=SnapshotSettings.default)
    worktree: WorktreeSettings = Field(default_factory=WorktreeSettings.default)
    ide: IdeSettings = Field(default_factory=IdeSettings.default)
    context: ContextSettings = Field(default_factory=ContextSettings.default)
    files: FilesSettings = Field(default_factory=FilesSettings.default)
    search: SearchSettings = Field(default_factory=SearchSettings.default)
    mcp: McpSettings = Field(default_factory=McpSettings.default)
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict[str, McpServer], alias="mcpServers")
    processors: list[str] = Field(default_factory=list[str])
    """Python files with custom nodes around prompts, turns and tools; absolute, from `~/`, or in the workspace."""
    hooks: Any = Field(default_factory=dict[str, Any])
    """Event → definitions, from the last source only; `services/hooks` merges all sources."""
    hooks_config: HooksConfig = Field(default_factory=HooksConfig.default, alias="hooksConfig")

    def model_entry(self, model: str) -> ModelEntry:
        """What `models` says of a resolved model: by its name, one of its aliases, or its provider."""
        provider, colon, _ = model.partition(":")
        aliases = (alias for alias, target in self.model.aliases.items() if target == model)
        found = (self.models.get(name) for name in (model, *aliases, provider if colon else "gemini"))
        return next(filter(None, found), ModelEntry.default())

    def processor_files(self, root: Path, home: Path) -> list[Path]:
        return [home / name[2:] if name.startswith("~/") else root / name for name in self.processors]
