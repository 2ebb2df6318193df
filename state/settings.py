"""settings: the typed part of settings files. Gemini's nested keys; unknown keys are kept and reported by `doctor`."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from interlock.state.calls import ApprovalMode
from interlock.state.names import ALIASES
from interlock.state.text import estimate_tokens


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", populate_by_name=True)


class OutputRule(_Section):
    """How a tool's long outputs are shortened."""

    how: Literal["summarize", "truncate", "off"] = "summarize"
    token_budget: int = Field(2000, alias="tokenBudget", gt=0)
    """Estimated tokens up to which an output stays as it is, and that a summary may have."""


class Price(_Section):
    """US dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)


class ModelSettings(_Section):
    name: str = Field("auto", description="alias, Gemini id, provider:model or script:FILE")
    aliases: dict[str, str] = Field(default_factory=lambda: dict(ALIASES))
    roles: dict[str, str] = Field(default_factory=dict[str, str])
    """Role → alias, over the defaults of `services/models`."""
    token_limits: dict[str, int] = Field(default_factory=dict[str, int], alias="tokenLimits")
    prices: dict[str, Price] = Field(default_factory=dict[str, Price])
    """Model's name, alias or provider → price; needed for a budget in US dollars."""
    max_session_turns: int = Field(-1, alias="maxSessionTurns", ge=-1)
    temperature: float | None = None
    compression_threshold: float = Field(0.5, alias="compressionThreshold", gt=0, le=1)
    """Share of the model's window from which the conversation is compressed (gemini-cli: 0.5)."""
    summarize_tool_output: dict[str, OutputRule] = Field(
        default_factory=dict[str, OutputRule], alias="summarizeToolOutput"
    )
    """Tool → rule, over the defaults: shell and MCP output is summarised, reads and searches never are."""
    stream_retry_delay_s: float = Field(1.0, alias="streamRetryDelay", ge=0)
    """Seconds before the second try at an invalid stream; doubles with each further one."""
    retry_delay_scale: float = Field(1.0, alias="retryDelayScale", ge=0)
    """Multiplies the wait before a request is made again, the server's own delay too."""
    fallback: list[str] = Field(default_factory=lambda: ["pro", "flash", "flash-lite"])
    """Models that stand in for one that is unavailable: the next in the list, else an earlier one."""
    numerical_routing: list[str] = Field(default_factory=list[str], alias="numericalRouting")
    """Beginnings of model names (families) that are routed by a score instead of a choice."""
    classifier_threshold: int = Field(90, alias="classifierThreshold", ge=1, le=100)
    """Score from which a request is routed to `pro` (gemini-cli: 90)."""
    disable_loop_detection: bool = Field(False, alias="disableLoopDetection")
    skip_next_speaker_check: bool = Field(False, alias="skipNextSpeakerCheck")


class ShellSettings(_Section):
    timeout_s: float = Field(1800, alias="timeout", gt=0)
    """Seconds a command may run in all."""
    inactivity_timeout_s: float = Field(300, alias="inactivityTimeout", ge=0)
    """Seconds without output after which a command is ended; 0: never (gemini-cli: 300)."""
    max_processes: int = Field(1000, alias="maxProcesses", ge=0)
    """Processes that a command and all that it starts may be at a time; 0: no limit."""
    max_memory_mb: int | None = Field(None, alias="maxMemoryMb", ge=0)
    """Memory that they may use together, in MB; null: three quarters of the machine's; 0: no limit."""


