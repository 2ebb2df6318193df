"""flags: flags of the commands that drive a run: gemini-cli's names, with Claude's and others' as synonyms."""

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.other_programs import APPROVAL_MODES
from interlock.cli.parsing import (
    Args,
    Parser,
    add_flag,
    choice_parser,
    number_parser,
    parse_duration_argument,
    parse_positive_number,
)
from interlock.engine.client import Options, resolve_state_directory
from interlock.state.errors import UserError
from interlock.state.names import DELIVERIES, GIT_QUEUE, OTHER_NAMES

if TYPE_CHECKING:
    from interlock.services.configuration import Configuration

FORMATS = ("text", "json", "stream-json")
MODE = choice_parser(
    ("default", "auto_edit", "plan", "yolo"),
    APPROVAL_MODES,
)
_LIMITS = ("max_turns", "max_session_turns", "max_tokens", "max_budget_usd", "timeout_s")
_MANY: Any = {"action": "append", "default": []}


def add_run_flags(parser: Parser, *, for_server: bool = False) -> None:
    """Add the flags of a run. `for_server`: of many runs, which others start, show and attach files to."""
    group = parser.add_argument_group("model and limits")
    add_flag(group, "-m --model MODEL", "auto, pro, flash, sonnet, gpt, an id, provider:model, script:FILE")
    efforts = choice_parser(("auto", "low", "medium", "high"))
    add_flag(group, "--effort LEVEL", "how much the model thinks: low, medium or high", type=efforts)
    add_flag(
        group, "--max-turns N", "limit model turns per prompt (default: 100)", type=number_parser(int, 0)
    )
    add_flag(
        group,
        "--max-session-turns N",
        "limit model turns across all prompts of the run",
        type=number_parser(int, -1),
    )
    add_flag(group, "--max-tokens N", "limit tokens over the whole run", type=number_parser(int, 1))
    add_flag(
        group,
        "--max-budget-usd USD",
        "limit cost over the whole run, in US dollars",
        type=parse_positive_number,
    )
    add_flag(
        group,
        "--timeout TIME",
        "limit running time: 90s, 15m, 2h",
        dest="timeout_s",
        type=parse_duration_argument,
    )
    add_flag(group, "--mode MODE", "mode of work: architect, code, ask, debug, … (interlock modes)")
    protocols = choice_parser(("auto", "native", "json", "xml"))
    add_flag(group, "--protocol NAME", "how the model calls tools: auto, native, json or xml", type=protocols)
    profiles = choice_parser(("auto", "full", "small"))
    add_flag(group, "--prompt-profile NAME", "auto, full or small (short prompt, six tools)", type=profiles)
    add_flag(group, "--check COMMAND", "end only when COMMAND succeeds; the model gets its errors")
    tests = choice_parser(("as-before", "may-change"))
    add_flag(group, "--check-tests HOW", "as-before (default) or may-change: changed tests count", type=tests)
    add_flag(group, "--no-loop-check", "don't stop a model that repeats itself")
    add_flag(group, "--record-responses FILE", "record the model's replies as a script", type=Path)
    add_flag(group, "--fake-responses FILE", "play back a recorded script instead of a model", type=Path)
    add_permission_flags(parser.add_argument_group("permissions"))
    group = parser.add_argument_group("context")
    add_flag(group, "-C --workspace --cd DIR", "work in DIR", type=Path)
    add_flag(group, "--include-directories --add-dir DIR", "let tools use DIR too", **_MANY)
    add_flag(group, "--ide-context FILE", "read open files and cursor from an editor's JSON file", type=Path)
    add_flag(group, "--system-prompt TEXT", "replace the built-in system prompt")
    add_flag(group, "--append-system-prompt TEXT", "add to the built-in system prompt")
    if for_server:
        parser.set_defaults(attach=[], detach=False, queue=None, repo=None, priority=None, deliver=None)
        parser.set_defaults(worktree=None)
        return
    in_worktree = "work in a git worktree on a branch of its own (interlock worktrees)"
    add_flag(group, "-w --worktree [NAME]", in_worktree, nargs="?", const="")
    add_flag(group, "--attach FILE", "attach an image, PDF or text file to the prompt", type=Path, **_MANY)
    _add_fleet_flags(parser.add_argument_group("fleet"))
    group = parser.add_argument_group("output")
    formats = choice_parser(FORMATS)
    add_flag(group, "-o --output-format FORMAT", "text, json or stream-json", type=formats)
    add_flag(group, "--verbose", "show thoughts and nodes (text)")


