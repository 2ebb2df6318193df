"""mcp: lists MCP servers and what they offer; adds servers to settings and removes them."""

import asyncio
import os
import shlex
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interlock.cli.flags import MODE, build_folder_options, load_folder_configuration
from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    choice_parser,
    declare_arguments,
    flag_argument,
    number_parser,
)
from interlock.cli.render.output import (
    abbreviate_home,
    format_count,
    format_duration,
    print_json,
    print_table,
    print_warnings,
    remark_paint,
    result_paint,
    to_one_line,
)
from interlock.cli.suggestions import nearest_names_hint
from interlock.engine.client import PIPELINES, Client
from interlock.state.errors import UserError

_TRANSPORTS = {"stdio": "stdio", "sse": "sse", "http": "http", "streamable-http": "http"}


_FLAGS_OF_ADD = (
    *("--scope", "--transport", "--env", "--header"),
    *("--timeout", "--trust", "--include-tools", "--exclude-tools"),
)

JsonFields = Mapping[str, Any]


class _McpParser(Parser):
    def parse(self, arguments: Sequence[str]) -> Args:
        """Parse the words; flags after the command to be added belong to the server."""
        own, theirs = self._split_off_server_arguments(list(arguments))
        args = super().parse(own)
        args.args = [*args.args, *theirs]
        return args

    def _split_off_server_arguments(self, arguments: list[str]) -> tuple[list[str], list[str]]:
        """Return ours and the server's. What stands behind an address is ours: the server takes no arguments."""
        words, skip = 0, False
        for at, one in enumerate(arguments):
            if skip:
                skip = False
            elif one == "--":
                return [*arguments[:at], *arguments[at + 1 : at + 2]], arguments[at + 2 :]
            elif one.startswith("-") and one != "-":
                skip = self.flag_takes_value(one)
            else:
                words += 1
                if words == 3 and "add" in arguments[:at] and not _is_address(one):
                    self._refuse_flags_of_unclear_owner(arguments[at + 1 :])
                    return arguments[: at + 1], arguments[at + 1 :]
        return arguments, []

    def _refuse_flags_of_unclear_owner(self, theirs: list[str]) -> None:
        """Raise `UserError` for a long flag of ours behind the server's command: gemini-cli takes it as its own."""
        if ours := next((one for one in theirs if one.partition("=")[0] in _FLAGS_OF_ADD), None):
            raise UserError(
                f"{ours!r} stands behind the command. If it is for Interlock, write it before the server's name; "
                "if it is for the command, write `--` before the command."
            )


def _is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


@declare_arguments(
    argparse_argument(
        "action", nargs="?", default="list", metavar="list|test|add|remove|auth|serve", help="default: list"
    ),
    argparse_argument("name", nargs="?", metavar="NAME", help="server name; serve: workflow name"),
    argparse_argument(
        "target", nargs="?", metavar="COMMAND|URL", help="add: command or address of the server"
    ),
    argparse_argument("args", nargs="*", metavar="ARGS", help="add: arguments of the command"),
    flag_argument(
        "-s --scope project|user",
        "add, remove: settings file (default: project)",
        type=choice_parser(("project", "user")),
        default="project",
    ),
    flag_argument(
        "-t --transport stdio|sse|http",
        "add: transport (default: detected)",
        type=choice_parser(("stdio", "sse", "http"), _TRANSPORTS),
    ),
    flag_argument("-e --env NAME=VALUE", "add: variable; $NAME is expanded", action="append", default=[]),
    flag_argument("-H --header NAME:VALUE", "add: header; $NAME is expanded", action="append", default=[]),
    flag_argument(
        "--timeout MS", "add: time limit of a request, in milliseconds", type=number_parser(int, 1)
    ),
    flag_argument("--trust", "add: run the server's tools without asking"),
    flag_argument("--include-tools A,B", "add: use only these tools", action="append", default=[]),
    flag_argument("--exclude-tools A,B", "add: use all tools except these", action="append", default=[]),
    flag_argument("--forget", "auth: sign out and delete stored tokens"),
    flag_argument("-m --model MODEL", "serve: model of the workflows"),
    flag_argument("--approval-mode MODE", "serve: default, auto_edit, plan or yolo", type=MODE),
    Parser.add_json_flag,
    Parser.add_folder_flags,
    parser_type=_McpParser,
)
def mcp(args: Args) -> int | None:
    actions = {
        "list": _probe_and_print_servers,
        "test": _test_server,
        "add": _add_server,
        "remove": _remove_server,
        "auth": _sign_in_or_out,
        "serve": _serve_workflows,
    }
    if args.action not in actions:
        near = nearest_names_hint(args.action, [*actions]) or f" There are {', '.join(actions)}."
        raise UserError(f"No action {args.action!r}.{near} See: interlock mcp --help")
    return actions[args.action](args)


