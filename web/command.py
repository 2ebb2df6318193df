"""command: `interlock serve`: the page for this user's runs, on loopback, and the tokens of its API."""

import re
import sys
from argparse import ArgumentTypeError
from dataclasses import replace
from functools import partial

from interlock.cli.flags import add_run_flags, build_run_options
from interlock.cli.parsing import Args, argparse_argument, declare_arguments, flag_argument, number_parser
from interlock.cli.render.output import result_paint
from interlock.engine.client import Client, resolve_state_directory
from interlock.state.errors import UserError

_READ_ONLY = "The server was started with --read-only."


def _parse_origin(text: str) -> str:
    """Return a site as browsers name it. Raises `ArgumentTypeError`."""
    if not re.fullmatch(r"https?://[\w.\-\[\]:]+", text):
        raise ArgumentTypeError(f"{text!r} isn't an origin. Expected one like http://localhost:3000")
    return text.lower()


@declare_arguments(
    argparse_argument("words", nargs="*", metavar="token", help="manage tokens of programs"),
    flag_argument("--port N", "port (default: 4280)", type=number_parser(int, 0, 65_535), default=4280),
    flag_argument("--open", "open the page in a browser"),
    flag_argument("--read-only", "refuse everything that changes a run"),
    flag_argument("--trusted-proxy HOST", "also answer for HOST: an HTTPS proxy here that signs people in"),
    flag_argument("--user-header NAME", "the proxy's header with the name", default="X-Forwarded-User"),
    flag_argument(
        "--allow-origin ORIGIN",
        "let this other site's scripts use the API with a token (repeatable)",
        action="append",
        default=[],
        type=_parse_origin,
    ),
    flag_argument("--role ROLE", "with token new: view, decide or drive (default: view)", default="view"),
    partial(add_run_flags, for_server=True),
    flag_argument("--queue NAME", "let workers drive runs, in the queue of this name"),
)
def serve(args: Args) -> int | None:
    if args.words:
        return _manage_tokens(args)
    from interlock.engine.client.fleet import is_store_on_server
    from interlock.web.app import serve_page
    from interlock.web.guard import Access, Proxy

    args.detach = args.detach or is_store_on_server(resolve_state_directory())
    proxy = Proxy(args.trusted_proxy, args.user_header) if args.trusted_proxy else None
    options = replace(build_run_options(args), interactive=True, door="page", serves_others=True)
    only_reads = _READ_ONLY if args.read_only else Client(options).read_only_reason
    return serve_page(options, Access(args.port, only_reads, proxy, args.allow_origin), args.open)


def _manage_tokens(args: Args) -> None:
    from interlock.web.guard import Tokens
    from interlock.web.roles import ROLES

    tokens, words = Tokens(resolve_state_directory()), list(args.words)
    if words == ["token", "list"]:
        for name, kept in tokens.list_active_program_tokens().items():
            result_paint().print_line(f"{name}  {kept['role']}")
    elif words[:2] == ["token", "new"] and len(words) == 3:
        if args.role not in ROLES:
            raise UserError(f"No role {args.role!r}. Expected one of {', '.join(ROLES)}.")
        sys.stdout.write(tokens.create_or_replace_program_token(words[2], args.role) + "\n")
    elif words[:2] == ["token", "rm"] and len(words) == 3:
        if not tokens.revoke_program_token(words[2]):
            raise UserError(f"No token {words[2]!r}. List them with: interlock serve token list")
    else:
        raise UserError(
            f"Unexpected {' '.join(words)!r}. Expected: interlock serve token new NAME, token rm NAME or token list"
        )
