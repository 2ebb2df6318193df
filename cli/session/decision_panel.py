"""decision_panel: a question above the input line: what would happen, its choices, its keys, several edits as one."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyPressEvent
from rich.text import Text

from interlock.cli.decisions import decide_with_edited_arguments
from interlock.cli.render.output import is_diff, make_visible, to_one_line
from interlock.cli.render.pending_requests import UNKNOWN
from interlock.cli.session import blocks
from interlock.cli.session.markdown_layout import fold_line, wrap_with_hanging_indent
from interlock.cli.session.picker import MARK
from interlock.cli.session.question_form import QuestionForm
from interlock.cli.session.screen import Screen
from interlock.engine.client import Decision
from interlock.engine.client.answer_choices import (
    EDITS,
    SAVED,
    AnswerChoice,
    Request,
    answer_choices,
    plan_under_review,
    shared_answer_choices,
)
from interlock.engine.client.requests import (
    decided_request_line,
    decisions_on_other_requests,
    describe_request,
    edits_to_decide_together,
    find_similar_unknown_outcomes,
    make_decision,
    request_headline,
)
from interlock.state.errors import InterlockError, UserError

_SESSION = "this session"
"""How long a session keeps “all edits”."""
_FEWEST_LINES = 3
"""Lines of the action that are shown however small the terminal is."""
_LABEL_LINES = 3
"""Lines of a choice; the details have all of a longer one."""
_REASON_LINES = 4
"""Lines of what is asked about a call that was cut off."""
_LATER, _SINGLY, _VIEW, _OPEN, _MORE = "l", "i", "v", "o", "?"


class PanelTerminal(Protocol):
    async def run_with_exclusive_terminal(self, work: Callable[[], Any]) -> Any:
        """Do something that needs the whole terminal."""

    async def show_in_pager(self, requests: Sequence[Request], /) -> None:
        """Show all of it in a pager."""

    async def open_difftool(self, requests: Sequence[Request], /) -> None:
        """Open it in the person's difftool."""