def _add_fleet_flags(group: Any) -> None:
    add_flag(group, "--detach", "let a worker drive the run; prints its id")
    add_flag(group, "--queue NAME", "let workers of this queue drive it (default: those of this host)")
    add_flag(group, "--repo URL[@REF]", "with --detach: let the worker clone this git repository")
    add_flag(
        group,
        "--priority N",
        "higher runs first: -100 to 100 (default: 0)",
        type=number_parser(int, -100, 100),
    )
    ways = choice_parser(DELIVERIES)
    add_flag(group, "--deliver HOW", "with --repo: branch (push interlock/RUN), patch or none", type=ways)


def add_permission_flags(group: Any) -> None:
    """Add the flags that decide whether a call needs approval."""
    add_flag(group, "--approval-mode --permission-mode MODE", "default, auto_edit, plan or yolo", type=MODE)
    add_flag(
        group, "-y --yolo --dangerously-skip-permissions", "approve everything; same as --approval-mode yolo"
    )
    add_flag(group, "--full-auto", argparse.SUPPRESS)
    tools = "run without asking: 'glob,run_shell_command(git status)'"
    add_flag(group, "--allowed-tools --allowedTools TOOLS", tools, **_MANY)
    add_flag(group, "--disallowed-tools --disallowedTools TOOLS", "deny these tools", **_MANY)
    add_flag(group, "--policy FILE", "add policy rules from a TOML file", type=Path, **_MANY)
    add_flag(group, "-s --sandbox", "run shell commands in a sandbox (Linux)")
    add_flag(group, "--skip-trust", "trust this folder's settings for this command only")


_TOOL_WORD = re.compile(r"([A-Za-z]\w*)(\(.*\))?", re.DOTALL)


def move_tools_from_words(args: argparse.Namespace) -> None:
    """Move further tools to the flag that was given: Claude Code takes `--allowedTools "Bash(git log:*)" Read Edit`.

    Raises `UserError` if it isn't clear which flag they belong to."""
    given = [tools for tools in (args.allowed_tools, args.disallowed_tools) if tools]
    found = [word for word in args.words if given and _is_tool(word)]
    if found and len(given) > 1:
        raise UserError(
            f"{found[0]!r} could be allowed or denied. Join tools with commas: --allowed-tools 'A,B'"
        )
    if found:
        given[0] += found
        args.words = [word for word in args.words if word not in found]


def _is_tool(word: str) -> bool:
    named = _TOOL_WORD.fullmatch(word)
    return named is not None and (named[1] in OTHER_NAMES or named[1].startswith("mcp__"))


def build_run_options(
    args: Args, env: Mapping[str, str] = os.environ, *, is_resumed: bool = False
) -> Options:
    """Options for a drive, from its flags; a resumed run keeps its workspace unless they name another.

    Raises `UserError` for flags that contradict each other.
    """
    allowed = build_permission_options(args)
    if args.no_loop_check:
        allowed["overrides"]["model"] = {"disableLoopDetection": True}
    if args.effort:
        allowed["overrides"].setdefault("model", {})["thinking"] = args.effort
    if args.check is not None and not args.check.strip():
        raise UserError("--check: no command. Give one that fails while work is left: --check 'make test'.")
    if args.worktree is not None and is_resumed:
        raise UserError(
            "--worktree is for a new run. One that goes on stays in its folder. Leave --worktree out."
        )
    more = [part.strip() for value in args.include_directories for part in value.split(",") if part.strip()]
    options = build_folder_options(
        args,
        env,
        model=args.model,
        approval_mode=_requested_approval_mode(args),
        mode=args.mode,
        protocol=args.protocol,
        prompt_profile=args.prompt_profile,
        check=args.check or "",
        check_tests=args.check_tests or "",
        include_directories=tuple(require_folder(Path(d), "--include-directories") for d in more),
        limits={name: vars(args)[name] for name in _LIMITS if vars(args)[name] is not None},
        record_to=Path(args.record_responses).absolute() if args.record_responses else None,
        fake=require_file(args.fake_responses, "--fake-responses") if args.fake_responses else None,
        system_prompt=args.system_prompt,
        append_system_prompt=args.append_system_prompt,
        sandbox=args.sandbox,
        ide_context=require_file(args.ide_context, "--ide-context") if args.ide_context else None,
        worktree=None if args.worktree is None else {"name": args.worktree},
        attach=tuple(require_file(p, "--attach") for p in args.attach),
        debug=args.debug,
        **_build_fleet_options(args, env),
        **allowed,
    )
    return (
        options
        if is_resumed or options.workspace or options.repository
        else replace(options, workspace=Path.cwd())
    )


