"""references: resolves each `@path` in a prompt to the text, images or listing it refers to."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interlock.services.context.imports import blank_code_spans
from interlock.state.calls import ToolError
from interlock.state.context import Reference
from interlock.state.deps import StopFlag
from interlock.state.errors import InputError
from interlock.state.file_names import quote_name, quote_path
from interlock.state.messages import DataPart, Part, TextPart
from interlock.state.text import replace_surrogates
from interlock.state.workspace import PathRefused, Workspace
from interlock.tools.file_content import (
    MOST_CHARS,
    MOST_COLUMNS,
    binary_file_notice,
    decode_text_file,
    encoding_heading,
    extract_text_page,
    media_placeholder,
    omitted_lines_heading,
    to_media_part_or_notice,
)
from interlock.tools.read_file import ReadManyFilesArgs, read_files
from interlock.tools.search.ripgrep import has_glob_characters
from interlock.tools.workspace_files import path_kind, read_file_bytes, to_tool_error

MOST_REFERENCES = 50
"""Maximum number per prompt; any further ones stay text."""
MOST_MEDIA = 15 * 1024 * 1024
"""Maximum bytes of images and PDFs per prompt."""
MOST_CANDIDATES = 5
"""Files named when a reference fits several."""
_BRACKETED = "|".join(
    rf"""\{a}(?:[^\s"'`\{a}\{b}]|\{a}[^\s"'`\{a}\{b}]*\{b})*\{b}""" for a, b in ("()", "[]", "{}")
)
"""What stands in brackets, `(auth)`, `[id]` and `[[...slug]]`."""
_REFERENCE = re.compile(
    rf"""(?<![^\s(\[{{<"',;:])@(?:"([^"\n]+)"|((?:\\.|[^\s\\,;!"'`(){{}}\[\]<>|]|{_BRACKETED})+))"""
)
_FILE_LIKE = re.compile(r"/|\.[A-Za-z0-9]{1,8}$")


@dataclass
class _AttachmentBudget:
    """Remaining budget for attachments."""

    chars: int = MOST_CHARS
    media: int = MOST_MEDIA
    seen: set[str] = field(default_factory=set[str])


def find_references(prompt: str) -> Iterator[str]:
    """Yield each path written after an `@` at the start of a word, in order, outside code, with quotes and escapes
    removed."""
    for found in _REFERENCE.finditer(blank_code_spans(prompt)):
        if found[1]:
            yield found[1]
        elif path := re.sub(r"\\(.)", r"\1", found[2]).rstrip(".:?"):
            yield path


def resolve_references(stop: StopFlag, prompt: str, workspace: Workspace) -> list[Reference]:
    """Resolve the references; a word that neither names a file nor looks like a path is skipped."""
    budget = _AttachmentBudget()
    found: list[Reference] = []
    for path in dict.fromkeys(_choose_reading(path, workspace) for path in find_references(prompt)):
        stop.raise_if_stopped()
        if len(found) == MOST_REFERENCES:
            found.append(Reference(path, "left out", f"more than {MOST_REFERENCES} references in one prompt"))
            break
        if reference := try_resolve_reference(path, workspace, budget, stop):
            found.append(reference)
    return found


def _choose_reading(path: str, workspace: Workspace) -> str:
    """Return the path, or what stands before its first bracket if that is a file and the whole isn't:
    `@app.py(42)`."""
    shorter = re.split(r"[(\[{]", path, maxsplit=1)[0]
    try:
        names_file = path_kind(workspace, workspace.resolve_readable(shorter)) == "file" if shorter else False
        return shorter if names_file and not os.path.lexists(workspace.resolve_readable(path)) else path
    except PathRefused:
        return path


def build_attachment_parts(paths: Sequence[Path], named_texts: Sequence[tuple[str, str]] = ()) -> list[Part]:
    """Build parts from files named by the user, anywhere on disk, and from named texts. Raises `InputError` naming an
    unusable file."""
    budget = _AttachmentBudget()
    parts: list[Part] = []
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"--attach {quote_path(path)} can't be read: {error.strerror}.", "attach"
            ) from None
        found = _to_media_reference(path.name, data, budget) or _decode_text_reference(
            path.name, data, budget
        )
        if not found.parts:
            raise InputError(f"--attach {quote_path(path)}: {found.reason}", "attach")
        parts += found.parts
    for name, text in named_texts:
        parts += _decode_text_reference(name, text.encode(errors="replace"), budget).parts
    return parts


