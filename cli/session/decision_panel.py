"""decision_panel: a question above the input line: what it shows, its menu, its keys, several edits as one list."""

import asyncio
import io
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from textwrap import wrap
from typing import Any, Literal, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyPressEvent
from rich.text import Text

from interlock.cli.decisions import decide_with_edited_arguments
from interlock.cli.render.output import Paint, is_diff, make_visible, to_one_line
from interlock.cli.render.pending_requests import request_lines
from interlock.cli.session import blocks
from interlock.cli.session.picker import MARK, truncate_to_width
from interlock.cli.session.screen import Screen
from interlock.cli.session.terminal_output import terminal_size
from interlock.engine.client import Decision
from interlock.engine.client.requests import (
    EDITS,
    SAVED,
    AnswerChoice,
    Request,
    answer_choices,
    answer_field_labels,
    decide_with_answers,
    decision_text,
    decisions_on_other_requests,
    describe_request,
    edits_to_decide_together,
    find_similar_unknown_outcomes,
    make_decision,
    plan_under_review,
    request_headline,
    shared_answer_choices,
)
from interlock.state.errors import InterlockError, UserError

PREVIEW_LINES = 40
"""Lines of a diff or a text shown above its question; a pager shows all of it."""
_AROUND, _FEWEST = 18, 12
"""Rows that a question takes beside its diff, so that a long diff leaves its headline on the screen."""
_LISTED = 12
"""Edits of a list that are named."""
_LABEL_LINES = 3
"""An entry's lines; the question above has all that a longer one covers."""
_INDENT = " " * 6
_LATER, _SINGLY, _VIEW, _OPEN = "l", "i", "v", "o"
_HINT = "↑ ↓ Enter · a longer text and / go to the input line"


class PanelTerminal(Protocol):
    async def run_with_exclusive_terminal(self, work: Callable[[], Any]) -> Any:
        """Do something that needs the whole terminal."""

    async def show_in_pager(self, requests: Sequence[Request], /) -> None:
        """Show all of it in a pager."""

    async def open_difftool(self, requests: Sequence[Request], /) -> None:
        """Open it in the person's difftool."""