def _probe_servers(args: Args, server: str | None = None) -> list[dict[str, Any]]:
    from interlock.engine.client.mcp_check import McpCheck

    check = McpCheck(build_folder_options(args))
    try:
        return asyncio.run(check.probe_servers(server))
    finally:  # it may be why the server is missing
        print_warnings(check.warnings)


def _probe_and_print_servers(args: Args) -> int:
    views = _probe_servers(args)
    if args.json:
        print_json({"servers": views})
    elif not views:
        remark_paint().print_line("No MCP servers configured here. Add one: interlock mcp add --help")
    else:
        rows = [(v["name"], v["status"], *_server_summary_cells(v)) for v in views]
        print_table(rows, ("server", "is", "by", "offers"), flexible=(3,))
    return 1 if any(v["status"] == "failed" for v in views) else 0


def _server_summary_cells(view: JsonFields) -> tuple[str, str]:
    parts = [
        format_count(len(view[kind]), kind.removesuffix("s"))
        for kind in ("tools", "resources", "templates", "prompts")
        if view[kind]
    ]
    trusted = ["trusted"] if view["trust"] else []
    return view["transport"] or "", to_one_line(view["error"] or ", ".join([*parts, *trusted]))


def _test_server(args: Args) -> int:
    (view,) = _probe_servers(args, _require_server_name(args))
    if args.json:
        print_json(view)
    else:
        result_paint().print_lines(_server_detail_lines(view))
    return 0 if view["status"] == "connected" else 1


def _require_server_name(args: Args) -> str:
    if args.name is None:
        raise UserError(
            f"Name a server: interlock mcp {args.action} SERVER. List them with: interlock mcp list"
        )
    return args.name


def _server_detail_lines(view: JsonFields) -> Iterator[str]:
    about = f" ({to_one_line(view['version'])})" if view["version"] else ""
    yield f"{view['name']}{about}: {view['status']} after {format_duration(view['ms'] / 1000)}"
    if view["error"]:
        yield f"  {to_one_line(view['error'])}"
    yield from (f"  skipped: {to_one_line(line)}" for line in view["warnings"])
    if view["instructions"]:
        yield f"  instructions: {to_one_line(view['instructions'])}"
    for kind in ("tools", "resources", "templates", "prompts"):
        for item in view[kind]:
            parameters = f" {' '.join(item['args'])}" if item["args"] else ""
            yield f"  {kind[:-1]:<8}  {item['name']}{parameters}: {to_one_line(item['description'], 100)}"


def _add_server(args: Args) -> None:
    if args.target is None:
        raise UserError("Give a name and a command or address: interlock mcp add NAME COMMAND|URL [ARGS]")
    from interlock.engine.client.folder_contents import check_and_upsert_mcp_server

    file = _settings_file(args)
    took = (
        "replaced"
        if check_and_upsert_mcp_server(file, args.name, _build_server_settings(args), Path.cwd())
        else "added"
    )
    trusted = args.scope == "user" or load_folder_configuration(args).is_workspace_trusted
    then = f"Try it: interlock mcp test {shlex.quote(args.name)}"
    if not trusted:
        then = "This folder isn't trusted, so the server doesn't count yet. Trust it with: interlock trust"
    remark_paint().print_line(f"{args.name} {took} in {abbreviate_home(str(file))}. {then}")