def _decode_text_reference(name: str, data: bytes, budget: _AttachmentBudget) -> Reference:
    file = decode_text_file(data, name=name)
    if file is None:
        return Reference(name, "refused", binary_file_notice(name, len(data)))
    part = extract_text_page(file.text, max_chars=max(budget.chars, 1))
    budget.chars -= len(part.text)
    return _build_text_reference(
        name, f"--- {name} ---\n\n{encoding_heading(file)}{omitted_lines_heading(part)}{part.text}", "file"
    )


def resolve_reference(stop: StopFlag, path: str, workspace: Workspace) -> Reference:
    """Resolve a single path."""
    found = try_resolve_reference(path, workspace, _AttachmentBudget(), stop)
    return found or Reference(path, "missing", f"No file {quote_name(path)}.")


def try_resolve_reference(
    path: str, workspace: Workspace, budget: "_AttachmentBudget", stop: StopFlag
) -> Reference | None:
    try:
        real = workspace.resolve_readable(path)
    except PathRefused as refused:
        return Reference(path, "refused", str(refused))
    kind = path_kind(workspace, real)
    if kind == "missing" and not has_glob_characters(path):
        if not _FILE_LIKE.search(path):
            return None
        elsewhere = _find_files_by_path_suffix(path, workspace, stop)
        if len(elsewhere) == 1:
            return try_resolve_reference(elsewhere[0], workspace, budget, stop)
        return Reference(path, "missing", _missing_file_message(path, elsewhere, workspace, real))
    shown = workspace.display_path(real) if kind != "missing" else path
    if shown in budget.seen:
        return None
    budget.seen.add(shown)
    if kind == "file":
        try:
            data = read_file_bytes(workspace, real)
        except ToolError as problem:
            return Reference(path, "refused", str(problem))
        if media := _to_media_reference(shown, data, budget):
            return media
    return _read_reference(stop, path, real, workspace, budget)


def _find_files_by_path_suffix(path: str, workspace: Workspace, stop: StopFlag) -> list[str]:
    """Return the files that git doesn't ignore whose path ends with this one: `@login.py` means `auth/login.py`."""
    ending = "/" + "/".join(part for part in Path(path).parts if part not in (".", "/"))
    files = (
        file for root in workspace.roots for file in workspace.list_files(root, stop=stop.raise_if_stopped)
    )
    return sorted(workspace.display_path(Path(file)) for file in files if file.endswith(ending))


def _missing_file_message(path: str, candidates: Sequence[str], workspace: Workspace, real_path: Path) -> str:
    if not candidates:
        return str(to_tool_error(workspace, real_path, FileNotFoundError()))
    more = f" and {len(candidates) - MOST_CANDIDATES} more" if len(candidates) > MOST_CANDIDATES else ""
    names = ", ".join(map(quote_name, candidates[:MOST_CANDIDATES]))
    return f"{quote_name(path)} could be {names}{more}: write more of the path."


def _to_media_reference(display_name: str, data: bytes, budget: _AttachmentBudget) -> Reference | None:
    """Return an image or PDF as a reference, or None for other files."""
    part = to_media_part_or_notice(display_name, data)
    if isinstance(part, str):
        return Reference(display_name, "refused", part)
    if not isinstance(part, DataPart):
        return None
    if len(data) > budget.media:
        return Reference(display_name, "left out", f"the prompt's pictures hold {MOST_MEDIA} bytes already")
    budget.media -= len(data)
    status = "image" if part.type == "image" else "pdf"
    text = TextPart(text=media_placeholder(display_name, part, len(data)) + "\n")
    return Reference(display_name, status, f"{len(data)} bytes", (text, part))


def _read_reference(
    stop: StopFlag, path: str, real_path: Path, workspace: Workspace, budget: _AttachmentBudget
) -> Reference:
    if budget.chars < MOST_COLUMNS:  # not even a line would fit
        return Reference(path, "left out", f"the files before it hold {MOST_CHARS:,} characters already")
    try:
        result = read_files(stop, ReadManyFilesArgs(include=[path]), workspace, budget.chars)
    except ToolError as problem:
        return Reference(path, "refused" if problem.kind == "path_refused" else "missing", str(problem))
    budget.chars -= len(result.content)
    kind = "directory" if path_kind(workspace, real_path) == "directory" else "file"
    reference = _build_text_reference(path, result.content, kind)
    summary = str(result.meta.get("summary", ""))
    return Reference(path, reference.status, summary, reference.parts, result.seen)


def _build_text_reference(path: str, text: str, status: str) -> Reference:
    return Reference(
        path, status, f"{len(text)} characters", (TextPart(text=replace_surrogates(text) + "\n"),)
    )