class DecisionPanel:
    """A menu that decides one request or several: a key, or the arrows and Enter; some answers take a text."""

    def __init__(self, requests: Sequence[Request], terminal: PanelTerminal) -> None:
        self.requests, self.request, self._terminal = requests, requests[0], terminal
        self.selected_index = 0
        """The entry that Enter takes."""
        self.text_wanted = ""
        """What to type as a line of text; empty: the menu decides."""
        self.problem = ""
        self.decided_elsewhere = False
        """Somebody else has decided it."""
        self.singly = False
        """A list: decide one after the other."""
        self._saving: AnswerChoice | None = None
        self._texts: list[str] = []
        self.decided: asyncio.Future[list[Decision]] = asyncio.get_running_loop().create_future()
        """Empty: later, or one by one."""
        offered = answer_choices(self.request) if len(requests) == 1 else shared_answer_choices(requests)
        self._ways = {way.key: way for way in offered if way.key}
        if self.request["kind"] == "question":
            self.text_wanted = answer_field_labels(self.request)[0]

    @property
    def menu_entries(self) -> dict[str, str]:
        """Key → what it does."""
        if self._saving is not None:
            words = describe_request(self.request)
            covers = words.saved or "; ".join(words.always)
            return {"y": f"yes, save it for all later runs: {covers}", "n": "no, back"}
        singly = {_SINGLY: "one by one"} if len(self.requests) > 1 else {}
        of_all = f" (all {len(self.requests)})" if singly else ""
        labels = {key: way.label_with_scope + of_all * (key in "ynrs") for key, way in self._ways.items()}
        return {**labels, **singly, _LATER: "later"}

    @property
    def preview_keys(self) -> dict[str, str]:
        """Keys that show more and decide nothing."""
        opens = {_OPEN: "difftool"} if is_diff(self.request["preview"]) else {}
        return {_VIEW: "view all", **opens} if self.request["preview"] else {}

    def menu_lines(self, width: int) -> StyleAndTextTuples:
        """The menu, or what to type."""
        lines: StyleAndTextTuples = [("class:bad", f"{self.problem}\n")] if self.problem else []
        if self.text_wanted:
            back = "Esc: back" if self.text_wanted.startswith("why") else "Esc: later"
            return [*lines, ("class:asks", f"{self.text_wanted} (Enter; {back})")]
        for place, (key, label) in enumerate(self.menu_entries.items()):
            style = "class:mark bold" if place == self.selected_index else ""
            marks = chain([MARK if place == self.selected_index else "  "], repeat(_INDENT))
            wrapped = wrap(f"[{key}] {label}", width - len(_INDENT), max_lines=_LABEL_LINES, placeholder=" …")
            lines += [
                (style, f"{mark}{truncate_to_width(text, width - len(mark))}\n")
                for mark, text in zip(marks, wrapped, strict=False)
            ]
        looks = "".join(f"[{key}] {label}  " for key, label in self.preview_keys.items())
        return [*lines, ("class:dim", truncate_to_width(f"{looks}{_HINT}", width))]

    def has_key(self, key: str) -> bool:
        return key in self.menu_entries or key in self.preview_keys

    def move_selection(self, offset: int) -> None:
        self.selected_index = (self.selected_index + offset) % len(self.menu_entries)

    @property
    def selected_key(self) -> str:
        return [*self.menu_entries][self.selected_index]

    async def press_key(self, key: str) -> None:
        self.problem = ""
        if key in self.preview_keys:
            await (self._terminal.show_in_pager if key == _VIEW else self._terminal.open_difftool)(
                self.requests
            )
        elif self._saving is not None:
            way, self._saving, self.selected_index = self._saving, None, 0
            if key == "y":
                self._decide_all(way)
        elif key == _LATER:
            self._resolve_decisions([])
        elif key == _SINGLY:
            self.singly = True
            self._resolve_decisions([])
        else:
            await self._apply_choice(self._ways[key])

    async def _apply_choice(self, choice: AnswerChoice) -> None:
        if choice.takes == "arguments":
            try:
                self._resolve_decisions(
                    [
                        await self._terminal.run_with_exclusive_terminal(
                            lambda: decide_with_edited_arguments(self.request)
                        )
                    ]
                )
            except UserError as error:
                self.problem = str(error)
        elif choice.takes == "reason":
            self.text_wanted = "why not? (empty: no reason)"
        elif choice.choice == SAVED:
            self._saving, self.selected_index = choice, 1
        else:
            self._decide_all(choice)

    def submit_typed_text(self, text: str) -> None:
        """Take the line of text: a reason, or an answer."""
        self.problem = ""
        if self.request["kind"] != "question":
            self._decide_all(next(way for way in self._ways.values() if way.takes == "reason"), text.strip())
            return
        if not text.strip():
            return
        self._texts.append(text.strip())
        wanted = answer_field_labels(self.request)
        if len(self._texts) < len(wanted):
            self.text_wanted = wanted[len(self._texts)]
            return
        try:
            self._resolve_decisions([decide_with_answers(self.request, self._texts)])
        except UserError as error:
            self._texts.clear()
            self.problem, self.text_wanted = str(error), wanted[0]

    def go_back(self) -> None:
        """From a reason or a second question back to the menu; from anything else: later."""
        if self._saving is not None:
            self._saving, self.selected_index = None, 0
        elif self.text_wanted and self.request["kind"] != "question":
            self.text_wanted = ""
        else:
            self._resolve_decisions([])

    def close_as_decided_elsewhere(self) -> None:
        """Stop asking: it was decided elsewhere."""
        self.decided_elsewhere = True
        self._resolve_decisions([])

    def _decide_all(self, choice: AnswerChoice, feedback: str | None = None) -> None:
        self._resolve_decisions([make_decision(request, choice, feedback) for request in self.requests])

    def _resolve_decisions(self, decisions: list[Decision]) -> None:
        if not self.decided.done():
            self.decided.set_result(decisions)