class ToolSettings(_Section):
    allowed: list[str] = Field(default_factory=list[str])
    """Tool names, or `run_shell_command(prefix)`, that need no asking."""
    exclude: list[str] = Field(default_factory=list[str])
    """Tool names that are denied."""
    protocol: Literal["native", "xml"] = "native"
    """How models call tools: as their provider has it, or by tags in their text, for those that can't."""
    confirmation_required: list[str] = Field(default_factory=list[str], alias="confirmationRequired")
    """Tool names, or `run_shell_command(prefix)`, that are asked about, whatever else allows them."""
    core: list[str] = Field(default_factory=list[str])
    """When it names any: the only tools that read, write, run commands or reach the network; they need no asking."""
    sandbox: bool | str = False
    """Shell commands run in a sandbox; a name is one of those that gemini-cli knows."""
    sandbox_network: bool = Field(False, alias="sandboxNetworkAccess")
    sandbox_paths: list[str] = Field(default_factory=list[str], alias="sandboxAllowedPaths")
    """Absolute or from `~/`; what commands may change beside the workspace, or, ending in `:ro`, may read."""
    reading_commands: bool = Field(True, alias="readingCommands")
    """Shell commands that only read, with plain arguments inside the workspace, need no asking: `ls`, `git status`."""
    browser: str = ""
    """Program of the browser that `browser_action` uses; empty: the first Chromium or Chrome on the PATH."""
    web_search: str = Field("", alias="webSearch")
    """What `web_search` asks: empty: Gemini with Google's search; an address with `{query}`; else a command line, which
    gets the query on stdin."""
    discovery_command: str = Field("", alias="discoveryCommand")
    """Prints declarations of further tools as JSON (gemini-cli)."""
    call_command: str = Field("", alias="callCommand")
    """Runs one of them: gets its name as last argument, and the call's arguments as JSON on stdin (gemini-cli)."""
    shell: ShellSettings = Field(default_factory=lambda: ShellSettings.model_validate({}))
    max_concurrent_file_reads: int = Field(5, alias="maxConcurrentFileReads", ge=1)
    """Files that the task loop's model is told to read at once (Roo Code: 5)."""
    truncate_at: int = Field(40_000, alias="truncateToolOutputThreshold", gt=0)
    """Characters of a shell output that the model is sent (gemini-cli: 40,000)."""


class ContextSettings(_Section):
    file_name: str | list[str] = Field(default_factory=lambda: ["GEMINI.md", "AGENTS.md"], alias="fileName")
    include_directories: list[str] = Field(default_factory=list[str], alias="includeDirectories")
    language: str = ""
    """In which the task loop's model writes to the user; empty: theirs."""
    instructions: str = ""
    """Added to the system prompt of the task loop."""
    use_agent_rules: bool = Field(True, alias="useAgentRules")
    """The task loop's system prompt has AGENTS.md."""
    file_filtering: dict[str, Any] = Field(default_factory=dict[str, Any], alias="fileFiltering")

    @property
    def file_names(self) -> list[str]:
        return [self.file_name] if isinstance(self.file_name, str) else self.file_name


class SearchSettings(_Section):
    embeddings: str = ""
    """Model whose vectors are compared besides words: a Gemini id, `openai:MODEL` (of OPENAI_BASE_URL, whoever serves
    it) or `model2vec:FOLDER`; empty: words alone."""


class IdeSettings(_Section):
    context_file: str = Field("", alias="contextFile")
    """JSON file in which an editor keeps what is open; relative ones lie in the workspace."""


class AgentSettings(_Section):
    max_depth: int = Field(2, alias="maxDepth", ge=0, le=4)
    """Levels of sub-agents below the main agent."""


class SnapshotSettings(_Section):
    """The workspace's files around each change, for fork, rewind and undo."""

    enabled: bool = True
    max_file_mb: float = Field(20, alias="maxFileMb", ge=0)
    """Larger files are left out."""
    max_files: int = Field(100_000, alias="maxFiles", ge=0)
    """Of a workspace with more of them, as a home directory is, nothing is kept."""


class McpSettings(_Section):
    allowed: list[str] = Field(default_factory=list[str])
    """Servers whose tools need no asking."""
    excluded: list[str] = Field(default_factory=list[str])
    """Servers whose tools are denied."""


class OAuthSettings(_Section):
    """Of a server that one signs in to; without it the server says what it needs."""

    client_id: str = Field("", alias="clientId")
    """Of a client that was registered by hand; empty: one is registered by itself."""
    client_secret: str = Field("", alias="clientSecret")
    redirect_uri: str = Field("", alias="redirectUri")
    """Where the browser comes back to on this machine; empty: a free port."""


