"""flags: the flags of everything that drives a run: gemini's names, and Claude's and others' as synonyms."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.cli.parsing import Parser, duration, later, number, one_of
from interlock.cli.tool_rules import tool_rules
from interlock.engine.options import Options
from interlock.engine.store.database import state_home
from interlock.state.errors import UserError

FORMATS = ("text", "json", "stream-json")
_MODES = ("default", "auto_edit", "plan", "yolo")
_MODE_SYNONYMS = {"autoEdit": "auto_edit", "acceptEdits": "auto_edit", "bypassPermissions": "yolo"}


def add_running_flags(parser: Parser) -> None:
    """Everything that `options_from` reads."""
    _model_flags(parser.add_argument_group("model and limits"))
    permission_flags(parser.add_argument_group("what needs asking"))
    _context_flags(parser.add_argument_group("context"))
    _output_flags(parser.add_argument_group("output"))
    _later_flags(parser)


def _model_flags(group: Any) -> None:
    group.add_argument("-m", "--model", help="auto, pro, flash, an id, provider:model or script:FILE")
    group.add_argument("--max-turns", type=number(int, 0), metavar="N", help="model turns per prompt (100)")
    group.add_argument(
        "--max-session-turns", type=number(int, -1), metavar="N", help="over all prompts of the run"
    )
    group.add_argument("--max-tokens", type=number(int, 1), metavar="N", help="tokens over the whole run")
    group.add_argument(
        "--max-budget-usd", type=number(float, 0), metavar="USD", help="money over the whole run"
    )
    group.add_argument("--timeout", type=duration, metavar="TIME", help="running time: 90s, 15m, 2h")
    group.add_argument(
        "--no-loop-check",
        action="store_true",
        help="let the model repeat itself (else: told once, then stopped)",
    )
    group.add_argument(
        "--record-responses", type=Path, metavar="FILE", help="write the model's replies as a script"
    )
    group.add_argument(
        "--fake-responses", type=Path, metavar="FILE", help="play such a script back, without a model"
    )


def permission_flags(group: Any) -> None:
    mode = one_of(_MODES, _MODE_SYNONYMS)
    group.add_argument(
        "--approval-mode",
        "--permission-mode",
        type=mode,
        metavar="MODE",
        help="default, auto_edit, plan or yolo",
    )
    group.add_argument(
        "-y",
        "--yolo",
        "--dangerously-skip-permissions",
        action="store_true",
        help="allow everything; same as MODE yolo",
    )
    group.add_argument("--full-auto", action="store_true", help=argparse.SUPPRESS)
    group.add_argument(
        "--allowed-tools",
        "--allowedTools",
        action="append",
        default=[],
        metavar="TOOLS",
        help="need no asking: 'glob,run_shell_command(git status)'",
    )
    group.add_argument(
        "--disallowed-tools",
        "--disallowedTools",
        action="append",
        default=[],
        metavar="TOOLS",
        help="are denied",
    )
    group.add_argument(
        "--policy", type=Path, action="append", default=[], metavar="FILE", help="policy rules (TOML)"
    )
    group.add_argument("-s", "--sandbox", action="store_true", help="shell commands in a sandbox (Linux)")
    group.add_argument("--skip-trust", action="store_true", help="trust this folder's settings, this once")


def _context_flags(group: Any) -> None:
    group.add_argument("-C", "--workspace", "--cd", type=Path, metavar="DIR", help="work in DIR")
    group.add_argument(
        "--include-directories",
        "--add-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="tools may use DIR too",
    )
    group.add_argument("--system-prompt", metavar="TEXT", help="instead of the built-in one")
    group.add_argument("--append-system-prompt", metavar="TEXT", help="after the built-in one")


def _output_flags(group: Any) -> None:
    group.add_argument(
        "-o",
        "--output-format",
        type=one_of(FORMATS),
        default="text",
        metavar="FORMAT",
        help="text, json, stream-json",
    )
    group.add_argument("--verbose", action="store_true", help="show thoughts and nodes (text)")


def _later_flags(parser: Parser) -> None:
    parser.add_argument(
        "--ide-context", action=later("--ide-context comes in a later version. Name files in the prompt")
    )
    parser.add_argument(
        "--store", action=later("--store comes in a later version. Choose a folder with INTERLOCK_HOME")
    )
    parser.add_argument("--mode", action=later("Modes come with the task loop, in a later version"))
    parser.add_argument("--protocol", action=later("--protocol comes with the task loop, in a later version"))
    parser.add_argument("-i", "--prompt-interactive", action=later(NO_SESSION))


NO_SESSION = "The interactive session comes in a later version. Give a prompt: interlock -p 'what to do'"


def options_from(
    args: argparse.Namespace, env: Mapping[str, str] = os.environ, *, resuming: bool = False
) -> Options:
    """What the flags say about a drive; a resumed run keeps its own workspace unless they name another.

    Raises `UserError` for flags that contradict each other.
    """
    names = {"max_turns": "max_turns", "max_session_turns": "max_session_turns", "max_tokens": "max_tokens"}
    names |= {"max_budget_usd": "max_budget_usd", "timeout": "timeout_s"}
    return Options(
        home=state_home(env),
        workspace=existing_folder(args.workspace, "--workspace")
        if args.workspace
        else None
        if resuming
        else Path.cwd(),
        model=args.model,
        approval_mode=_approval_mode(args),
        overrides=_overrides(args),
        include_directories=tuple(
            existing_folder(Path(d), "--include-directories") for d in _split(args.include_directories)
        ),
        allowed_tools=tuple(tool_rules(args.allowed_tools)),
        policy_files=tuple(existing_file(p, "--policy") for p in args.policy),
        limits={key: vars(args)[flag] for flag, key in names.items() if vars(args)[flag] is not None},
        record_to=Path(args.record_responses).absolute() if args.record_responses else None,
        fake=existing_file(args.fake_responses, "--fake-responses") if args.fake_responses else None,
        system_prompt=args.system_prompt,
        append_system_prompt=args.append_system_prompt,
        skip_trust=args.skip_trust,
        sandbox=args.sandbox,
        debug=args.debug,
        env=dict(env),
    )


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Settings that flags stand for."""
    found: dict[str, Any] = {}
    if denied := tool_rules(args.disallowed_tools):
        found["tools"] = {"exclude": denied}
    if args.no_loop_check:
        found["model"] = {"disableLoopDetection": True}
    return found


def _approval_mode(args: argparse.Namespace) -> str | None:
    asked = {args.approval_mode} if args.approval_mode else set[str]()
    asked |= {"yolo"} if args.yolo else set()
    asked |= {"auto_edit"} if args.full_auto else set()
    if len(asked) > 1:
        raise UserError(f"The flags ask for {' and '.join(sorted(asked))} at once. Give one approval mode.")
    return next(iter(asked), None)


def _split(values: list[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def existing_file(path: Path, flag: str) -> Path:
    if not path.is_file():
        raise UserError(f"{flag}: no file {str(path)!r}. Give a path to a file that can be read.")
    return path.absolute()


def existing_folder(path: Path, flag: str) -> Path:
    if not path.expanduser().is_dir():
        raise UserError(f"{flag}: no folder {str(path)!r}. Give a path to a folder that exists.")
    return path.expanduser().absolute()