class DecisionPanel:
    """Decides one request or several: a key, or the arrows and Enter; a refusal takes a reason."""

    def __init__(
        self,
        requests: Sequence[Request],
        terminal: PanelTerminal,
        layout_markdown: Callable[[str], list[Text]],
        title: str = "",
        position: str = "",
    ) -> None:
        """`title`: of several requests. `position`: before the title, such as `2 of 3 · `."""
        self.requests, self.request, self._terminal = requests, requests[0], terminal
        self._layout_markdown, self._title, self._position = layout_markdown, title, position
        self.selected_index = 0
        """The entry that Enter takes."""
        self.text_wanted = ""
        """What to type as a line of text; empty: the menu decides."""
        self.problem = ""
        self.decided_elsewhere = False
        """Somebody else has decided it."""
        self.singly = False
        """A list: decide one after the other."""
        self._has_details = False
        self._saving: AnswerChoice | None = None
        self._action: tuple[int, list[list[Text]]] = (0, [])
        self.decided: asyncio.Future[list[Decision]] = asyncio.get_running_loop().create_future()
        """Empty: later, or one by one."""
        several = len(requests) > 1
        offered = (
            shared_answer_choices(requests, _SESSION) if several else answer_choices(self.request, _SESSION)
        )
        self._ways = {way.key: way for way in offered if way.key}

    @property
    def menu_entries(self) -> dict[str, str]:
        """Key → what it does; extra choices only with the details."""
        if self._saving is not None:
            return {
                "y": f"Yes, save this rule: {self._saving.label_with_scope.removeprefix('Yes, and ')}",
                "n": "No, back",
            }
        shown = {key: way for key, way in self._ways.items() if self._has_details or not way.is_extra}
        several = len(self.requests) > 1
        of_all = f" (all {len(self.requests)})" if several else ""
        labels = {key: way.label_with_scope + of_all * (key in "ynrs") for key, way in shown.items()}
        singly = {_SINGLY: "Decide one by one"} if several else {}
        return {**labels, **singly, **({_LATER: "Decide later"} if self._has_details else {})}

    @property
    def preview_keys(self) -> dict[str, str]:
        """Keys that show more and decide nothing."""
        view = {_VIEW: "view all"} if self.request["preview"] else {}
        opens = {_OPEN: "difftool"} if is_diff(self.request["preview"]) else {}
        return {**view, **opens, _MORE: "fewer" if self._has_details else "more"}

    @property
    def takes_text(self) -> bool:
        """Whether a line of text answers it."""
        return bool(self.text_wanted)

    # What it looks like

    def lines(self, width: int, height: int) -> list[Text]:
        """The title, the action, why the model wants it, the choices, why it is asked, the keys: `height` lines."""
        menu = self._menu_lines(width)
        head = [*self._title_lines(width)]
        return [*head, *self._action_lines(width, max(height - len(head) - len(menu), _FEWEST_LINES)), *menu]

    def _title_lines(self, width: int) -> Iterator[Text]:
        words = describe_request(self.request)
        title = self._title or (UNKNOWN if words.is_unknown else "") + words.headline
        if not self._title and words.preview and words.shows == "text" and title.startswith("Run "):
            title = "Run this command"
        agent = f" · for sub-agent {words.agent}" if words.agent else ""
        shown = blocks.clip_to_width(Text(f"{self._position}{title}", "strong"), width - len(agent))
        yield shown.append(agent, "dim")
        if words.note and not self._title:
            yield from wrap_with_hanging_indent(Text(f"! {words.note}", "warn"), width)

    def _action_lines(self, width: int, room: int) -> list[Text]:
        if self._action[0] != width:
            self._action = (width, [*self._action_parts(width)])
        parts, shown = self._action[1], list[Text]()
        if sum(map(len, parts)) <= room:
            return [line for part in parts for line in part]
        for number, part in enumerate(parts):
            if len(shown) + len(part) > room - 1:
                left = f"… {blocks.format_count(len(parts) - number, 'more line')} · {_VIEW} shows all"
                return [*shown, Text(f"  {left}", "dim")]
            shown += part
        return shown

    def _action_parts(self, width: int) -> Iterator[list[Text]]:
        """The action's lines, each folded to the width."""
        if self._title:
            for number, request in enumerate(self.requests, 1):
                yield [blocks.clip_to_width(Text(f"  {number:>2}  {request_headline(request)}"), width)]
            return
        text = describe_request(self.request).preview
        if plan := plan_under_review(self.request):
            yield from ([line] for line in self._layout_markdown(plan))
        elif is_diff(text):
            yield from blocks.diff_line_parts(text, width)
        else:
            for line in make_visible(text).splitlines():
                yield [Text("  ").append_text(part) for part in fold_line(Text(line), max(width - 2, 10))]

    def _menu_lines(self, width: int) -> list[Text]:
        """The choices with what is known beside them, or what to type."""
        lines = [Text(self.problem, "bad")] if self.problem else []
        if self.text_wanted:
            return [*lines, Text(self.text_wanted, "strong")]
        words = describe_request(self.request)
        several = len(self.requests) > 1
        if words.purpose and not several:
            lines.append(blocks.clip_to_width(Text(f"  The model says: {words.purpose}", "thought"), width))
        for place, (key, label) in enumerate(self.menu_entries.items()):
            is_marked = place == self.selected_index
            line = Text(f"{MARK if is_marked else '  '}[{key}] {label}", "prompt" if is_marked else "")
            folded = [*wrap_with_hanging_indent(line, width)]
            lines += folded[:_LABEL_LINES]
        if self._has_details:
            lines += self._detail_lines(width)
        elif words.why and self._saving is None:
            why = [*wrap_with_hanging_indent(Text(f"  {words.why}", "dim"), width)]
            most = _REASON_LINES if words.is_unknown else 1
            lines += why if len(why) <= most else [*why[: most - 1], why[most - 1].append(f" … {_MORE}")]
        keys = "  ".join(f"[{key}] {label}" for key, label in self._footer_keys())
        return [*lines, blocks.clip_to_width(Text(f"  {keys}  Esc: later", "dim"), width)]

    def _footer_keys(self) -> Iterator[tuple[str, str]]:
        if self._saving is not None:
            return
        if not self._has_details and "e" in self._ways:
            yield "e", "change it"
        yield from self.preview_keys.items()

    def _detail_lines(self, width: int) -> Iterator[Text]:
        words = describe_request(self.request)
        facts = [words.why, *(f"`{part.text}`: {part.decision}; {part.reason}" for part in words.parts)]
        for fact in [*filter(None, facts), f"Request {self.request['id']}"]:
            yield from wrap_with_hanging_indent(Text(f"  · {fact}", "dim"), width)

    # What its keys do

    def has_key(self, key: str) -> bool:
        return key in self.menu_entries or key in self.preview_keys or (key == _LATER or key in self._ways)

    def move_selection(self, offset: int) -> None:
        self.selected_index = (self.selected_index + offset) % len(self.menu_entries)

    @property
    def selected_key(self) -> str:
        return [*self.menu_entries][self.selected_index]

    async def press_key(self, key: str) -> None:
        self.problem = ""
        if key == _MORE:
            self._has_details, self.selected_index = not self._has_details, 0
        elif key in self.preview_keys:
            await (self._terminal.show_in_pager if key == _VIEW else self._terminal.open_difftool)(
                self.requests
            )
        elif self._saving is not None:
            way, self._saving, self.selected_index = self._saving, None, 0
            if key == "y":
                self._decide_all(way)
        elif key == _LATER:
            self._resolve_decisions([])
        elif key == _SINGLY and len(self.requests) > 1:
            self.singly = True
            self._resolve_decisions([])
        elif key in self._ways:
            await self._apply_choice(self._ways[key])

    async def _apply_choice(self, choice: AnswerChoice) -> None:
        if choice.takes == "arguments":
            try:
                changed = await self._terminal.run_with_exclusive_terminal(
                    lambda: decide_with_edited_arguments(self.request)
                )
                self._resolve_decisions([changed])
            except UserError as error:
                self.problem = str(error)
        elif choice.takes == "reason":
            self.text_wanted = "Reason (optional). Enter sends, Esc goes back"
        elif choice.choice == SAVED:
            self._saving, self.selected_index = choice, 1
        else:
            self._decide_all(choice)

    def submit_typed_text(self, text: str) -> None:
        """Take the line of text: the reason of a refusal."""
        self.problem = ""
        self._decide_all(next(way for way in self._ways.values() if way.takes == "reason"), text.strip())

    def go_back(self) -> None:
        """From a reason or a confirmation back to the menu; from the menu: later."""
        if self._saving is not None:
            self._saving, self.selected_index = None, 0
        elif self.text_wanted:
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


