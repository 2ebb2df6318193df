"""replace: replace an exact string in a file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import Field

from interlock.state.calls import ToolError
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.text import format_count
from interlock.state.tooling import Args, FileChange, FilePath, Tool, ToolContext
from interlock.tools.file_content import TextFile, line_number_at, split_lines, truncate_line
from interlock.tools.matcher.edit import (
    EditProblem,
    PlacedEdit,
    apply_spans,
    edit_strings_problem,
    file_already_exists_problem,
    locate_edit,
    locate_edit_with_corrections,
)
from interlock.tools.matcher.windows import Span, WorkBudget
from interlock.tools.workspace_files import WriteTarget, prepare_write_target

_AROUND = 5
"""Lines of context around a change (gemini-cli: 5)."""
_MOST_SHOWN = 60


class ReplaceArgs(Args):
    file_path: FilePath
    instruction: str = Field(default="", description="The purpose of the change, in one sentence.")
    old_string: str = Field(
        description="The exact text to replace, with its whitespace and indentation, as read_file shows it. Include a"
        " few whole lines around the change, so that it occurs only once in the file. Empty: create a new file."
    )
    new_string: str = Field(
        description="The exact replacement text, with every line written out: never a placeholder such as"
        " '... rest of code ...'."
    )
    expected_replacements: int | None = Field(
        default=1,
        ge=1,
        description="How often old_string occurs in the file; every occurrence is replaced. Default 1. Null: replace"
        " every occurrence, however many.",
    )


def _plan_change(
    stop: StopFlag, args: ReplaceArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    context.workspace.resolve_readable(args.file_path)  # errors quote the file's text
    target = prepare_write_target(args.file_path, context, earlier_contents)
    old, new = args.old_string.replace("\r\n", "\n"), args.new_string.replace("\r\n", "\n")
    if problem := edit_strings_problem(old, new):
        raise ToolError(*problem)
    if target.file is None:
        if old:
            raise ToolError(
                "file_not_found",
                f"No file {quote_name(target.display_path)}. Find it with glob; to create it leave old_string empty.",
            )
        return target.to_new_file(new)
    if not old:
        raise ToolError(*file_already_exists_problem(target.display_path, target.file))
    return _plan_edit(
        target, target.file, old, new, args.expected_replacements, WorkBudget(check=stop.raise_if_stopped)
    )


def _plan_edit(
    target: WriteTarget, file: TextFile, old: str, new: str, expected: int | None, work: WorkBudget
) -> FileChange:
    text = file.text
    if target.stale and target.must_match_exactly:
        found = locate_edit(target.display_path, text, old, new, expected or 1, work=work, only_exact=True)
        if isinstance(found, EditProblem):
            raise target.stale.make_match_error(found.message)
    else:
        found = locate_edit_with_corrections(target.display_path, text, old, new, expected, work=work)
        if isinstance(found, EditProblem):
            raise ToolError(*found)
    raw = apply_spans(file, found.spans)
    after = target.encode(raw)
    if after == target.before:
        raise ToolError("no_change", _no_change_message(target.display_path, text, found))
    changed = replace(file, raw=raw).text
    head = f"Edited {quote_name(target.display_path)}: {format_count(len(found.spans), 'replacement')}"
    head += f" (old_string was found {found.difference})." if found.difference else "."
    made = target.to_matched_change(after, head + _changed_lines_message(changed, found.spans))
    return made.model_copy(update={"how": found.strategy_label})


def _no_change_message(display_path: str, text: str, found: PlacedEdit) -> str:
    if found.difference:
        line = line_number_at(text, found.spans[0].start)
        return f"{quote_name(display_path)} has the change already: what the edit would give stands at line {line}."
    return f"{quote_name(display_path)} would be the same as before; its final newline is always kept."


def _changed_lines_message(text: str, spans: Sequence[Span]) -> str:
    """Return the lines from the first to the last replacement with context, so that the model sees the effect."""
    start = spans[0].start
    end = spans[-1].end + sum(len(span.new) - span.end + span.start for span in spans)
    lines = split_lines(text)
    first = max(1, line_number_at(text, start) - _AROUND)
    last = min(len(lines), line_number_at(text, max(start, end - 1)) + _AROUND)
    if last < first:
        return ""
    shown = [*map(truncate_line, lines[first - 1 : last][:_MOST_SHOWN])]
    cut = "" if len(shown) == last - first + 1 else f"\n… (up to line {last})"
    return f" Lines {first}-{first + len(shown) - 1} are now:\n" + "\n".join(shown) + cut


TOOL = Tool(
    name="replace",
    description="Replaces text in a file. old_string must match the file's text exactly, and must occur exactly"
    " expected_replacements times (default: once). Read the file first. Line endings, encoding, mode and the final"
    " newline of the file are kept.",
    args=ReplaceArgs,
    risk="write",
    summary=lambda args: f"Edit {args.file_path}" + (f": {args.instruction}" if args.instruction else ""),
    plan=partial(run_in_thread, _plan_change),
    paths=lambda args: [(args.file_path, "read"), (args.file_path, "write")],
)