class McpServer(_Section):
    """One server, as gemini-cli writes it; Claude Code's and Roo's files are read into the same."""

    type: Literal["stdio", "sse", "http", "streamable-http"] | None = None
    """Needed only to tell SSE from HTTP where `url` is given; `httpUrl` always means streamable HTTP."""
    command: str = ""
    args: list[str] = Field(default_factory=list[str])
    env: dict[str, str] = Field(default_factory=dict[str, str])
    cwd: str = ""
    """Default: the workspace."""
    url: str = ""
    http_url: str = Field("", alias="httpUrl")
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    timeout_ms: float = Field(600_000, alias="timeout", gt=0)
    """Milliseconds that a request may take (gemini-cli: 10 minutes)."""
    trust: bool = False
    """Its tools need no asking, and what it says of their effects is believed."""
    include_tools: list[str] | None = Field(None, alias="includeTools")
    """The only tools of it that count, as it names them; null: all."""
    exclude_tools: list[str] = Field(default_factory=list[str], alias="excludeTools")
    """Wins over `includeTools`."""
    disabled: bool = False
    oauth: OAuthSettings = Field(default_factory=lambda: OAuthSettings.model_validate({}))


class HooksConfig(_Section):
    enabled: bool = True
    disabled: list[str] = Field(default_factory=list[str])
    """Names or commands of hooks that don't run."""
    notifications: bool = True
    """Whether people are told of hooks that have nothing to say."""


class EnvironmentSettings(_Section):
    """Which variables tools, hooks and MCP servers get (gemini-cli's `environmentVariableRedaction`)."""

    enabled: bool = True
    """False: all variables but those in `blocked`."""
    allowed: list[str] = Field(default_factory=list[str])
    """Names that are passed on, whatever they hold."""
    blocked: list[str] = Field(default_factory=list[str])
    """Names that are kept back, too; wins over `allowed`."""


class FolderTrust(_Section):
    enabled: bool = True
    """False, in the user's own settings: every folder is trusted."""


class SecuritySettings(_Section):
    redact_secrets: bool = Field(True, alias="redactSecrets")
    """Known secrets are replaced by a mark in what is told, sent to models and stored."""
    environment: EnvironmentSettings = Field(
        default_factory=lambda: EnvironmentSettings.model_validate({}), alias="environmentVariableRedaction"
    )
    folder_trust: FolderTrust = Field(
        default_factory=lambda: FolderTrust.model_validate({}), alias="folderTrust"
    )


class TaskSettings(_Section):
    """Of the task loop; names and meaning are Roo Code's."""

    consecutive_mistake_limit: int = Field(3, alias="consecutiveMistakeLimit", ge=0)
    """Mistakes in a row after which a person is asked; 0: never."""
    confirm_completion: bool | None = Field(None, alias="confirmCompletion")
    """Whether a person is asked about a result; null: where one sits before the terminal."""
    auto_approval: bool = Field(True, alias="autoApprovalEnabled")
    """False: none of those below counts. Reading needs no asking, whatever they say."""
    allow_write: bool = Field(False, alias="alwaysAllowWrite")
    allow_execute: bool = Field(False, alias="alwaysAllowExecute")
    """Only of commands that begin as one of `allowedCommands`."""
    allowed_commands: list[str] = Field(default_factory=list[str], alias="allowedCommands")
    denied_commands: list[str] = Field(default_factory=list[str], alias="deniedCommands")
    """Counts without `alwaysAllowExecute`, too."""
    allow_browser: bool = Field(False, alias="alwaysAllowBrowser")
    allow_mcp: bool = Field(False, alias="alwaysAllowMcp")
    """Only of tools that the server's `alwaysAllow` names, and of its resources."""
    allow_mode_switch: bool = Field(False, alias="alwaysAllowModeSwitch")
    allow_subtasks: bool = Field(False, alias="alwaysAllowSubtasks")


