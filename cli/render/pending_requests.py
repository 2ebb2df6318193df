"""pending_requests: draws open requests as lines: what would happen, why it is asked, and the commands that decide."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from interlock.cli.render.output import (
    DECISION_COLOURS,
    Paint,
    format_count,
    is_diff,
    make_visible,
    shorten,
    to_one_line,
)
from interlock.engine.client import resolve_state_directory
from interlock.engine.client.answer_choices import Request, answer_choices, plan_under_review
from interlock.engine.client.requests import (
    HEADLINE,
    RequestView,
    describe_request,
    find_similar_unknown_outcomes,
    request_number_or_id,
    summarize_arguments,
)

PREVIEW_LINES = 120
UNKNOWN = "Unknown outcome: "
"""Before the title of a call that was cut off."""
ALWAYS = {
    "proceed_always_edits": ("--always-edits", "… all edits"),
    "proceed_always": ("--always", "… in this run"),
    "proceed_always_tool": ("--always-tool", "… whole tool"),
    "proceed_always_server": ("--always-server", "… whole server"),
    "proceed_always_and_save": ("--always-save", "… in later runs"),
}
"""Choice → flag of `resume`, and its label beside the command."""


def pending_request_lines(
    run: str, title: str, requests: Sequence[Request], paint: Paint, limit: int | None = PREVIEW_LINES
) -> Iterator[str]:
    """Everything a person needs to decide on a run, line by line; `limit`: lines per preview."""
    count = len(requests)
    yield paint(f"Run {run} is waiting for {format_count(count, 'decision')}.", "bold", "yellow")
    if title:
        yield paint(f"  “{to_one_line(title, paint.width - 6)}”", "dim")
    grouped = set[str]()
    for number, request in enumerate(requests, 1):
        if request["id"] in grouped:
            continue
        yield ""
        if others := find_similar_unknown_outcomes(request, requests[number:]):
            grouped |= {other["id"] for other in others}
            yield from _unknown_outcome_lines([request, *others], paint, limit, hidden_lines_hint(run))
            continue
        place = f"{number} of {count}: " if count > 1 else ""
        yield from request_lines(request, place, paint, limit, hidden_lines_hint(run))
        rows = decision_commands(run, request)
        width = max(len(label) for label, _ in rows)
        yield from (f"  {label:<{width}}  {paint(command, 'cyan')}" for label, command in rows)
    yield ""
    yield from _decide_all_command_lines(run, requests, paint)
    if address := find_running_web_server_address(resolve_state_directory()):
        path = f"request/{requests[0]['id']}" if count == 1 else f"run/{run}"
        yield f"In a browser: {paint(f'{address}/{path}', 'cyan')}"
    yield paint("Nothing runs until then. Decide at any time, in any terminal, also after a restart.", "dim")


def find_running_web_server_address(home: Path) -> str:
    """The address of this user's `interlock serve`; empty: none runs."""
    import socket

    try:
        pid, address = (home / "server.address").read_text().split()
        host, _, port = address.removeprefix("http://").rpartition(":")
        os.kill(int(pid), 0)
        socket.create_connection((host, int(port)), timeout=0.2).close()
    except (OSError, ValueError):
        return ""
    return address


def hidden_lines_hint(run: str) -> str:
    return f", NOT shown here: interlock approvals {run}"