Ask = Callable[[DecisionPanel], Awaitable[list[Decision]]]
"""Puts a panel on the terminal, and waits for what the person decides."""


async def ask_for_decisions(
    requests: Sequence[Request], screen: Screen, terminal: PanelTerminal, color: bool, show_panel: Ask
) -> list[Decision]:
    """Ask about the requests, edits of one reply and unknown outcomes of one effect as lists.

    Those without a decision are left for later.
    """
    made: list[Decision] = []
    settled: set[str] = set()
    for title, several in _group_requests_decided_together(requests):
        screen.show_renderable(Text.assemble((title, "strong"), *_headline_list(several)))
        panel = DecisionPanel(several, terminal)
        found = await show_panel(panel)
        _show_decision_note(screen, panel, found)
        made += found
        settled |= _settled_request_ids(found, requests)
        if not found and not panel.singly and not panel.decided_elsewhere:
            return made
    for number, request in enumerate(requests, 1):
        if request["id"] in settled:
            continue
        count = f"{number} of {len(requests)}: " if len(requests) > 1 else ""
        show_request(screen, request, count, color)
        panel = DecisionPanel([request], terminal)
        decisions = await show_panel(panel)
        if not decisions and not panel.decided_elsewhere:
            break
        _show_decision_note(screen, panel, decisions)
        others = [other for other in requests if other["id"] not in settled | {request["id"]}]
        for decision in decisions:
            more, ids = decisions_on_other_requests(decision, request, others)
            made += [decision, *more]
            settled |= {decision.approval, *ids}
    return made


def _group_requests_decided_together(requests: Sequence[Request]) -> Iterator[tuple[str, list[Request]]]:
    """Requests that one decision may answer, and what they are."""
    if edits := edits_to_decide_together(requests):
        yield f"{len(edits)} edits wait for you", edits
    listed = set[str]()
    for number, request in enumerate(requests, 1):
        if request["id"] not in listed and (
            others := find_similar_unknown_outcomes(request, requests[number:])
        ):
            listed |= {other["id"] for other in others}
            yield (
                f"{len(others) + 1} unknown outcomes of {to_one_line(request['tool_name'])}",
                [request, *others],
            )


def _settled_request_ids(decisions: Iterable[Decision], requests: Sequence[Request]) -> set[str]:
    """Ids that need no question any more after these decisions."""
    by_id = {request["id"]: request for request in requests}
    found = {decision.approval for decision in decisions}
    return found.union(
        *(
            decisions_on_other_requests(d, by_id[d.approval], requests)[1]
            for d in decisions
            if d.choice != EDITS
        )
    )


def show_request(screen: Screen, request: Request, position_prefix: str, color: bool) -> None:
    """Show what would happen and why it is asked."""
    if plan := plan_under_review(request):
        screen.show_markdown(plan)
    screen.show_renderable(Text.from_ansi(request_text(request, position_prefix, color)))
    if describe_request(request).shows == "diff":
        room = max(terminal_size().rows - _AROUND, _FEWEST)
        screen.show_lines(preview_lines(request, screen.width, min(room, PREVIEW_LINES)))


def request_text(request: Request, position_prefix: str, color: bool) -> str:
    """The request as terminal lines, without a diff or a plan; the only control characters are our colours."""
    text = io.StringIO()
    paint = Paint(text)
    paint.has_colours = color
    more = f": [{_VIEW}]"
    paint.print_lines(
        [
            "",
            *request_lines(
                request, position_prefix, paint, PREVIEW_LINES, more, omits_preview=True, answered_by_key=True
            ),
        ]
    )
    return text.getvalue().strip("\n")


