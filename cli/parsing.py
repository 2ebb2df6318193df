"""parsing: argparse with Interlock's manners: one-line errors that name the nearest flag or value."""

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from interlock.cli import other_programs
from interlock.cli.render.output import result_paint
from interlock.cli.suggestions import nearest_names_hint
from interlock.state.errors import UserError
from interlock.state.text import parse_duration

_CHOICES = re.compile(r"^[a-z]+(\|[a-z]+)+: ")
"""The name of an argument that is written as its choices, which the message lists."""
Args = argparse.Namespace


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """One line per flag: its short name, first long name and value; synonyms work but aren't shown."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings:
            return super()._format_action_invocation(action)
        if isinstance(action, argparse.BooleanOptionalAction):
            return f"--[no-]{action.option_strings[0][2:]}"
        short = next((o for o in action.option_strings if not o.startswith("--")), None)
        long = next((o for o in action.option_strings if o.startswith("--")), None)
        value = "" if action.nargs == 0 else " " + self._format_args(action, (action.dest or "").upper())
        return ", ".join(filter(None, [short, long])) + value


class _SetStore(argparse.Action):
    """Sets the store's variable for this command."""

    def __call__(self, *given: Any, **_named: Any) -> None:
        values: str = given[2]
        os.environ["INTERLOCK_STORE"] = values


class Parser(argparse.ArgumentParser):
    """A command's parser. What its help says besides the arguments is a page in `help_folder`."""

    help_folder = Path(__file__).parent / "help"

    def __init__(self, name: str) -> None:
        super().__init__(prog=f"interlock {name}".strip(), formatter_class=_Formatter, allow_abbrev=False)
        self._positionals.title = "arguments"
        self.add_argument("-d", "--debug", action="store_true", help="show tracebacks")
        if name != "doctor":  # which has a flag of this name
            self.add_argument("--store", metavar="URL", action=_SetStore, help=argparse.SUPPRESS)

    def add_run_argument(self) -> None:
        self.add_argument("run", metavar="RUN", help="run id, an unambiguous prefix, or latest")

    def add_required_step_flag(self) -> None:
        add_flag(
            self,
            "--at STEP",
            "step number, from: interlock history RUN",
            type=number_parser(int, -1),
            required=True,
        )

    def add_call_flag(self) -> None:
        add_flag(self, "--call ID", "call number or id, from: interlock show RUN --calls")

    def add_folder_flags(self) -> None:
        add_flag(self, "-C --workspace --cd DIR", "use folder DIR", type=Path)
        add_flag(self, "--skip-trust", "trust this folder for this command only")

    def add_json_flag(self) -> None:
        add_flag(self, "--json", "print JSON")

    def format_usage(self) -> str:
        """Empty: argparse asks before it parses, and lists every flag. Errors name the help instead."""
        return ""

    def format_help(self) -> str:
        self.usage = self.usage or f"{self.prog} [FLAGS]"  # of another package's command without a page
        page = self.help_folder / f"{self.prog.removeprefix('interlock ').replace(' ', '-')}.txt"
        if self.description is None and page.exists():
            usage, text = page.read_text("utf-8").split("\n\n", 1)
            self.usage = f"{self.prog} {usage}".strip()
            self.description, mark, examples = text.rstrip().partition("\n\nexamples:\n")
            self.epilog = f"{mark}{examples}".strip() or None
        return super().format_help()

    def _print_message(self, message: str, file: object = None) -> None:  # noqa: ARG002 - as argparse's
        result_paint().print_line(message.rstrip("\n"), keep_newlines=True)

    def add_dynamic_flags(self, words: Sequence[str]) -> None:
        """Add flags that these words make available."""

    def error(self, message: str) -> NoReturn:
        text = _CHOICES.sub("", message.removeprefix("argument "))
        if text.startswith("the "):
            text = f"T{text[1:]}"
        raise UserError(f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} See: {self.prog} --help")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse flags and words in any order. Raises `UserError` for unknown ones, naming the nearest flag."""
        parsed, extra = self.parse_known_intermixed_args(list(arguments))
        if extra:
            self._raise_unexpected_argument(extra[0])
        return parsed

    def _raise_unexpected_argument(self, word: str) -> NoReturn:
        flag = word.partition("=")[0]
        if hint := other_programs.FLAGS.get(flag):
            raise UserError(f"No flag {flag!r}. {hint}")
        if flag.startswith("-"):
            raise UserError(
                f"No flag {flag!r}.{nearest_names_hint(flag, self.visible_flag_names())} See: {self.prog} --help"
            )
        takes_words = not all(action.option_strings for action in self._actions)
        quote = " Quote text that contains spaces." if takes_words else ""
        raise UserError(f"Unexpected argument {word!r}.{quote} See: {self.prog} --help")

    def visible_flag_names(self) -> list[str]:
        return [o for a in self._actions if a.help != argparse.SUPPRESS for o in a.option_strings]

    def visible_flags_with_help(self) -> list[tuple[str, str]]:
        """The flags shown in help, each with its text."""
        shown = [a for a in self._actions if a.option_strings and a.help != argparse.SUPPRESS]
        long = [(next((o for o in a.option_strings if o.startswith("--")), ""), a) for a in shown]
        return [(name or a.option_strings[0], (a.help or "").replace("%%", "%")) for name, a in long]

    def flag_takes_value(self, flag: str) -> bool:
        """Whether the word after `flag` is its value."""
        action = self.find_flag_action(flag)
        return action is not None and action.nargs != 0

    def find_flag_action(self, flag: str) -> argparse.Action | None:
        return self._option_string_actions.get(flag)

    def find_next_argument(self, words_before: Sequence[str]) -> tuple[argparse.Action | None, list[str]]:
        """The argument that the next word is a value of (None: nothing more fits), and the positional words so far."""
        words: list[str] = []
        rest = iter(words_before)
        for word in rest:
            if word == "--":
                words += rest
            elif not word.startswith("-") or word == "-":
                words.append(word)
            elif self.flag_takes_value(word) and next(rest, None) is None:
                return self.find_flag_action(word), words
        left = len(words)
        for action in self._actions:
            if not action.option_strings:
                if not left or action.nargs in ("*", "+"):
                    return action, words[len(words) - left :] if action.nargs == "*" else words
                left -= 1
        return None, words


