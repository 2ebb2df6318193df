"""_shortening: what the model is sent in place of a long output."""

from pathlib import Path

from interlock.nodes.summarize._findings import missing, status_lines, traces, warnings
from interlock.nodes.summarize._rules import SHELL
from interlock.prompts import load
from interlock.state.summarize import HEAD_SHARE

_READ_LIMIT = 20 * 1024 * 1024
"""Bytes up to which read_file reads a file."""


def ends_of(text: str, limit: int) -> tuple[str, str]:
    """The first 20 % and the last 80 % of `limit` characters."""
    head = int(limit * HEAD_SHARE)
    return text[:head], text[len(text) - (limit - head) :]


def truncated(tool: str, text: str, limit: int, path: str) -> str:
    """Head and tail around a line that names the file; traces and warnings of what lies between follow."""
    if len(text) <= limit:
        return f"{text}\n[All of it is in {path}.]"
    head, tail = ends_of(text, limit)
    cut = load("summarize/truncated").text(
        head=head, omitted=f"{len(text) - limit:,}", path=path, how=how_to_read(path), tail=tail
    )
    return completed(tool, cut, text, limit)


def summarized(tool: str, summary: str, text: str, path: str) -> str:
    """The model's summary, completed by what it left out of the stack traces and warnings."""
    whole = load("summarize/summarized").text(
        characters=f"{len(text):,}", path=path, how=how_to_read(path), summary=summary.strip()
    )
    return completed(tool, whole, text, len(text))


def completed(tool: str, short: str, text: str, limit: int) -> str:
    """`short` with the stack traces, warnings and exit code of `text` that it lacks, up to `limit` characters."""
    if tool not in SHELL:
        return short
    found = traces(text)
    room = limit
    for tag, wanted in (("error", found), ("warning", warnings(text, found))):
        block: list[str] = []
        for item in missing(wanted, short):
            room -= len(item)
            block += [item] if room >= 0 else []
        if block:
            short += f"\n<{tag}>\n" + "\n".join(block) + f"\n</{tag}>"
    return "\n".join([short, *missing(status_lines(text), short)])


def how_to_read(path: str) -> str:
    """What works for a file of this size."""
    try:
        large = Path(path).stat().st_size > _READ_LIMIT
    except OSError:  # removed meanwhile: whoever reads it will be told
        large = False
    return "search it with grep_search" if large else "read it with read_file"