def _build_server_settings(args: Args) -> dict[str, Any]:
    kind = args.transport or ("http" if _is_address(args.target) else "stdio")
    if kind == "stdio":
        made: dict[str, Any] = {"command": args.target, "args": args.args}
    elif args.args:
        raise UserError(f"Unexpected argument {args.args[0]!r}: a server behind an address takes none.")
    else:
        made = {"url": args.target} | ({"type": kind} if args.transport else {})
    made |= {"env": _parse_pairs(args.env, "=", "--env")} if args.env else {}
    made |= {"headers": _parse_pairs(args.header, ":", "--header")} if args.header else {}
    made |= {"timeout": args.timeout} if args.timeout else {}
    made |= {"trust": True} if args.trust else {}
    for key, values in (("includeTools", args.include_tools), ("excludeTools", args.exclude_tools)):
        names = [name.strip() for text in values for name in text.split(",") if name.strip()]
        made |= {key: names} if names else {}
    return made


def _parse_pairs(texts: Sequence[str], separator: str, flag: str) -> dict[str, str]:
    pairs = [text.partition(separator) for text in texts]
    if odd := next((text for text, found in zip(texts, pairs, strict=True) if not found[1]), None):
        raise UserError(f"{flag} {odd!r}: expected NAME{separator}VALUE.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def _remove_server(args: Args) -> None:
    from interlock.services.mcp import remove_server_from_settings

    remove_server_from_settings(file := _settings_file(args), _require_server_name(args))
    remark_paint().print_line(f"{args.name} removed from {abbreviate_home(str(file))}.")


def _sign_in_or_out(args: Args) -> None:
    from interlock.engine.client.mcp_check import McpCheck

    name = _require_server_name(args)
    check = McpCheck(build_folder_options(args))
    print_warnings(check.warnings)
    if args.forget:
        was = "Signed out of" if check.remove_tokens(name) else "Not signed in to"
        return remark_paint().print_line(f"{was} {name}.")
    asked: list[str] = []

    def show(address: str, paste: Callable[[str], str]) -> None:
        asked.append(address)
        _start_browser_sign_in(address, paste)

    tools = asyncio.run(check.sign_in_and_count_tools(name, show))
    signed = "Signed in to" if asked else "No sign-in is needed by"
    remark_paint().print_line(f"{signed} {name}: {format_count(tools, 'tool')}.")


def _start_browser_sign_in(address: str, submit_pasted_address: Callable[[str], str]) -> None:
    """Open a browser if there is a screen. One on another machine can't redirect here, so its address can be pasted."""
    remark_paint().print_lines(["Sign in with a browser at:", f"  {address}"])
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    if sys.stdin.isatty():
        remark_paint().print_line(
            "If the browser is on another machine, it ends on an unreachable page. Paste the address of that page here."
        )
        asyncio.get_running_loop().add_reader(
            sys.stdin, lambda: print(submit_pasted_address(sys.stdin.readline()), end="", file=sys.stderr)
        )


def _serve_workflows(args: Args) -> None:
    from interlock.services.mcp import import_mcp_sdk

    import_mcp_sdk()
    from interlock.cli.mcp_server import serve_mcp, workflows_by_tool_name

    named = [name for name in (args.name, args.target, *args.args) if name is not None]
    client = Client(build_folder_options(args, model=args.model, approval_mode=args.approval_mode))
    asyncio.run(
        serve_mcp(workflows_by_tool_name([client.load_workflow(name) for name in named or PIPELINES]), client)
    )


def _settings_file(args: Args) -> Path:
    folder = Path.home() if args.scope == "user" else args.workspace or Path.cwd()
    return folder / ".interlock" / "settings.json"
