"""folder: a folder's trust (whether its own settings count) and its memory files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.inputs import ask_to_confirm
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.output import (
    abbreviate_home,
    print_json,
    print_table,
    print_warnings,
    remark_paint,
    result_paint,
    to_one_line,
)
from interlock.state.errors import UserError
from interlock.state.text import estimate_tokens, make_visible

if TYPE_CHECKING:
    from interlock.engine.client.folder_contents import ProjectFile
    from interlock.services.trust.decisions import TrustDecision


@declare_arguments(
    argparse_argument("folder", nargs="?", default=".", metavar="DIR", help="default: this folder"),
    flag_argument("--yes", "trust without asking; required without a terminal"),
    flag_argument("--parent", "trust the parent folder and everything in it"),
    flag_argument("--untrust", "stop trusting the folder"),
    flag_argument("--list", "list all decisions"),
    Parser.add_json_flag,
)
def trust(args: Args) -> int | None:
    from interlock.engine.client.folder_contents import list_files_to_trust
    from interlock.services.trust.decisions import (
        find_trust_decision,
        read_trust_decisions,
        record_trust_decision,
    )

    home = Path.home()
    if args.list:
        _show_trust_decisions(read_trust_decisions(home), args.json)
        return None
    root = _folder_to_trust(args)
    known = find_trust_decision(root, home)
    files = list_files_to_trust(root)
    wanted = not args.untrust
    same = known is not None and known.trusted == wanted
    if not args.json:
        _show_files_needing_trust(root, files)
    if not same and (args.untrust or args.yes or _confirm_trust(root)):
        record_trust_decision(root, home, trusted=wanted)
        known = find_trust_decision(root, home)
    if args.json:
        print_json(_trust_fields(root, known, files))
    trusted = known is not None and known.trusted
    if not args.json or trusted != wanted:
        _report_trust(root, known, wanted)
    return 0 if trusted == wanted or not wanted else 1


def _folder_to_trust(args: Args) -> Path:
    folder = Path(args.folder).expanduser()
    if not folder.is_dir():
        raise UserError(f"No folder {args.folder!r}. Give a path to a folder that exists.")
    real = Path(os.path.realpath(folder))
    return real.parent if args.parent else real


def _confirm_trust(root: Path) -> bool:
    nobody = f"Trusting {str(root)!r} needs a person, and there is no terminal. Use: interlock trust --yes"
    return ask_to_confirm(f"Trust {abbreviate_home(str(root))} and everything below it?", nobody)


def _show_files_needing_trust(root: Path, files: "list[ProjectFile]") -> None:
    paint = result_paint()
    if not files:
        paint.print_line(f"{abbreviate_home(str(root))} contains nothing that needs trust.")
        return
    paint.print_line(f"{abbreviate_home(str(root))} contains:")
    for file in files:
        paint.print_line(f"  {paint(to_one_line(file.display_path(root)), 'bold')}")
        for line in file.runs:
            paint.print_line(f"    {to_one_line(line)}")


def _report_trust(root: Path, decision: "TrustDecision | None", should_trust: bool) -> None:
    """Print the current trust, and what to do if it isn't what was wanted."""
    from interlock.services.trust.decisions import TRUST_FILE

    by = f", by {abbreviate_home(str(decision.source))}" if decision else ""
    trusted = decision is not None and decision.trusted
    state = "trusted" if trusted else "not trusted"
    where = (
        f" with {abbreviate_home(str(decision.directory))}"
        if decision and decision.directory not in (None, root)
        else ""
    )
    hint = ""
    if trusted != should_trust:
        hint = " Nothing was changed." if should_trust else f" Change it there, or see ~/{TRUST_FILE}."
    remark_paint().print_line(f"{abbreviate_home(str(root))} is {state}{where}{by}.{hint}")


def _trust_fields(root: Path, decision: "TrustDecision | None", files: "list[ProjectFile]") -> dict[str, Any]:
    return {
        "folder": str(root),
        "trusted": decision is not None and decision.trusted,
        "by": {"folder": str(decision.directory or "/"), "file": str(decision.source)} if decision else None,
        "files": [{"path": str(file.path), "runs": list(file.runs)} for file in files],
    }


def _show_trust_decisions(decisions: "list[TrustDecision]", as_json: bool) -> None:
    if as_json:
        return print_json(
            [{"folder": str(a.directory), "trusted": a.trusted, "file": str(a.source)} for a in decisions]
        )
    if not decisions:
        return remark_paint().print_line("No decisions yet. Decide on a folder with: interlock trust DIR")
    words = {True: "trusted", False: "untrusted"}
    rows = [
        (abbreviate_home(str(a.directory)), words[a.trusted], abbreviate_home(str(a.source)))
        for a in decisions
    ]
    print_table(rows, ("folder", "is", "decided in"))


@declare_arguments(
    argparse_argument("action", nargs="?", default="show", metavar="show|add|refresh"),
    argparse_argument("text", nargs="*", metavar="TEXT", help="add: the line to add"),
    flag_argument("--global", "add: use your own file, for every folder"),
    flag_argument("-C --workspace DIR", "use folder DIR", type=Path),
    flag_argument("--json", "print JSON"),
)
def memory(args: Args) -> int | None:
    if args.action not in ("show", "add", "refresh"):
        raise UserError(f"No action {args.action!r}. Expected: interlock memory show, add or refresh")
    if (args.action == "add") != bool("".join(args.text).strip()):
        raise UserError(
            "Only add takes a TEXT, and needs one: interlock memory add 'Tests run with make test'"
        )
    root = Path(os.path.realpath(args.workspace or Path.cwd()))
    return _add_memory(args, root) if args.action == "add" else _show_memory(args, root)


def _show_memory(args: Args, root: Path) -> None:
    from interlock.engine.client.folder_contents import load_memory_files

    files, warnings = load_memory_files(root)
    print_warnings(warnings)
    if args.json:
        return print_json([{"path": str(f.path), "level": f.level, "text": f.text} for f in files])
    if not files:
        nothing = (
            f"No memory file applies in {root}. Add a line with: interlock memory add 'what to remember'"
        )
        return remark_paint().print_line(nothing)
    rows = [(make_visible(str(f.path)), f.level, f"{estimate_tokens(f.text):,}") for f in files]
    print_table(rows, ("file", "level", "tokens"))
    if args.action == "show":
        for file in files:
            result_paint().print_line(
                f"\n--- {make_visible(str(file.path))} ---\n{make_visible(file.text)}", keep_newlines=True
            )


def _add_memory(args: Args, root: Path) -> None:
    from interlock.engine.client.folder_contents import add_memory_line, load_memory_files

    for_all_folders = vars(args)["global"]
    file, is_new = add_memory_line(root, " ".join(args.text), for_all_folders=for_all_folders)
    result_paint().print_line(f"{'Added' if is_new else 'Already there'}: {file}")
    if not for_all_folders:
        print_warnings(load_memory_files(root)[1])