def preview_lines(request: Request, width: int, limit: int | None = None) -> list[Text]:
    """What would happen, as lines; `limit`: at most so many, and how to see the others."""
    text = describe_request(request).preview
    if is_diff(text):
        return blocks.diff_lines(text, width, limit, f"[{_VIEW}]")
    return [Text(line) for line in make_visible(text).splitlines()]


def full_request_lines(requests: Sequence[Request], width: int) -> Iterator[Text]:
    """All that a pager shows of these requests."""
    for request in requests:
        yield Text(request_headline(request), "strong")
        yield from preview_lines(request, width)
        yield Text("")


def _headline_list(requests: Sequence[Request]) -> Iterator[str | tuple[str, Literal["dim"]]]:
    for number, request in enumerate(requests[:_LISTED], 1):
        yield f"\n  {number:>2}  {request_headline(request)}"
    if len(requests) > _LISTED:
        yield (f"\n      … {len(requests) - _LISTED} more: [{_VIEW}]", "dim")


def _show_decision_note(screen: Screen, panel: DecisionPanel, decisions: Sequence[Decision]) -> None:
    if decisions:
        all_of = f"all {len(decisions)}: " if len(panel.requests) > 1 else ""
        screen.show_note(f"▸ {all_of}{to_one_line(decision_text(panel.request, decisions[0]), 200)}")


_QUIET_S = 0.4
"""Seconds without a key before a question accepts keys: what was being typed is no answer to it."""
_ALONE_S = 0.15
"""Seconds without another key before and after one that decides: a typed word may contain a `y`, too."""


class MenuKeyHandler:
    """Tells keys that decide from keys that write."""

    def __init__(
        self,
        buffer: Buffer,
        panel: Callable[[], DecisionPanel],
        failed: Callable[[InterlockError], None],
        paint: Callable[[], None],
    ) -> None:
        self._buffer, self._panel, self._failed, self._paint = buffer, panel, failed, paint
        self._before, self._at = 0.0, 0.0
        self._held_key = ""
        """A key that decides unless another follows: then both are text."""

    def record_key_press(self) -> float:
        """Note a key. Returns when it came, in seconds of the monotonic clock."""
        self._before, self._at = self._at, time.monotonic()
        return self._at

    async def wait_until_typing_stops(self) -> None:
        """Wait until nobody types."""
        while time.monotonic() - self._at < _QUIET_S:
            await asyncio.sleep(0.05)

    def forget_held_key(self) -> None:
        self._held_key = ""

    def move_selection(self, offset: int) -> None:
        self._panel().move_selection(offset)
        self._at = -_ALONE_S  # an arrow is no part of a word

    def go_back(self) -> None:
        """Drop what is typed, else leave the menu."""
        if self._buffer.text:
            self._buffer.append_to_history()
            self._buffer.reset()
        else:
            self._panel().go_back()

    def handle_key(self, event: KeyPressEvent) -> None:
        """A key of the menu decides if it comes alone, or with Enter; anything else is text for the input line."""
        panel, key, pressed_at = self._panel(), event.data, self._at
        alone = pressed_at - self._before > _ALONE_S
        held, self._held_key = self._held_key, ""
        if key == "\r" and panel.has_key(held.lower()):
            event.app.create_background_task(self._press_key(panel, held))
            return
        if held or not alone or not (key == "\r" or panel.has_key(key.lower())):
            self._buffer.insert_text("".join(char for char in held + key if char.isprintable()))
            return
        self._held_key = key

        async def press_unless_typing() -> None:
            await asyncio.sleep(_ALONE_S)
            if self._held_key and self._at == pressed_at:
                self._held_key = ""
                await self._press_key(panel, key)

        event.app.create_background_task(press_unless_typing())

    async def _press_key(self, panel: DecisionPanel, key: str) -> None:
        if panel.decided.done():
            return
        try:
            await panel.press_key(panel.selected_key if key == "\r" else key.lower())
        except InterlockError as error:
            self._failed(error)
        self._paint()