def request_lines(
    request: Request,
    position_prefix: str,
    paint: Paint,
    limit: int | None,
    hidden_hint: str,
    answered_by_key: bool = False,
) -> Iterator[str]:
    """What would happen, the model's reason, which later calls a decision would allow, and why it needs one.

    `hidden_hint`: how to see the lines beyond `limit`. `answered_by_key`: the keys say what they allow.
    """
    words = describe_request(request)
    kind = UNKNOWN if words.is_unknown else ""
    title = paint(f"{position_prefix}{kind}{shorten(words.headline, HEADLINE)}", "bold")
    yield title + paint(f"   [{request['id']}]", "cyan")
    if words.note:
        yield paint(f"  ! {words.note}", "yellow")
    if words.agent:
        yield f"  For the sub-agent {words.agent}"
    yield from (f"    {line}" for line in _preview_lines(words.preview, paint, limit, hidden_hint))
    yield from (f"    {line}" for line in _part_and_question_lines(words, paint))
    if words.purpose:
        yield f"  The model says: {words.purpose}"
    if words.why:
        yield paint(f"  {words.why}", "dim")
    for way in () if answered_by_key else words.ways:
        if way.covers:
            yield f"  With {ALWAYS[way.choice][0]}: {_lower_first(way.label_with_scope)}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _unknown_outcome_lines(
    requests: Sequence[Request], paint: Paint, limit: int | None, hidden_hint: str
) -> Iterator[str]:
    """Unknown outcomes of one effect, a line each."""
    name = to_one_line(requests[0]["tool_name"], HEADLINE)
    yield paint(f"{len(requests)} unknown outcomes of {name}", "bold")
    yield f"  {describe_request(requests[0]).why}"
    width = max(len(request_number_or_id(request)) for request in requests)
    for request in requests[: limit and limit // _OF_GROUP]:
        about = summarize_arguments(request["args"])
        about = about if limit is None else shorten(about, HEADLINE)
        yield f"    {request_number_or_id(request):>{width}}  {about}   " + paint(
            f"[{request['id']}]", "cyan"
        )
    if limit is not None and len(requests) > limit // _OF_GROUP:
        left = len(requests) - limit // _OF_GROUP
        yield paint(f"    … {left:,} more{hidden_hint}", "yellow")


_OF_GROUP = 6
"""A group shows so much less of its requests than a preview of its lines."""


def _preview_lines(text: str, paint: Paint, limit: int | None, hidden_hint: str) -> Iterator[str]:
    lines = make_visible(text).splitlines()
    yield from (
        islice(coloured_diff_lines(text, paint), limit)
        if paint.has_colours and is_diff(text)
        else lines[:limit]
    )
    if limit is not None and len(lines) > limit:
        yield paint(f"… {format_count(len(lines) - limit, 'more line')}{hidden_hint}", "yellow")


def coloured_diff_lines(diff: str, paint: Paint) -> Iterator[str]:
    """The diff in colour, with changed words in reverse video."""
    from interlock.cli.render.word_diff import SIGNS, parse_diff

    styles = {"added": "green", "removed": "red", "hunk": "cyan", "file": "bold"}
    for line in parse_diff(diff):
        style = styles.get(line.kind)
        sign, (first, changed) = SIGNS.get(line.kind, ""), line.pieces[0]
        pieces = ((sign, False), *line.pieces) if changed else ((sign + first, False), *line.pieces[1:])
        yield "".join(
            paint(text, style, *["reverse"] * changed) if style else text for text, changed in pieces
        )


def _part_and_question_lines(view: RequestView, paint: Paint) -> Iterator[str]:
    width = max((len(part.text) for part in view.parts), default=0)
    for part in view.parts:
        verdict = paint(f"{part.decision:<5}", DECISION_COLOURS.get(part.decision, "dim"))
        yield f"· {part.text:<{width}}  {verdict} {paint(part.reason, 'dim')}"
    for one in view.questions:
        if view.headline != f"Question: {one.text}":
            yield from one.text.splitlines()
        for number, option in enumerate(one.options, 1):
            yield f"  {number}. {option.label}  {paint(option.about, 'dim')}".rstrip()


def decision_commands(run: str, request: Request) -> list[tuple[str, str]]:
    """(what it does, the exact command) for every way to answer a request."""
    start, name = f"interlock resume {run}", request_number_or_id(request)
    rows: list[tuple[str, str]] = []
    for way in answer_choices(request):
        if way.takes == "text":
            rows.append(("answer", f"{start} --answer {name}='your answer'"))
        elif way.text:
            label = {"redo": "run it again", "skip": "leave it"}[way.text]
            rows.append((label, f"{start} --answer {name}={way.text}"))
        elif way.choice in ALWAYS:
            flag, label = ALWAYS[way.choice]
            rows.append((label, f"{start} --approve {name} {flag}"))
        elif way.choice == "modify":
            keys = ("plan", "approval_mode") if plan_under_review(request) else request["args"]
            how = f"(in your editor; or {name}=JSON: {', '.join(map(to_one_line, keys))})"
            rows.append(("change it", f"{start} --edit {name}   {how}"))
        elif way.choice == "reject":
            rows.append(("reject", f"{start} --reject {name} --reason 'why'"))
        else:
            label, flag = ("stop the run", "--cancel") if way.choice == "cancel" else ("approve", "--approve")
            rows.append((label, f"{start} {flag} {name}"))
    if "cancel" not in request["choices"]:
        rows.append(("stop the run", f"interlock cancel {run}"))
    return rows


def _decide_all_command_lines(run: str, requests: Sequence[Request], paint: Paint) -> Iterator[str]:
    start = f"interlock resume {run}"
    approvals = [request_number_or_id(r) for r in requests if r["kind"] == "approval"]
    if len(approvals) > 1:
        mixed = f"--approve {approvals[0]} --reject {approvals[1]} --reason 'why'"
        yield f"All at once:  {paint(f'{start} --approve all', 'cyan')}"
        yield f"Or each:      {paint(f'{start} {mixed}', 'cyan')}"
    outcomes = [request_number_or_id(r) for r in requests if r["kind"] == "outcome"]
    if len(outcomes) > 1:
        yield f"Do all again:  {paint(f'{start} --answer all=redo', 'cyan')}"
        yield f"Leave all:     {paint(f'{start} --answer all=skip', 'cyan')}"
        each = f"--answer {outcomes[0]}=redo --answer {outcomes[1]}=skip"
        yield f"Or each:       {paint(f'{start} {each}', 'cyan')}"
