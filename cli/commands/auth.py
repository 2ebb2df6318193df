"""auth: shows, tests, changes and removes keys and servers of every provider."""

import sys
from contextlib import nullcontext
from getpass import getpass

from interlock.cli.flags import build_folder_options
from interlock.cli.parsing import (
    Args,
    Parser,
    argparse_argument,
    choice_argument,
    declare_arguments,
    flag_argument,
)
from interlock.cli.render.output import print_json, print_table, remark_paint, result_paint
from interlock.cli.terminal import enter_mode_in_foreground
from interlock.engine.client import Options
from interlock.state.errors import UserError
from interlock.state.text import format_count, join_up_to, make_visible

_NAMED = 5


@declare_arguments(
    choice_argument("what", "list", "test", "set", "remove", nargs="?", default="list"),
    argparse_argument("provider", nargs="?", metavar="PROVIDER", default=""),
    flag_argument("--url URL", "with set: the server's address", default=""),
    Parser.add_folder_flags,
    Parser.add_json_flag,
)
def auth(args: Args) -> int | None:
    options = build_folder_options(args)
    if args.what == "list":
        return _print_providers(options, args.json)
    if args.what == "test":
        return _test_one_or_all_providers(options, args.provider, args.json)
    if not args.provider:
        raise UserError(f"`auth {args.what}` takes a provider. List them: interlock auth")
    return (
        _ask_test_and_store_credentials(options, args.provider, args.url)
        if args.what == "set"
        else _remove_credentials(options, args.provider)
    )


def _print_providers(options: Options, as_json: bool) -> None:
    from interlock.engine.client.credentials import list_credentials

    found = list_credentials(options)
    if as_json:
        return print_json([one._asdict() for one in found])
    rows = [
        (one.provider, one.key or "—", one.url, one.source or ("" if one.installed else "not installed"))
        for one in found
    ]
    print_table(rows, ("provider", "key", "server", "from"), flexible=(2, 3))
    if not any(one.key or one.url for one in found):
        remark_paint().print_line("No key and no server is set. Set one: interlock auth set PROVIDER")


def _test_one_or_all_providers(options: Options, provider: str, as_json: bool) -> int:
    """Test one provider, or all that have a key or a server."""
    from interlock.engine.client.credentials import list_credentials, test_credentials_by_listing_models

    names = (
        [provider] if provider else [one.provider for one in list_credentials(options) if one.key or one.url]
    )
    if not names:
        raise UserError("No key and no server is set. Set one: interlock auth set PROVIDER")
    results: list[dict[str, object]] = []
    for name in names:
        try:
            results.append(
                {"provider": name, "works": True, "models": test_credentials_by_listing_models(options, name)}
            )
        except UserError as error:
            if provider:
                raise
            results.append({"provider": name, "works": False, "problem": str(error)})
    if as_json:
        print_json(results)
    else:
        result_paint().print_lines(_test_result_line(one) for one in results)
    return int(not all(one["works"] for one in results))


def _test_result_line(result: dict[str, object]) -> str:
    found = result.get("models")
    if not isinstance(found, list):
        return f"✗ {result['provider']}: {result['problem']}"
    return f"✓ {result['provider']} works: {_summarize_model_names([str(name) for name in found])}"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _summarize_model_names(model_names: list[str]) -> str:
    return (
        f"{format_count(len(model_names), 'model')} ({join_up_to([*map(make_visible, model_names)], _NAMED)})"
        if model_names
        else "0 models"
    )


def _ask_test_and_store_credentials(options: Options, provider: str, url: str) -> None:
    from interlock.engine.client.credentials import (
        can_test_provider,
        missing_package_message,
        overriding_environment_variable,
        require_known_provider,
        store_credentials_after_listing_models,
    )

    is_tried = can_test_provider(require_known_provider(provider))
    hint = "; leave empty if none is needed" if url else ""
    key = _ask_for_key_or_read_stdin(f"Key for {provider} (hidden{hint}): ") if is_tried else ""
    found = store_credentials_after_listing_models(options, provider, key, url)
    what = (
        f"{provider} works: {_summarize_model_names(found)}"
        if is_tried
        else f"{provider} is asked at {url}; not tested"
    )
    result_paint().print_line(f"{what}. Stored in ~/.gemini/.env, readable only by you.")
    if name := overriding_environment_variable(options, provider):
        remark_paint().print_line(f"warning: {name} in the environment overrides it. Unset it.")
    if missing := missing_package_message(provider):
        remark_paint().print_line(f"warning: {missing}")


def _ask_for_key_or_read_stdin(question: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    with enter_mode_in_foreground(nullcontext()):
        return getpass(question).strip()


def _remove_credentials(options: Options, provider: str) -> None:
    from interlock.engine.client.credentials import remove_credentials_and_find_remaining_source

    still = remove_credentials_and_find_remaining_source(options, provider)
    result_paint().print_line(
        f"Removed {provider} from ~/.gemini/.env." + (f" Still set: {still}." if still else "")
    )
