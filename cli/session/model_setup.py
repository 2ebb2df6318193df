"""model_setup: without a key or a model, asks for one, tries it with a real request, and stores it.

It prints plain lines, so it works in every terminal. Nothing is written until everything is known and has worked.
"""

import select
import signal
import sys
import termios
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from interlock.cli.driving import is_plain_terminal_or_screen_reader
from interlock.cli.terminal import set_terminal_attributes
from interlock.engine.client import Options, first_model
from interlock.state.errors import MissingPackageError, UserError
from interlock.state.names import GEMINI_KEYS, GEMINI_URL, TIERS
from interlock.state.text import did_you_mean, format_count, make_visible

if TYPE_CHECKING:
    from interlock.state.settings import Settings

_SIGNAL_S = 0.5
"""Seconds after which a signal that came just before a wait is heard."""


@contextmanager
def hide_and_keep_typed_input() -> Generator[None]:
    """Hide what is typed while nothing reads it, and keep it for the next question or prompt.

    Lasts until the process ends; before this, the terminal echoes. Where the cursor can't be moved, lines are typed
    in the terminal itself, and nothing is held.
    """
    if is_plain_terminal_or_screen_reader():
        yield
        return
    with _clear_terminal_flags(termios.ICRNL, termios.ECHO | termios.ICANON):  # Enter stays \r
        try:
            _store_typeahead_keys()
            yield
        except SystemExit:  # interrupted in a question: turn bracketed paste off and show the cursor
            print("\x1b[?2004l\x1b[?25h", end="", flush=True)
            raise


@contextmanager
def disable_plain_terminal_echo() -> Generator[None]:
    """Turn echo off where the terminal itself echoes lines. What was typed before isn't lost."""
    if not is_plain_terminal_or_screen_reader():
        yield
        return
    with _clear_terminal_flags(0, termios.ECHO):
        yield


@contextmanager
def _clear_terminal_flags(input_flags: int, local_flags: int) -> Generator[None]:
    """Clear these terminal flags. Ctrl-C still interrupts; SIGTERM restores the terminal first."""
    before, quiet = termios.tcgetattr(sys.stdin), termios.tcgetattr(sys.stdin)
    quiet[0] &= ~input_flags
    quiet[3] &= ~local_flags
    ends = signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        set_terminal_attributes(quiet)
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            set_terminal_attributes(before)
        signal.signal(signal.SIGTERM, ends)


def _exit_on_signal(number: int, _: object) -> None:
    sys.exit(128 + number)


def _store_typeahead_keys() -> None:
    """Keep what was typed before; the terminal had turned its Enters into newlines."""
    from prompt_toolkit.input import create_input
    from prompt_toolkit.input.typeahead import store_typeahead
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.keys import Keys

    enter, source = KeyPress(Keys.Enter, "\r"), create_input()
    while keys := source.read_keys():
        store_typeahead(source, [enter if key.key == Keys.ControlJ else key for key in keys])


T = TypeVar("T")
_WELCOME = "Welcome to Interlock. It needs a model to work with."
_MENU = """\

  1  Gemini, with a key from https://aistudio.google.com/apikey
  2  Claude, with a key from https://platform.claude.com/settings/keys
  3  GPT, with a key from https://platform.openai.com/api-keys
  4  OpenRouter, with a key from https://openrouter.ai/settings/keys
  5  A server that speaks OpenAI's protocol: Ollama, llama.cpp, vLLM, LM Studio
  6  DeepSeek, Fireworks, Groq, Mistral, Together or xAI, with a key

Azure, Bedrock and Vertex use a login of their own: see docs/models.md.
"""
_OTHERS = ("deepseek", "fireworks", "groq", "mistralai", "together", "xai")
_LOCAL = "http://localhost:11434/v1"
"""Ollama's address, unless another is set."""
_SHOWN = 20
_NO_KEY = "Paste the key, then press Enter; Ctrl-C leaves."