class NotifySettings(_Section):
    """How a person is told that a run waits. Counts only in the user's own settings: it runs commands, unasked."""

    terminal: list[Literal["bell", "osc9", "osc777"]] = Field(
        default_factory=list[Literal["bell", "osc9", "osc777"]]
    )
    """What is written to the terminal, if there is one: its bell, or a notification of the desktop."""
    command: str | list[str] = ""
    """A line for bash, or a program and its arguments. Gets `INTERLOCK_RUN`, `_TITLE`, `_WAITING` and `_RESUME` as
    variables, and all of it as JSON on stdin."""
    webhook: str = ""
    """Address that the same JSON is posted to."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    """Of that request; `$NAME` is a variable of the environment."""
    timeout_s: float = Field(5, alias="timeout", gt=0, le=60)
    """Seconds that each may take."""

    @property
    def wanted(self) -> bool:
        return bool(self.terminal or self.command or self.webhook)

    @field_validator("webhook")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if value and not re.match(r"https?://[^/?#]", value):
            raise ValueError("an address that begins with https:// or http://")
        return value


class GeneralSettings(_Section):
    default_approval_mode: ApprovalMode = Field("default", alias="defaultApprovalMode")
    vim_mode: bool = Field(False, alias="vimMode")
    """A session is typed in with vi's keys."""
    notify: NotifySettings = Field(default_factory=lambda: NotifySettings.model_validate({}))

    @field_validator("default_approval_mode", mode="before")
    @classmethod
    def _as_gemini_spells_it(cls, value: object) -> object:
        return "auto_edit" if value == "autoEdit" else value


class UiSettings(_Section):
    """How a session looks."""

    theme: str = ""
    """`dark`, `light`, `colorblind`, `no-color`, one of gemini-cli's names; `default` is readable on any background."""
    thinking: str = Field("off", alias="inlineThinkingMode")
    """`full`: thoughts as they are; else a line that says what each is about."""


class Settings(_Section):
    """All settings, merged by precedence (`cli.md`, Files)."""

    general: GeneralSettings = Field(default_factory=lambda: GeneralSettings.model_validate({}))
    ui: UiSettings = Field(default_factory=lambda: UiSettings.model_validate({}))
    model: ModelSettings = Field(default_factory=lambda: ModelSettings.model_validate({}))
    tools: ToolSettings = Field(default_factory=lambda: ToolSettings.model_validate({}))
    task: TaskSettings = Field(default_factory=lambda: TaskSettings.model_validate({}))
    agents: AgentSettings = Field(default_factory=lambda: AgentSettings.model_validate({}))
    security: SecuritySettings = Field(default_factory=lambda: SecuritySettings.model_validate({}))
    snapshots: SnapshotSettings = Field(default_factory=lambda: SnapshotSettings.model_validate({}))
    ide: IdeSettings = Field(default_factory=lambda: IdeSettings.model_validate({}))
    context: ContextSettings = Field(default_factory=lambda: ContextSettings.model_validate({}))
    search: SearchSettings = Field(default_factory=lambda: SearchSettings.model_validate({}))
    mcp: McpSettings = Field(default_factory=lambda: McpSettings.model_validate({}))
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict[str, McpServer], alias="mcpServers")
    processors: list[str] = Field(default_factory=list[str])
    """Python files with nodes of the user's own around prompts, model turns and tools; absolute, from `~/`, or relative
    to the workspace."""
    hooks: Any = Field(default_factory=dict[str, Any])
    """Event → definitions, as the last source has them; `services/hooks` reads those of all sources."""
    hooks_config: HooksConfig = Field(
        default_factory=lambda: HooksConfig.model_validate({}), alias="hooksConfig"
    )

    def processor_files(self, root: Path, home: Path) -> list[Path]:
        return [home / name[2:] if name.startswith("~/") else root / name for name in self.processors]


SHELL = frozenset({"run_shell_command", "execute_command"})
_MCP = "mcp_"
PAGED = frozenset(
    {
        *("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"),
        *("search_files", "list_files", "list_code_definition_names", "codebase_search"),
    }
)
"""Reads and searches page by themselves, and a summarised read breaks the next edit: no setting changes that."""
_OWN_CHARS = 1000
"""What a tool says around an output that it has cut at the same limit itself."""
_OFF = OutputRule(how="off", tokenBudget=1)


def rule_of(settings: Settings, tool: str) -> OutputRule:
    """By default shell and MCP output is summarised; settings choose per tool."""
    if tool in PAGED:
        return _OFF
    if chosen := settings.model.summarize_tool_output.get(tool):
        return chosen
    return OutputRule.model_validate({}) if tool in SHELL or tool.startswith(_MCP) else _OFF


def is_long(settings: Settings, rule: OutputRule, text: str) -> bool:
    """Truncation begins at its own limit in characters, a summary at its budget of tokens."""
    if rule.how == "truncate":
        return len(text) > settings.tools.truncate_at + _OWN_CHARS
    return rule.how == "summarize" and estimate_tokens(text) > rule.token_budget
