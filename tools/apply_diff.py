"""apply_diff: edit a file with search/replace blocks and line hints; blocks without a unique place are skipped."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import Field

from interlock.state.calls import ToolError
from interlock.state.deps import StopFlag, run_in_thread
from interlock.state.file_names import quote_name
from interlock.state.text import format_count
from interlock.state.tooling import Args, FileChange, FilePath, Tool, ToolContext
from interlock.tools.file_content import TextFile, line_number_at
from interlock.tools.matcher.blocks import (
    Block,
    DiffError,
    PlacedBlock,
    is_ambiguous_block,
    locate_block,
    locate_exact_block,
    parse_blocks,
)
from interlock.tools.matcher.edit import (
    EditProblem,
    apply_spans,
    edit_strings_problem,
    match_final_newline,
)
from interlock.tools.matcher.windows import WorkBudget
from interlock.tools.workspace_files import prepare_write_target, to_tool_error


class ApplyDiffArgs(Args):
    path: FilePath
    diff: str = Field(
        min_length=1,
        description="One or more blocks, each of whole lines:\n<<<<<<< SEARCH\n:start_line:N\n-------\nthe lines as"
        " they stand in the file\n=======\nthe lines to put there; none, or an empty one: the lines are taken out\n"
        ">>>>>>> REPLACE\nN is the line of the first one before any block is applied. A line of the file that looks"
        " like a marker gets a backslash before it.",
    )


def _plan_change(
    stop: StopFlag, args: ApplyDiffArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    context.workspace.resolve_readable(args.path)  # errors quote the file's text
    target = prepare_write_target(args.path, context, earlier_contents)
    if target.file is None:
        raise to_tool_error(context.workspace, target.path, FileNotFoundError())
    try:
        blocks = parse_blocks(args.diff)
    except DiffError as error:
        raise ToolError("invalid_diff", f"The diff can't be read: {error}.") from error
    exact, work = target.must_match_exactly, WorkBudget(check=stop.raise_if_stopped)
    made = apply_blocks(target.display_path, target.file, blocks, work, only_exact=exact)
    if not made.places and target.stale and exact:
        raise target.stale.make_match_error(made.result_message(target.display_path))
    if not made.places:
        raise ToolError(made.first_error_code, made.result_message(target.display_path))
    after = target.encode(made.final_text)
    if after == target.before:
        raise ToolError(
            "no_change",
            f"{quote_name(target.display_path)} would be the same as before; read it again.",
        )
    return target.to_matched_change(after, made.result_message(target.display_path))


@dataclass
class AppliedBlocks:
    """The file after the blocks so far, and the outcome of each."""

    file: TextFile
    original: TextFile
    work: WorkBudget
    places: dict[int, str] = field(default_factory=dict[int, str])
    """Number of a block, from 1 in the order given → its place."""
    failed: dict[int, EditProblem] = field(default_factory=dict[int, EditProblem])
    moved: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """For each change: its line before any block was applied, and the number of lines added there."""

    @property
    def final_text(self) -> str:
        """The file's new text; its final newline is kept or stays absent."""
        return match_final_newline(self.original, self.file.raw)

    @property
    def first_error_code(self) -> str:
        """Error code of the first block, if none was applied."""
        return self.failed[min(self.failed)].code

    def to_current_line(self, line: int) -> int:
        """Return where a line of the original is now, as far as other blocks moved it; 0 stays 0."""
        return line + sum(count for other, count in self.moved if other < line) if line else 0

    def result_message(self, display_path: str) -> str:
        count = format_count(len(self.places) + len(self.failed), "block")
        head = f"Edited {quote_name(display_path)}: {len(self.places)} of {count}"
        places = "; ".join(f"block {n} {where}" for n, where in sorted(self.places.items()))
        lines = [
            f"{head} applied ({places})."
            if self.places
            else f"Nothing of {quote_name(display_path)} was changed."
        ]
        lines += [f"Block {n} was not applied: {self.failed[n].message}" for n in sorted(self.failed)]
        if self.failed and self.places:
            lines.append("Read the file again before you send the others anew.")
        return "\n".join(lines)


def apply_blocks(
    display_path: str, file: TextFile, blocks: list[Block], work: WorkBudget, *, only_exact: bool = False
) -> AppliedBlocks:
    """Apply each block independently, from the top of the file; those without a place don't affect the others.

    `only_exact`: each where its text stands exactly, and only there, whatever line it names.
    """
    whole = file if file.text.endswith("\n") or not file.raw else replace(file, raw=file.raw + file.newline)
    made = AppliedBlocks(whole, file, work)
    for number, block in sorted(enumerate(blocks, 1), key=lambda one: one[1].line):
        made.work.check()
        named = replace(block, line=0) if only_exact else block
        if problem := _apply_block(made, display_path, number, named, only_exact=only_exact):
            made.failed[number] = problem
    return made


def _block_problem(block: Block) -> EditProblem | None:
    """Return what is wrong with a block itself, or None."""
    old, new = block.texts
    if not old.strip():
        return EditProblem(
            "no_occurrence", "its search text is empty; to add lines, search for one beside them."
        )
    if block.search == block.replace:
        return EditProblem("no_change", "search and replacement are the same.")
    return edit_strings_problem(old, new if block.replace else "\n")


def _apply_block(
    applied: AppliedBlocks, display_path: str, number: int, block: Block, *, only_exact: bool
) -> EditProblem | None:
    """Apply a block to the file so far; return why it can't be, or None."""
    if wrong := _block_problem(block):
        return wrong
    text = applied.file.text.removesuffix("\n")
    if only_exact:
        found = locate_exact_block(display_path, text, block, applied.work)
    else:
        found = locate_block(display_path, text, block, applied.to_current_line, applied.work)
    if isinstance(found, EditProblem):
        return found
    if found.block is not block and (wrong := _block_problem(found.block)):
        return wrong
    if (
        not found.block.line
        and applied.places
        and is_ambiguous_block(applied.original.text, found.block, applied.work)
    ):
        why = (
            f"the search text stood at several places of {quote_name(display_path)} before the other blocks "
            "were applied"
        )
        return EditProblem("occurrence_mismatch", f"{why}; give its line as :start_line:.")
    _replace_block_text(applied, number, found, text)
    return None


def _replace_block_text(applied: AppliedBlocks, number: int, placed_block: PlacedBlock, text: str) -> None:
    """Replace the block's text in the file so far, and note where."""
    span = placed_block.at.spans[0]
    line = line_number_at(text, span.start)
    if not placed_block.block.replace and not span.new.strip():
        span = replace(span, end=span.end + 1)  # with the line break that ends them
    lines = span.new.count("\n") - text.count("\n", span.start, span.end)
    applied.file = replace(applied.file, raw=apply_spans(applied.file, (span,)))
    original = line - sum(count for other, count in applied.moved if other < line)
    applied.moved.append((original, lines))
    applied.places[number] = f"at line {line}" + (
        f", found {placed_block.at.difference}" if placed_block.at.difference else ""
    )


TOOL = Tool(
    name="apply_diff",
    description="Changes parts of a file by search/replace blocks, several in one call. The search text must be the"
    " file's own lines; its line number tells which of several equal places is meant. A block that can't be placed for"
    " certain is named in the answer and not applied, the others are. Line endings, encoding and mode are kept.",
    args=ApplyDiffArgs,
    risk="write",
    summary=lambda args: f"Edit {args.path}",
    plan=partial(run_in_thread, _plan_change),
    paths=lambda args: [(args.path, "read"), (args.path, "write")],
)