@dataclass(frozen=True)
class _ModelChoice:
    variables: dict[str, str] = field(default_factory=dict[str, str])
    model: str = "auto"


def ask_for_and_store_model(options: Options) -> None:
    """Ask until something works, then store it. Raises `KeyboardInterrupt` if the person leaves; nothing is stored."""
    print(_WELCOME)
    settings, env = first_model.load_settings_and_env(options)
    try:
        chosen = _choose_model_of_set_key_or_server(settings, env)
        if chosen is None:
            print(_MENU)
            chosen = _retry_until_valid(lambda: _ask_for_provider_and_model(settings, env), "\n\n")
    except (EOFError, KeyboardInterrupt):
        print(
            "\nNothing was stored. To continue: set a provider's key (interlock auth set PROVIDER, or GEMINI_API_KEY, "
            "ANTHROPIC_API_KEY or OPENAI_API_KEY in the environment), or pass -m PROVIDER:MODEL."
        )
        raise KeyboardInterrupt from None
    _store_choice(chosen, options.user_home)


def install_after_yes(package: str) -> None:
    """Show the command that installs a package, and run it if the person agrees. Raises `UserError` if it isn't
    installed then."""
    from interlock.engine.client.installation import install_command, install_packages

    command = install_command(package)
    print(f"This needs the package {package}, which isn't installed. Interlock would run:\n  {command}")
    answer = _read_until_valid("Install it? [Y/n] ", "y", lambda text: text.lower())
    if answer not in ("y", "yes"):
        raise UserError(f"Not installed. Install it yourself with: {command}")
    if problem := install_packages([package]):
        raise UserError(problem)


def offer_missing_package(package: str) -> None:
    """Ask whether to install a package. Without it, the session opens all the same, for another model."""
    try:
        install_after_yes(package)
    except UserError as problem:
        print(problem)


def _install_package_of_provider(provider: str) -> None:
    from interlock.services.models.names import require_package

    try:
        require_package(f"{provider}:any")
    except MissingPackageError as error:
        install_after_yes(error.package)


def _choose_model_of_set_key_or_server(settings: "Settings", env: Mapping[str, str]) -> _ModelChoice | None:
    """Ask only for the model if a key or an address is set; None: nothing is set, or what is set doesn't work."""
    from interlock.services.models.names import PROVIDERS, first_provider_with_key

    try:
        if url := env.get("OPENAI_BASE_URL"):
            print(f"OPENAI_BASE_URL names a server at {make_visible(url)}.")
            _install_package_of_provider("openai")
            key = env.get("OPENAI_API_KEY", "")
            return _ask_for_model_of_server(key, *first_model.find_base_url_and_models(url.rstrip("/"), key))
        provider = first_provider_with_key(env)
        if not provider or PROVIDERS[provider].needs:
            return None
        print(f"{PROVIDERS[provider].key} is set.")
        _install_package_of_provider(provider)
        models = first_model.list_provider_models(provider, env)
        return _ModelChoice(model=_ask_for_provider_model(provider, settings, models))
    except UserError as problem:
        print(problem)
        return None


def _ask_for_provider_and_model(settings: "Settings", env: Mapping[str, str]) -> _ModelChoice:
    return _WAYS[_read_until_valid("Which one? [1] ", "1", _make_choice_validator(*_WAYS))](settings, env)


def _retry_until_valid(work: Callable[[], T], end: str = "\n") -> T:
    """Repeat the work after each `UserError`, which is printed: what is wrong with what was typed, in one line."""
    while True:
        try:
            return work()
        except UserError as problem:
            print(problem, end=end)


