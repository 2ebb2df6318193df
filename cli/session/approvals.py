"""approvals: what waits for the person is asked inline: the request above, its keys in place of the prompt."""

import asyncio
import io
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from interlock.cli.decisions import KEYS, OUTCOMES, answer, answered, answers_wanted, new_arguments, offered
from interlock.cli.render.output import Paint, one_line
from interlock.cli.render.pending import PLAN_REVIEW, PREVIEW_LINES, question
from interlock.engine.options import Decision
from interlock.state.errors import UserError

Fields = Mapping[str, Any]
HandedOver = Callable[[Callable[[], Any]], Awaitable[Any]]
_LATER = "later"
_HELD = "\N{NO-BREAK SPACE}"


def shown(run: str, request: Fields, count: str, color: bool) -> str:
    """The request as lines for the terminal; of control characters only our colours are in them. Without a plan."""
    request = {**request, "preview": ""} if plan_of(request) else request
    text = io.StringIO()
    paint = Paint(text) if not color else _Colored(text)
    paint.print_all(["", *question(run, request, count, paint, PREVIEW_LINES)])
    return text.getvalue().strip("\n")


def plan_of(request: Fields) -> str:
    """The Markdown that is reviewed; empty: it is no plan."""
    return str(request["preview"]) if request["tool_name"] == PLAN_REVIEW else ""


class _Colored(Paint):
    def __init__(self, stream: io.StringIO) -> None:
        super().__init__(stream)
        self.on = True


class Panel:
    """One request that is being decided: keys, or a line of text that the prompt's buffer takes."""

    def __init__(self, request: Fields, handed_over: HandedOver) -> None:
        self.request, self._handed_over = request, handed_over
        self.keys = _keys(request)
        self.asks_for = ""
        """What the line of text is; empty: a key is waited for."""
        self.problem = ""
        self.elsewhere = False
        """Somebody else has decided it."""
        self._texts: list[str] = []
        self.decided: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()
        """None: later."""
        if request["kind"] == "question":
            self.asks_for = answers_wanted(request)[0]

    def hint(self, columns: int) -> str:
        """The keys, or what to type; a line ends between two of them."""
        if self.asks_for:
            later = "" if self.asks_for.startswith("why") else ", Esc later"
            return f"{self.asks_for} (Enter{later})"
        keys = "  ".join(f"[{key}] {what}".replace(" ", _HELD) for key, what in self.keys.items())
        return textwrap.fill(keys, columns, break_on_hyphens=False).replace(_HELD, " ")

    async def press(self, key: str) -> None:
        """One of the keys."""
        self.problem = ""
        name = self.request["id"]
        if key == "l":
            self._end(None)
        elif self.request["kind"] == "outcome":
            self._end(answer(self.request, OUTCOMES[key]))
        elif key == "e":
            await self._edit()
        elif key == "n":
            self.asks_for = "why not? (Enter alone: no reason)"
        else:
            self._end(Decision(name, offered(self.request)[key]))

    def say(self, text: str) -> None:
        """The line of text: a reason, or an answer."""
        self.problem = ""
        if self.request["kind"] != "question":
            self._end(Decision(self.request["id"], "reject", feedback=text.strip() or None))
            return
        if not text.strip():
            return
        self._texts.append(text.strip())
        wanted = answers_wanted(self.request)
        if len(self._texts) < len(wanted):
            self.asks_for = wanted[len(self._texts)]
            return
        try:
            self._end(answered(self.request, self._texts))
        except UserError as error:
            self._texts.clear()
            self.problem, self.asks_for = str(error), wanted[0]

    def back(self) -> None:
        """From a reason to the keys; from anything else: later."""
        if self.asks_for and self.request["kind"] != "question":
            self.asks_for = ""
        else:
            self._end(None)

    def withdraw(self) -> None:
        """Nothing is asked any more."""
        self.elsewhere = True
        self._end(None)

    async def _edit(self) -> None:
        try:
            args = await self._handed_over(lambda: new_arguments(self.request))
        except UserError as error:
            self.problem = str(error)
            return
        self._end(Decision(self.request["id"], "modify", args=args))

    def _end(self, decision: Decision | None) -> None:
        if not self.decided.done():
            self.decided.set_result(decision)


def _keys(request: Fields) -> dict[str, str]:
    if request["kind"] == "outcome":
        found = {"r": "redo: run it again", "s": "skip: leave it"}
    else:
        found = {key: KEYS[key] for key in offered(request)}
    return {**found, "l": _LATER}


def spoken(request: Fields, decision: Decision) -> str:
    """What the person said, on one line."""
    if decision.text is not None:
        said = decision.text
    elif decision.choice == "reject":
        said = f"no: {decision.feedback}" if decision.feedback else "no"
    else:
        key = next((key for key, choice in offered(request).items() if choice == decision.choice), "")
        said = KEYS.get(key, decision.choice)
    return f"▸ {one_line(said, 200)}"
