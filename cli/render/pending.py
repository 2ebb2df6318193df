"""pending: renders pending requests: what would happen, why it is asked, and the commands that decide it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from interlock.cli.render.output import DECIDED, Paint, counted, cut, diff_stat, is_diff, one_line, visible

PREVIEW_LINES = 120
PLAN_REVIEW = "exit_plan_mode"
_NAME, _HEADLINE = 60, 80
"""Characters; the preview below shows in full what is cut here."""
_TARGETS = ("command", "file_path", "path", "dir_path", "pattern", "url", "prompt", "plan_filename")
"""Arguments that say what a call is about."""
ALWAYS = {
    "proceed_always": ("--always", "… always here"),
    "proceed_always_tool": ("--always-tool", "… whole tool"),
    "proceed_always_server": ("--always-server", "… whole server"),
    "proceed_always_and_save": ("--always-save", "… and save it"),
}
"""Choice → flag of `resume`, and its label beside the command."""

Request = Mapping[str, Any]


def screen(
    run: str, title: str, requests: Sequence[Request], paint: Paint, limit: int | None = PREVIEW_LINES
) -> Iterator[str]:
    """Everything a person needs to decide on a run, line by line; `limit`: lines per preview."""
    count = len(requests)
    yield paint(f"Run {run} is waiting for {counted(count, 'decision')}.", "bold", "yellow")
    if title:
        yield paint(f"  “{one_line(title, paint.width - 6)}”", "dim")
    for number, request in enumerate(requests, 1):
        yield ""
        yield from question(run, request, f"{number} of {count}: " if count > 1 else "", paint, limit)
        rows = commands(run, request)
        width = max(len(label) for label, _ in rows)
        yield from (f"  {label:<{width}}  {paint(command, 'cyan')}" for label, command in rows)
    yield ""
    yield from _together(run, requests, paint)
    yield paint(
        "Nothing runs until then; it can be decided any time, in another terminal, after a restart.", "dim"
    )


def headline(request: Request) -> str:
    """`replace calc.py (+1 −1)`, `run_shell_command: git push`, `question: Which one?`."""
    name = one_line(request["tool_name"], _NAME)
    if request["kind"] == "question":
        return f"question: {one_line(_asked(request))}"
    stat = diff_stat(request["preview"])
    return f"{name} {brief(request['args'])}" + (f" ({stat})" if stat else "")


def brief(args: Mapping[str, Any]) -> str:
    """What a call is about: its file, command or address, else all of its arguments."""
    target = next((args[key] for key in _TARGETS if args.get(key)), None)
    return one_line(str(target) if target is not None else json.dumps(args, ensure_ascii=False))


def _asked(request: Request) -> str:
    questions: Sequence[Mapping[str, Any]] = request.get("questions") or [{}]
    first = questions[0].get("question") or request["preview"] or request["reason"]
    more = f" (and {len(questions) - 1} more)" if len(questions) > 1 else ""
    return f"{first}{more}"


def question(run: str, request: Request, count: str, paint: Paint, limit: int | None) -> Iterator[str]:
    """What would happen, why it is asked, and what an always-choice would cover."""
    kind = {"outcome": "unknown outcome of "}.get(request["kind"], "")
    title = paint(f"{count}{kind}{cut(headline(request), _HEADLINE)}", "bold")
    yield title + paint(f"   [{request['id']}]", "cyan")
    if request.get("note"):
        yield paint(f"  ! {one_line(str(request['note']))}", "yellow")
    asker = f" (sub-agent {request['agent']})" if request.get("agent") else ""
    yield f"  Why: {one_line(request['reason'])}{asker}"
    yield from (f"    {line}" for line in _preview(run, request, paint, limit))
    yield from (f"    {line}" for line in _parts(request, paint))
    if request["kind"] == "question":
        yield from (f"    {line}" for line in _questions(request, paint))
    given: Mapping[str, str] = request.get("always") or {}
    always = {choice: one_line(what) for choice, what in given.items()}
    saved = always.pop("proceed_always_and_save", "")
    here = dict.fromkeys(always.values())
    if here:
        yield f"  Always: {'; '.join(here)}"
    if saved not in ("", *here):
        yield f"  Saved:  {saved}"


def _preview(run: str, request: Request, paint: Paint, limit: int | None) -> Iterator[str]:
    if request["kind"] == "question":
        return
    lines = visible(request["preview"]).splitlines()
    if lines == [brief(request["args"])] and lines[0] in cut(headline(request), _HEADLINE):
        return  # the headline shows everything
    text = request["preview"]
    yield from islice(marked(text, paint), limit) if paint.on and is_diff(text) else lines[:limit]
    if limit is not None and len(lines) > limit:
        yield paint(
            f"… {counted(len(lines) - limit, 'more line')}, NOT shown here: interlock approvals {run}",
            "yellow",
        )


def marked(diff: str, paint: Paint) -> Iterator[str]:
    """The diff in colour, with changed words in reverse video."""
    from interlock.cli.render.worddiff import SIGNS, diff_lines

    styles = {"added": "green", "removed": "red", "hunk": "cyan", "file": "bold"}
    for line in diff_lines(diff):
        style = styles.get(line.kind)
        sign, (first, changed) = SIGNS.get(line.kind, ""), line.pieces[0]
        pieces = ((sign, False), *line.pieces) if changed else ((sign + first, False), *line.pieces[1:])
        yield "".join(
            paint(text, style, *["reverse"] * changed) if style else text for text, changed in pieces
        )


def _parts(request: Request, paint: Paint) -> Iterator[str]:
    parts: Sequence[Mapping[str, str]] = request.get("parts") or ()
    if len(parts) < 2:
        return
    width = max(len(one_line(p["text"], 60)) for p in parts)
    for part in parts:
        verdict = paint(f"{part['decision']:<5}", DECIDED.get(part["decision"], "dim"))
        yield f"· {one_line(part['text'], 60):<{width}}  {verdict} {paint(_why(part), 'dim')}"


def _why(part: Mapping[str, str]) -> str:
    """The reason without the command, which is shown beside it."""
    return one_line(part["reason"].removeprefix(f"`{part['text']}` "))


def _questions(request: Request, paint: Paint) -> Iterator[str]:
    questions: Sequence[Mapping[str, Any]] = request.get("questions") or ()
    for question in questions:
        yield from visible(str(question.get("question", ""))).splitlines()
        options: Sequence[Any] = question.get("options") or ()
        for number, option in enumerate(options, 1):
            about = option.get("description", "") if isinstance(option, dict) else ""  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield f"  {number}. {option_label(option)}  {paint(one_line(str(about)), 'dim')}".rstrip()  # pyright: ignore[reportUnknownArgumentType]


def option_label(option: Any) -> str:
    return one_line(str(option.get("label", "") if isinstance(option, dict) else option))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def named(request: Request) -> str:
    """What to type for a request: its number, or its id while the run hasn't parked."""
    return str(request["number"] or request["id"])