def _build_fleet_options(args: Args, env: Mapping[str, str]) -> dict[str, Any]:
    """Options of a run that workers drive. Raises `UserError` for flags that need `--detach` or `--repo`."""
    is_detached = bool(args.detach or args.queue)
    if not is_detached and not args.repo and args.deliver is None and args.priority is None:
        return {}
    from interlock.engine.client.fleet import Fleet, parse_and_verify_repository_option, submission_options

    found: dict[str, Any] = {"moves_queue": bool(args.queue)}
    if is_detached:
        fleet = Fleet(resolve_state_directory(env))
        found["queue"] = args.queue or (GIT_QUEUE if args.repo else fleet.host_queue_name())
    if args.repo:
        found["repository"] = parse_and_verify_repository_option(args.repo, args.deliver or "patch")
    elif args.deliver:
        raise UserError("--deliver belongs to --repo: it says what becomes of the clone.")
    if is_detached:
        found["submitted"] = submission_options(resolve_state_directory(env), args.priority or 0, env=env)
    elif args.priority is not None:
        raise UserError("--priority is for runs that workers drive. Add --detach.")
    return found


def build_folder_options(args: Args, env: Mapping[str, str] = os.environ, **options: Any) -> Options:
    """Options with the folder named by flags, if any, and whether to skip its trust check."""
    return Options(
        door="terminal",
        home=resolve_state_directory(env),
        workspace=require_folder(args.workspace, "--workspace") if args.workspace else None,
        skip_trust=args.skip_trust,
        env=dict(env),
        **options,
    )


def load_folder_configuration(args: Args) -> "Configuration":
    """What configures runs in the folder named by flags."""
    from interlock.services.configuration import load_default_configuration

    root = Path(os.path.realpath(args.workspace or Path.cwd()))
    return load_default_configuration(root, trusted=args.skip_trust or None)


def build_permission_options(args: Args) -> dict[str, Any]:
    """Options that allow or deny calls, besides the mode."""
    denied = parse_tool_rule_flags(args.disallowed_tools)
    return {
        "allowed_tools": tuple(parse_tool_rule_flags(args.allowed_tools)),
        "overrides": {"tools": {"exclude": denied}} if denied else {},
        "policy_files": tuple(require_file(p, "--policy") for p in args.policy),
    }


def parse_tool_rule_flags(values: list[str]) -> list[str]:
    """`Bash(git log:*) Edit, glob` → our names; commas and spaces in parentheses belong to the rule."""
    return [_translate_tool_rule(m) for value in values for m in re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)]


def _translate_tool_rule(rule: str) -> str:
    name, bracket, rest = rule.partition("(")
    name = OTHER_NAMES.get(name, name)
    return f"{name}({rest.removesuffix(')').removesuffix(':*').removesuffix(' *')})" if bracket else name


def _requested_approval_mode(args: Args) -> str | None:
    asked = (args.approval_mode, "yolo" if args.yolo else "", "auto_edit" if args.full_auto else "")
    modes = sorted({mode for mode in asked if mode})
    if len(modes) > 1:
        raise UserError(f"The flags ask for {' and '.join(modes)} at once. Give one approval mode.")
    return modes[0] if modes else None


def require_file(path: Path, flag: str) -> Path:
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for names that are too long
        raise UserError(f"{flag}: no file {str(path)!r}. Give a path to a file that can be read.")
    return path.absolute()


def require_folder(path: Path, flag: str) -> Path:
    if not os.path.isdir(path.expanduser()):  # noqa: PTH112 - see above
        raise UserError(f"{flag}: no folder {str(path)!r}. Give a path to a folder that exists.")
    return path.expanduser().absolute()
