"""question_form: the model's questions as one form: options by arrows or numbers, or an answer of one's own."""

import asyncio
from collections.abc import Iterator, Sequence

from rich.text import Text

from interlock.cli.session.blocks import clip_to_width
from interlock.cli.session.markdown_layout import wrap_with_hanging_indent
from interlock.cli.session.picker import MARK
from interlock.engine.client import Decision
from interlock.engine.client.answer_choices import Request
from interlock.engine.client.requests import Question, decide_with_answers, describe_request
from interlock.state.errors import UserError

_TEXT_LINES = 8
"""Lines of a question's own text."""
_TOGGLE = " "


class QuestionForm:
    """Takes an answer to each question of a request; the last answer sends them all."""

    def __init__(self, request: Request, position: str = "") -> None:
        """`position`: before the title, such as `2 of 3 · `."""
        self.request: Request = request
        self.requests: Sequence[Request] = [request]
        self.singly = self.decided_elsewhere = False
        self.problem = ""
        self.decided: asyncio.Future[list[Decision]] = asyncio.get_running_loop().create_future()
        """Empty: later."""
        self._position, self._words = position, describe_request(request)
        self._questions = self._words.questions or (Question(self._words.headline, ()),)
        self._answers = [""] * len(self._questions)
        self._at = self.selected_index = 0
        self._chosen: set[int] = set()
        """Options of the current question that are ticked, where it takes several."""

    @property
    def _current(self) -> Question:
        return self._questions[self._at]

    @property
    def text_wanted(self) -> str:
        """What to type; empty: an option can be picked."""
        return "" if self._current.options else self._prompt_text()

    takes_text = True
    """Any line of text is an answer."""

    def _prompt_text(self) -> str:
        count = f"Question {self._at + 1} of {len(self._questions)}. " if len(self._questions) > 1 else ""
        return f"{count}Enter answers, Esc postpones"

    def lines(self, width: int, height: int) -> list[Text]:
        """All questions with the answers so far, the current one with its options; at most `height` lines."""
        lines = [clip_to_width(Text(f"{self._position}A question for you", "strong"), width)]
        if self._words.note:
            lines += wrap_with_hanging_indent(Text(f"! {self._words.note}", "warn"), width)
        if self._words.why:
            lines += wrap_with_hanging_indent(Text(f"  {self._words.why}", "dim"), width)
        for number, question in enumerate(self._questions):
            lines += self._question_lines(number, question, width)
        if self.problem:
            lines.append(Text(self.problem, "bad"))
        lines.append(clip_to_width(Text(f"  {self._hint()}", "dim"), width))
        return lines if len(lines) <= height else [*lines[:1], *lines[1 - height :]]

    def _question_lines(self, number: int, question: Question, width: int) -> Iterator[Text]:
        is_current, answer = number == self._at, self._answers[number]
        place = f"{number + 1}. " if len(self._questions) > 1 else ""
        texts = question.text.splitlines() or [""]
        if not is_current:
            done = f": {answer}" if answer else ""
            mark = "✓ " if answer else "  "
            yield clip_to_width(Text(f"{mark}{place}{texts[0]}{done}", "dim"), width)
            return
        for text in texts[:_TEXT_LINES]:
            yield from wrap_with_hanging_indent(Text(f"  {place}{text}"), width)
            place = ""
        for place_of, option in enumerate(question.options):
            is_marked = place_of == self.selected_index
            ticked = ("[x] " if place_of in self._chosen else "[ ] ") if question.takes_several else ""
            line = Text.assemble(
                (
                    f"  {MARK if is_marked else '  '}{place_of + 1}. {ticked}{option.label}",
                    "prompt" if is_marked else "",
                ),
                (f"  {option.about}" if option.about else "", "dim"),
            )
            yield from wrap_with_hanging_indent(line, width)

    def _hint(self) -> str:
        back = "Esc: back" if self._at else "Esc: later"
        if not self._current.options:
            return self._prompt_text()
        picks = "Space ticks, Enter answers" if self._current.takes_several else "Enter answers"
        return f"↑ ↓ or a number, {picks} · or type your own answer · {back}"

    def has_key(self, key: str) -> bool:
        return self._is_option_number(key) or (key == _TOGGLE and self._current.takes_several)

    def _is_option_number(self, key: str) -> bool:
        return key.isdecimal() and 1 <= int(key) <= len(self._current.options)

    def move_selection(self, offset: int) -> None:
        self.selected_index = (self.selected_index + offset) % max(len(self._current.options), 1)

    @property
    def selected_key(self) -> str:
        return "\r"

    async def press_key(self, key: str) -> None:
        """A number marks its option, Space ticks the marked one, Enter answers."""
        self.problem = ""
        options = self._current.options
        if key == "\r":
            chosen = sorted(self._chosen) or [self.selected_index]
            self._take_answer(", ".join(options[place].label for place in chosen))
        elif self._is_option_number(key):
            self.selected_index = int(key) - 1
            self._chosen ^= {self.selected_index} if self._current.takes_several else set()
        elif key == _TOGGLE:
            self._chosen ^= {self.selected_index}

    def submit_typed_text(self, text: str) -> None:
        """Take an answer that was typed; a number stands for its option."""
        typed = text.strip()
        if self._is_option_number(typed):
            typed = self._current.options[int(typed) - 1].label
        if typed:
            self._take_answer(typed)

    def _take_answer(self, text: str) -> None:
        self._answers[self._at] = text
        if self._at + 1 < len(self._questions):
            self._go_to(self._at + 1)
            return
        try:
            self._resolve([decide_with_answers(self.request, self._answers)])
        except UserError as error:
            self.problem = str(error)
            self._go_to(0)

    def _go_to(self, number: int) -> None:
        self._at, self.selected_index, self._chosen = number, 0, set()

    def go_back(self) -> None:
        """To the question before; from the first one: later."""
        if self._at:
            self._go_to(self._at - 1)
        else:
            self._resolve([])

    def close_as_decided_elsewhere(self) -> None:
        """Stop asking: it was decided elsewhere."""
        self.decided_elsewhere = True
        self._resolve([])

    def _resolve(self, decisions: list[Decision]) -> None:
        if not self.decided.done():
            self.decided.set_result(decisions)