def add_flag(group: Any, spec: str, help: str, **options: Any) -> None:
    """Add a flag to a parser or group, written as help shows it: `-m --model NAME`.

    Without a value's name it is a switch; `options` is passed to argparse.
    """
    *flags, last = spec.split(" ")
    if last.startswith("-"):
        group.add_argument(*flags, last, help=help, **{"action": "store_true", **options})
    else:
        group.add_argument(*flags, metavar=last, help=help, **options)


ArgumentAdder = Callable[[Any], object]
"""Adds some of a command's arguments to its parser, or to a group of it."""
F = TypeVar("F", bound=Callable[..., object])


def declare_arguments(*adders: ArgumentAdder, parser_type: type[Parser] = Parser) -> Callable[[F], F]:
    """Declare a command's arguments where it is defined; `catalog.build_parser` makes the parser."""

    def mark(function: F) -> F:
        setattr(function, "takes", (parser_type, adders))  # noqa: B010 - a function has no such attribute
        return function

    return mark


def flag_argument(spec: str, help: str, **options: Any) -> ArgumentAdder:
    """Declare a flag, written as for `add_flag`."""
    return lambda to: add_flag(to, spec, help, **options)


def argparse_argument(*names: str, **options: Any) -> ArgumentAdder:
    """Declare an argument without a flag, or any that `flag_argument` can't say; passed to argparse as it is."""
    return lambda to: to.add_argument(*names, **options)


def choice_argument(name: str, *choices: str, **options: Any) -> ArgumentAdder:
    """Declare a word that is one of these."""
    return argparse_argument(name, type=choice_parser(choices), metavar="|".join(choices), **options)


def exclusive_arguments(*adders: ArgumentAdder, required: bool = False) -> ArgumentAdder:
    """Declare flags of which one at most is given."""

    def add(made: Parser) -> None:
        group = made.add_mutually_exclusive_group(required=required)
        for part in adders:
            part(group)

    return add


class ChoiceParser:
    """An argument type: one of `values`, or a synonym of one."""

    def __init__(self, values: Sequence[str], synonyms: Mapping[str, str]) -> None:
        self.values = values
        self._known = {**{v: v for v in values}, **synonyms}

    def __call__(self, text: str) -> str:
        if text in self._known:
            return self._known[text]
        near = nearest_names_hint(text, list(self.values))
        raise argparse.ArgumentTypeError(f"{text!r} isn't one of {', '.join(self.values)}.{near}".rstrip("."))


def choice_parser(values: Sequence[str], synonyms: Mapping[str, str] | None = None) -> ChoiceParser:
    return ChoiceParser(values, synonyms or {})


def parse_positive_number(text: str) -> float:
    """Parse a number above 0, as an argument's type."""
    value = number_parser(float, 0)(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number above 0")
    return value


def number_parser(
    number_type: type[int] | type[float], minimum: float | None = None, maximum: float | None = None
) -> Callable[[str], Any]:
    """Return an argument's type: a number, of at least `minimum` and at most `maximum` if these are given."""
    what = "a whole number" if number_type is int else "a number"
    if minimum is not None:
        what += f" of {minimum:g} or more" if maximum is None else f" of {minimum:g} to {maximum:g}"

    def read(text: str) -> int | float:
        with suppress(ValueError):
            value = number_type(text)
            if (minimum is None or value >= minimum) and (maximum is None or value <= maximum):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} isn't {what}")

    return read


def parse_duration_argument(text: str) -> float:
    """Parse `90`, `90s`, `15m` or `2h` into seconds, as an argument's type."""
    seconds = parse_duration(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a duration such as 90s, 15m or 2h")
    return seconds


_AGE = re.compile(r"(\d+)([dh])")


def parse_since_time(text: str | None) -> float:
    """Return the Unix time, in seconds, of a date or an age; 0 for none. Raises `UserError`."""
    if not text:
        return 0.0
    if age := _AGE.fullmatch(text):
        return time.time() - int(age[1]) * (86400 if age[2] == "d" else 3600)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UserError(
            f"--since {text!r}: expected a date like 2026-11-24, or an age like 7d or 12h."
        ) from None
