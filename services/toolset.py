"""toolset: the built-in tools as nodes use them: declare, validate, preview, plan, run."""

import asyncio
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from interlock.prompts import load_prompt
from interlock.services.files.calls import FileWriteCalls
from interlock.state.calls import (
    CallKey,
    CallView,
    Planned,
    Preview,
    ToolError,
    ToolResult,
    error_result,
    tool_error_result,
)
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.errors import ModelError, UserError
from interlock.state.events import Emit, ToolOutput
from interlock.state.messages import Feature, Message, ModelCall, Models, Reply, ToolDeclaration
from interlock.state.names import WAIT
from interlock.state.search import CodeIndex
from interlock.state.seen import ChangedFile, SeenFile, SeenFiles
from interlock.state.settings import Settings
from interlock.state.text import replace_surrogates
from interlock.state.tooling import (
    Outputs,
    ProblemFinder,
    Processes,
    TargetFile,
    Tool,
    ToolContext,
    ToolInfo,
    ToolRun,
)
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.table import TOOLS

_WAIT_SCHEMA = {
    "type": "boolean",
    "description": "True: run only after the calls before it in the same message. Default false.",
}
_KEPT = frozenset(
    {"type", "description", "enum", "items", "properties", "required", "anyOf"}
    | {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"}
)
"""Keywords that every provider supports: Gemini's API rejects `$ref`, `const`, `additionalProperties` and more."""
_SHOWN = 60
"""Maximum characters of a wrong value quoted in an error."""
_MOST_ERRORS = 3


@cache  # pydantic rebuilds it each time: 13 ms per request for all tools
def parameter_schema(args_model: type[BaseModel], *, may_wait: bool = False) -> dict[str, Any]:
    """Return the schema with definitions inlined, without titles and defaults. Cached: don't modify it."""
    whole = args_model.model_json_schema()
    schema = _inline_and_simplify_schema(whole, whole.get("$defs", {}))
    schema.setdefault("properties", {})
    schema.pop("description", None)  # the class's docstring; the tool has its own
    if may_wait:
        schema["properties"][WAIT] = dict(_WAIT_SCHEMA)
    return schema


def _inline_and_simplify_schema(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
    if "anyOf" in schema and "default" in schema and schema["default"] is None:
        # Null means the same as omitting it, so it is dropped.
        others = [option for option in schema["anyOf"] if option.get("type") != "null"]
        if len(others) == 1:
            schema = {**others[0], **{k: v for k, v in schema.items() if k not in ("anyOf", "default")}}
            return _inline_and_simplify_schema(schema, definitions)
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    return {
        key: _inline_and_simplify_value(key, value, definitions)
        for key, value in schema.items()
        if key in _KEPT
    }


def _inline_and_simplify_value(key: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if key == "properties":
        return {name: _inline_and_simplify_schema(part, definitions) for name, part in value.items()}
    if key == "anyOf":
        return [_inline_and_simplify_schema(part, definitions) for part in value]
    return _inline_and_simplify_schema(value, definitions) if key == "items" else value


def describe_argument_errors(tool: str, args_model: type[BaseModel], error: ValidationError) -> str:
    """Describe the first errors on one line: field, expectation, value."""
    found = error.errors(include_url=False, include_context=False)
    texts = [
        _describe_argument_error(args_model, cast(Mapping[str, Any], one)) for one in found[:_MOST_ERRORS]
    ]
    more = f"; and {len(found) - _MOST_ERRORS} more" if len(found) > _MOST_ERRORS else ""
    return f"{tool}: {'; '.join(texts)}{more}."


def _describe_argument_error(args_model: type[BaseModel], error: Mapping[str, Any]) -> str:
    where = _format_argument_path(error["loc"])
    if error["type"] == "missing":
        return f"{where!r} is missing"
    if error["type"] == "extra_forbidden":
        known = (
            ""
            if len(error["loc"]) > 1
            else f", expected one of {', '.join(parameter_schema(args_model)['properties'])}"
        )
        return f"{where!r} is not a parameter{known}"
    message = error["msg"].removeprefix("Value error, ")
    if not where:
        return message
    return f"{where!r}: {message[:1].lower()}{message[1:]}, got {_shorten_value(error['input'])}"


def _format_argument_path(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _shorten_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


_NEAREST = 3
_SUMMARY = 160
"""Maximum characters of a one-line summary."""
_ALONE = frozenset({"write", "execute", "question"})
"""Risks whose calls run one at a time, in order."""
_EFFECTS = frozenset({"write", "execute", "network"})
"""Risks of calls that must not be repeated unless the tool allows it."""


def summarize_call(tool: Tool | None, call: CallView) -> str:
    """Return one line for people; only the name if the tool is unknown or its arguments are invalid."""
    if tool is None:
        return call.name
    try:
        text = " ".join(tool.summary(_parse_args(tool, call)).split())
    except ValidationError:
        return call.name
    return text if len(text) <= _SUMMARY else text[: _SUMMARY - 1] + "…"


@dataclass
class BuiltinToolset:
    """Implements `Toolset`."""

    workspace: Workspace
    processes: Processes
    outputs: Outputs
    settings: Settings
    tools: Mapping[str, Tool] = field(default_factory=lambda: TOOLS)
    index: Callable[[], CodeIndex] | None = None
    models: Models | None = None
    emit: Emit = lambda _: None
    """Receives events about model requests."""
    brief: bool = False
    """Declare the tools in few words."""
    problem_finder: ProblemFinder | None = None
    """Language servers that check edits; None: none may be started."""

    def __post_init__(self) -> None:
        aliases = {alias: tool for tool in self.tools.values() for alias in tool.aliases}
        self._names = {**aliases, **self.tools}
        self._files = FileWriteCalls(
            self.workspace, self.outputs.state_directory / "writes", self.problem_finder
        )
        self._files.restore_killed_writes()

    def declare_tools(self) -> list[ToolDeclaration]:
        return [*self._cached_declarations]

    @cached_property
    def _cached_declarations(self) -> list[ToolDeclaration]:
        declared = [
            ToolDeclaration(
                name=name,
                description=tool.description,
                parameters=parameter_schema(tool.args, may_wait=tool.risk not in _ALONE),
            )
            for name, tool in self.tools.items()
            if tool.installed()
        ]
        return [*map(to_brief_declaration, declared)] if self.brief else declared

    def find_tool_info(self, name: str) -> ToolInfo | None:
        tool = self._names.get(name)
        if tool is None:
            return None
        effect = "other" if tool.risk in _EFFECTS and not (tool.idempotent or tool.plan) else "none"
        alone = tool.risk in _ALONE or tool.kind == "review" or effect == "other"
        return ToolInfo(tool.name, tool.risk, alone, "file" if tool.plan else effect, tool.kind)

    def nearest_tool_names(self, name: str) -> list[str]:
        return nearest_names(name, self._names)

    def find_call_problem(self, call: CallView) -> str | None:
        tool = self._names.get(call.name)
        if tool is None:
            return f"Tool {call.name!r} not found."
        if not isinstance(call.args.get(WAIT, False), bool):
            return f"{call.name}: {WAIT!r}: expected true or false, got {json.dumps(call.args[WAIT])}."
        try:
            args = _parse_args(tool, call)
        except ValidationError as error:
            return replace_surrogates(describe_argument_errors(call.name, tool.args, error))
        try:
            for path, access in tool.paths(args):
                (self.workspace.resolve_readable if access == "read" else self.workspace.resolve_writable)(
                    path
                )
        except PathRefused as refused:
            return f"{call.name}: {refused}"
        return None

    def written_paths(self, call: CallView) -> list[str] | None:
        tool = self._names.get(call.name)
        if tool is None:
            return None
        named = [path for path, access in tool.paths(_parse_args(tool, call)) if access == "write"]
        try:
            return [
                self.workspace.display_path(self.workspace.resolve_writable(path)) for path in named
            ] or None
        except PathRefused:
            return None

    def summarize_call(self, call: CallView) -> str:
        return summarize_call(self._names.get(call.name), call)

    async def preview_call(
        self, call: CallView, earlier: Sequence[CallView], seen: SeenFiles | None = None
    ) -> Preview:
        tool = self._names[call.name]
        try:
            args, context = _parse_args(tool, call), replace(self._build_tool_context(call), seen=seen)
            if tool.plan is not None and tool.preview is None:
                changes = self._parse_earlier_file_changes(earlier)
                return await self._files.preview_change(tool, args, changes, context)
            if tool.preview is not None:
                return await tool.preview(args, context)
        except Exception as error:
            problem = to_failed_result(call.name, error).content
            if isinstance(error, ToolError):
                shown = tool_error_result(error).seen
                return Preview(text=problem, problem=problem, code=error.kind, seen=shown)
            return Preview(text=self.summarize_call(call), problem=problem)
        return Preview(text=self.summarize_call(call))

    async def find_encoding_to_confirm(
        self, call: CallView, earlier: Sequence[CallView], seen: SeenFiles | None = None
    ) -> ConfirmedEncoding | None:
        tool = self._names.get(call.name)
        if tool is None or tool.plan is None or repr(call.args).isascii():
            return None
        args = _parse_args(tool, call)
        if not await asyncio.to_thread(self._files.has_guessed_encoding, tool, args):
            return None
        return (await self.preview_call(call, earlier, seen)).confirms

    async def read_file_to_edit(self, call: CallView, earlier: Sequence[CallView]) -> TargetFile | ToolResult:
        try:
            path = str(call.args["file_path"])
            return await self._files.read_target_file(
                path, self._parse_earlier_file_changes(earlier), self._build_tool_context(call)
            )
        except Exception as error:
            return to_failed_result(call.name, error)

    async def plan_change(self, call: CallView, run: ToolRun | None = None) -> Planned | ToolResult:
        try:
            tool = self._names[call.name]
            return await self._files.plan_change(
                tool, _parse_args(tool, call), call, self._build_tool_context(call, run)
            )
        except Exception as error:
            return to_failed_result(call.name, error)

    async def run_call(self, run: ToolRun) -> ToolResult:
        result = await self._run_call(run)
        late = self._files.take_late_problems() if result.status != "cancelled" else ""
        return result.model_copy(update={"content": f"{result.content}\n\n{late}"}) if late else result

    async def _run_call(self, run: ToolRun) -> ToolResult:
        call = run.call
        tool = self._names.get(call.name)
        if tool is None:
            return error_result("tool_not_registered", f"Tool {call.name!r} not found.")
        context = self._build_tool_context(call, run)
        try:
            args = _parse_args(tool, call)
            if tool.run is not None:
                return await tool.run(args, context)
            return await self._files.write_planned_change(tool, args, run, context)
        except Exception as error:
            return to_failed_result(call.name, error)

    def confirm_encoding(self, confirmed: ConfirmedEncoding) -> None:
        self.workspace.confirm_encoding(confirmed)

    def current_file_digest(self, planned_path: str) -> str | None:
        return self._files.current_file_digest(planned_path)

    async def find_changed_files(
        self, known: Sequence[SeenFile], seen_files: SeenFiles
    ) -> Sequence[ChangedFile]:
        return await asyncio.to_thread(self._files.find_changed_files, known, seen_files)

    def _parse_earlier_file_changes(self, calls: Sequence[CallView]) -> list[tuple[Tool, BaseModel]]:
        """Return those of a batch's earlier calls that will change files, skipping invalid ones."""
        found: list[tuple[Tool, BaseModel]] = []
        for call in calls:
            tool = self._names.get(call.name)
            if tool is not None and tool.plan and not tool.preview and self.find_call_problem(call) is None:
                found.append((tool, _parse_args(tool, call)))
        return found

    def _build_tool_context(self, call: CallView, run: ToolRun | None = None) -> ToolContext:
        """Build the context; without `run` the call is only previewed or planned, and its output is discarded."""

        def emit_output(text: str) -> None:
            if run is not None:
                run.emit(ToolOutput(tool_id=call.id, text=text))

        return ToolContext(
            key=run.key if run else CallKey(message="", index=0),
            workspace=self.workspace,
            processes=self.processes,
            outputs=self.outputs,
            settings=self.settings,
            emit_output=emit_output,
            time_left_s=run.time_left_s if run else None,
            shown=run.shown if run else "",
            reach=run.reach if run else "approved",
            seen=run.seen if run else None,
            ask=partial(self._ask_model, run.key) if run else None,
            index=self.index,
            instructions=lambda name: load_prompt(f"instructions/{name}").render(),
        )

    async def _ask_model(
        self, call_key: CallKey, role: str, messages: Sequence[Message], feature: Feature
    ) -> Message:
        """Ask a model. Recorded under the call's key: a call repeated after a crash gets the same answer."""
        if self.models is None:
            raise ToolError("no_model", "No model is available.")
        call = ModelCall(
            task=f"tool {call_key}", role=role, head="", messages=messages, feature=feature, attempts=3
        )
        try:
            async with aclosing(self.models.stream(call, self.emit)) as items:
                replies = [item async for item in items if isinstance(item, Reply)]
        except (ModelError, UserError) as error:
            raise ToolError("model", str(error)) from error
        if problem := replies[-1].problem:
            raise ToolError("model", problem)
        return replies[-1].message


_WORTH = frozenset({"start_line", "end_line", "dir_path", "include_pattern", "file_pattern"})
"""Arguments that a small model is told of though it needn't give them."""
_SENTENCE = re.compile(r"(.+?[.:])(?=\s|$)", re.DOTALL)


def to_brief_declaration(tool: ToolDeclaration) -> ToolDeclaration:
    """The declaration with first sentences only, of the arguments that matter."""
    required = tool.parameters.get("required", ())
    properties = {
        name: {**schema, "description": _first_sentence(schema.get("description", ""))}
        for name, schema in tool.parameters["properties"].items()
        if name in required or name in _WORTH
    }
    brief = {**tool.parameters, "properties": properties}
    return tool.model_copy(update={"description": _first_sentence(tool.description), "parameters": brief})


def _first_sentence(text: str) -> str:
    match = _SENTENCE.match(text)
    return match[1] if match else text


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three names, nearest first."""
    return difflib.get_close_matches(name, list(known), n=_NEAREST, cutoff=0.0)


def _parse_args(tool: Tool, call: CallView) -> BaseModel:
    return tool.args.model_validate({name: value for name, value in call.args.items() if name != WAIT})


def to_failed_result(tool: str, error: Exception) -> ToolResult:
    """Convert an unexpected exception to a result. LangGraph's own signals pass through."""
    from langgraph.errors import GraphBubbleUp

    if isinstance(error, GraphBubbleUp):
        raise error
    if isinstance(error, ToolError):
        return tool_error_result(error)
    if isinstance(error, ValidationError):
        return error_result("invalid_tool_params", " ".join(replace_surrogates(str(error)).split()))
    text = replace_surrogates(f"{type(error).__name__}: {error}")
    return error_result("unhandled_exception", f"{tool} failed: {' '.join(text.split())}")