def commands(run: str, request: Request) -> list[tuple[str, str]]:
    """(what it does, the exact command) for every choice of a request."""
    start, name, choices = f"interlock resume {run}", named(request), request["choices"]
    if request["kind"] == "question":
        rows = [("answer", f"{start} --answer {name}='your answer'")]
    elif request["kind"] == "outcome":
        rows = [
            ("do it again", f"{start} --answer {name}=redo"),
            ("leave it", f"{start} --answer {name}=skip"),
        ]
    else:
        approve = f"{start} --approve {name}"
        always = [(what, f"{approve} {flag}") for c, (flag, what) in ALWAYS.items() if c in choices]
        rows = [("approve", approve), *always]
    if "modify" in choices and request["kind"] == "approval":
        # A plan review edits the plan's text, not the call's arguments.
        keys = ("plan", "approval_mode") if request["tool_name"] == PLAN_REVIEW else request["args"]
        rows.append(
            (
                "change it",
                f"{start} --edit {name}   (in your editor; or {name}=JSON: {', '.join(map(one_line, keys))})",
            )
        )
    if "reject" in choices and request["kind"] != "outcome":
        rows.append(("reject", f"{start} --reject {name} --reason 'why'"))
    if "cancel" in choices:
        rows.append(("stop the run", f"{start} --cancel {name}"))
    return rows


def _together(run: str, requests: Sequence[Request], paint: Paint) -> Iterator[str]:
    approvals = [named(r) for r in requests if r["kind"] == "approval"]
    if len(approvals) < 2:
        return
    mixed = f"--approve {approvals[0]} --reject {approvals[1]} --reason 'why'"
    yield f"All at once:  {paint(f'interlock resume {run} --approve all', 'cyan')}"
    yield f"Or each:      {paint(f'interlock resume {run} {mixed}', 'cyan')}"