Panel = DecisionPanel | QuestionForm
Ask = Callable[[Panel], Awaitable[list[Decision]]]
"""Puts a panel on the terminal, and waits for what the person decides."""


async def ask_for_decisions(
    requests: Sequence[Request], screen: Screen, terminal: PanelTerminal, show_panel: Ask
) -> list[Decision]:
    """Ask about the requests, edits of one reply and unknown outcomes of one effect as lists.

    Those without a decision are left for later.
    """
    made: list[Decision] = []
    settled: set[str] = set()
    for title, several in _group_requests_decided_together(requests):
        panel = DecisionPanel(several, terminal, screen.layout_markdown, title)
        found = await show_panel(panel)
        if found:
            screen.show_decided(several, found, decided_request_line(several[0], found[0], title))
        made += found
        settled |= _settled_request_ids(found, requests)
        if not found and not panel.singly and not panel.decided_elsewhere:
            return made
    for number, request in enumerate(requests, 1):
        if request["id"] in settled:
            continue
        count = f"{number} of {len(requests)} · " if len(requests) > 1 else ""
        panel = (
            QuestionForm(request, count)
            if request["kind"] == "question"
            else DecisionPanel([request], terminal, screen.layout_markdown, position=count)
        )
        decisions = await show_panel(panel)
        if not decisions and not panel.decided_elsewhere:
            break
        others = [other for other in requests if other["id"] not in settled | {request["id"]}]
        for decision in decisions:
            screen.show_decided([request], [decision], decided_request_line(request, decision))
            more, ids = decisions_on_other_requests(decision, request, others)
            made += [decision, *more]
            settled |= {decision.approval, *ids}
    return made


def _group_requests_decided_together(requests: Sequence[Request]) -> Iterator[tuple[str, list[Request]]]:
    """Requests that one decision may answer, and what they are."""
    if edits := edits_to_decide_together(requests):
        yield f"{len(edits)} edits", edits
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


def full_request_lines(requests: Sequence[Request], width: int) -> Iterator[Text]:
    """All that a pager shows of these requests."""
    for request in requests:
        yield Text(request_headline(request), "strong")
        text = describe_request(request).preview
        if is_diff(text):
            yield from blocks.diff_lines(text, width, None)
        else:
            yield from (Text(line) for line in make_visible(text).splitlines())
        yield Text("")


_QUIET_S = 0.4
"""Seconds without a key before a question accepts keys: what was being typed is no answer to it."""
_ALONE_S = 0.15
"""Seconds without another key before and after one that decides: a typed word may contain a `y`, too."""


class MenuKeyHandler:
    """Tells keys that decide from keys that write."""

    def __init__(
        self,
        buffer: Buffer,
        panel: Callable[[], Panel],
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

    async def _press_key(self, panel: Panel, key: str) -> None:
        if panel.decided.done():
            return
        try:
            await panel.press_key(panel.selected_key if key == "\r" else key.lower())
        except InterlockError as error:
            self._failed(error)
        self._paint()