def _read_line(question: str, hidden: bool = False) -> str:
    """Read a line, with anything typed before the question. `hidden`: shows stars, or nothing."""
    if is_plain_terminal_or_screen_reader():
        print(question, end="", flush=True)
        while not select.select([sys.stdin], [], [], _SIGNAL_S)[0]:
            pass  # `input` alone misses a signal that comes just before it reads
        line = input()
        print(end="\n" * hidden)
        return line
    from prompt_toolkit import PromptSession

    from interlock.cli.session.input_line import SessionInput
    from interlock.cli.session.terminal_output import BatchedOutput

    typed, shown = SessionInput(sys.stdin), BatchedOutput(sys.stdout)
    return PromptSession[str](input=typed, output=shown, is_password=hidden).prompt(question)


def _read_until_valid(prompt: str, default: str, check: Callable[[str], str]) -> str:
    return _retry_until_valid(lambda: check(_read_line(prompt).strip() or default))


def _make_choice_validator(*known: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in known:
            raise UserError(f"{text!r} is none of {', '.join(known)}.")
        return text

    return check


def _read_api_key(prompt: str) -> str:
    key = _read_line(prompt, hidden=True).strip().strip("'\"")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UserError("That isn't a key. Keys contain letters, digits and punctuation, and no spaces.")
    return key


def _ask_for_gemini_key_and_model(settings: "Settings", env: Mapping[str, str]) -> _ModelChoice:
    base = (env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL).rstrip("/")
    with disable_plain_terminal_echo():
        key, models = _retry_until_valid(lambda: _read_and_test_gemini_key(base, settings))
    model = _ask_for_model_alias_or_name(settings, models)
    elsewhere = {"GOOGLE_GEMINI_BASE_URL": base} if base != GEMINI_URL else {}  # the key belongs to it
    return _ModelChoice({GEMINI_KEYS[0]: key, **elsewhere}, model)


def _ask_for_model_alias_or_name(settings: "Settings", models: Sequence[str]) -> str:
    """Show the models of a vendor that has a large and a small one, and return which was chosen."""
    from interlock.services.models.names import resolve_model

    short = ("auto", *(alias for alias in settings.model.aliases if alias != "image"))
    print(f"It works. Models: {_format_names([*short, *models])}")

    def known(text: str) -> str:
        resolve_model(settings, text)
        return text

    return _read_until_valid("Model [auto: chosen for each prompt] ", "auto", known)


def _make_key_and_model_asker(provider: str) -> Callable[["Settings", Mapping[str, str]], _ModelChoice]:
    """Return what asks for the key of a provider, tries it and asks for a model."""

    def asks(settings: "Settings", env: Mapping[str, str]) -> _ModelChoice:
        from interlock.services.models.names import PROVIDERS

        _install_package_of_provider(provider)
        variable, address = PROVIDERS[provider].key, PROVIDERS[provider].url

        def tried() -> tuple[str, list[str]]:
            if not (key := _read_api_key("Key (hidden): ")):
                raise UserError(_NO_KEY)
            print("Trying it …")
            return key, first_model.list_provider_models(provider, {**env, variable: key})

        with disable_plain_terminal_echo():
            key, models = _retry_until_valid(tried)
        model = _ask_for_provider_model(provider, settings, models)
        elsewhere = {address: env[address]} if env.get(address) else {}  # the key belongs to it
        return _ModelChoice({variable: key, **elsewhere}, model)

    return asks


def _ask_for_provider_model(provider: str, settings: "Settings", models: Sequence[str]) -> str:
    """Return the model to store, as `model.name` takes it."""
    if provider in TIERS:
        return _ask_for_model_alias_or_name(settings, models)
    if provider != "openrouter":
        print("It works.")
        return f"{provider}:{_ask_for_listed_model(models)}"
    print(f"It works. {format_count(len(models), 'model')} {'is' if len(models) == 1 else 'are'} there.")
    example = "Model, such as anthropic/claude-sonnet-4.5: "
    return f"{provider}:{_read_until_valid(example, '', _make_known_model_validator(models))}"


def _ask_for_other_provider(settings: "Settings", env: Mapping[str, str]) -> _ModelChoice:
    provider = _read_until_valid(f"Provider ({', '.join(_OTHERS)}): ", "", _make_choice_validator(*_OTHERS))
    return _make_key_and_model_asker(provider)(settings, env)


def _make_known_model_validator(models: Sequence[str]) -> Callable[[str], str]:
    def check(text: str) -> str:
        if text not in models:
            raise UserError(f"No model {text!r}.{did_you_mean(text, models)} Give the name of one.")
        return text

    return check


def _read_and_test_gemini_key(base: str, settings: "Settings") -> tuple[str, list[str]]:
    """A working key, and the models it gives access to."""
    if not (key := _read_api_key("Key (hidden): ")):
        raise UserError(_NO_KEY)
    models = first_model.list_gemini_models(base, key)
    trial = first_model.pick_gemini_test_model(settings, models)
    print(f"Trying {trial} …")
    first_model.send_gemini_test_request(base, key, trial)
    return key, models


def _ask_for_openai_compatible_server(_settings: "Settings", env: Mapping[str, str]) -> _ModelChoice:
    _install_package_of_provider("openai")
    usual = env.get("OPENAI_BASE_URL") or _LOCAL

    def server() -> tuple[str, str, list[str]]:
        base = _read_line(f"Its address [{usual}] ").strip().rstrip("/") or usual
        base = base if "://" in base else f"http://{base}"
        with disable_plain_terminal_echo():
            key = _read_api_key("Key (hidden; leave empty if none is needed): ")
            return key, *first_model.find_base_url_and_models(base, key)

    return _ask_for_model_of_server(*_retry_until_valid(server))


def _ask_for_model_of_server(key: str, base: str, models: Sequence[str]) -> _ModelChoice:
    """Ask for a model of a server until one answers, and return what to store."""

    def answers() -> str:
        model = _ask_for_listed_model(models)
        print(f"Trying {make_visible(model)} …")
        first_model.send_openai_test_request(base, key, model)
        return model

    model = _retry_until_valid(answers)
    print("It works.")
    return _ModelChoice(
        {"OPENAI_BASE_URL": base, **({"OPENAI_API_KEY": key} if key else {})}, f"openai:{model}"
    )


_WAYS = {
    "1": _ask_for_gemini_key_and_model,
    "2": _make_key_and_model_asker("anthropic"),
    "3": _make_key_and_model_asker("openai"),
    "4": _make_key_and_model_asker("openrouter"),
    "5": _ask_for_openai_compatible_server,
    "6": _ask_for_other_provider,
}
"""Number in `_MENU` → what asks."""


def _ask_for_listed_model(models: Sequence[str]) -> str:
    for number, name in enumerate(models[:_SHOWN], 1):
        print(f"  {number:>2}  {make_visible(name)}")
    if len(models) > _SHOWN:
        print(f"      … and {len(models) - _SHOWN} more")

    def known(text: str) -> str:
        if text.isdecimal() and 0 < int(text) <= len(models):
            return models[int(text) - 1]
        if not text or (models and text not in models):
            raise UserError("Give the number or the name of one of them." if models else "Give its name.")
        return text

    first = models[0] if models else ""
    return _read_until_valid(f"Model [{make_visible(first)}] " if first else "Model: ", first, known)


def _store_choice(chosen: _ModelChoice, home: Path) -> None:
    first_model.store_model_and_keys(chosen.variables, chosen.model, home)
    key = "key" if any(name.endswith("KEY") for name in chosen.variables) else "address"
    stored = [f"the {key} in ~/.gemini/.env, readable only by you"] if chosen.variables else []
    stored += ["the model in ~/.interlock/settings.json"] if chosen.model != "auto" else []
    print(f"Stored: {'; '.join(stored)}.\n")


def _format_names(names: Sequence[str]) -> str:
    shown = list(dict.fromkeys(names))
    more = f", … ({len(shown) - _SHOWN} more)" if len(shown) > _SHOWN else ""
    return ", ".join(map(make_visible, shown[:_SHOWN])) + more
