"""install: adds optional parts and providers' packages to this installation of Interlock."""

from interlock.cli.inputs import ask_to_confirm
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.output import print_json, print_table, remark_paint
from interlock.services.packages import (
    EXTRAS,
    extra_packages,
    install_command,
    install_packages,
    missing_packages,
)
from interlock.state.errors import InterlockError, UserError
from interlock.state.text import did_you_mean


@declare_arguments(
    argparse_argument("parts", nargs="*", metavar="PART", help="an extra, or a provider of models"),
    flag_argument("--yes", "install without asking; required without a terminal"),
    Parser.add_json_flag,
)
def install(args: Args) -> int | None:
    if not args.parts:
        return _print_parts(args.json)
    needed = list(dict.fromkeys(name for part in args.parts for name in _packages_of_part(part)))
    missing, paint = missing_packages(needed), remark_paint()
    if not missing:
        paint.print_line(f"Already installed: {', '.join(args.parts)}.")
        return 0
    paint.print_line(install_command(*missing))
    nobody = (
        f"Installing needs a person, and there is no terminal. Use: interlock install {args.parts[0]} --yes"
    )
    if not args.yes and not ask_to_confirm("Run this command?", nobody):
        paint.print_line("Nothing was installed.")
        return 1
    if problem := install_packages(missing):
        raise InterlockError(problem)
    paint.print_line(f"Installed: {', '.join(args.parts)}.")
    return 0


def _packages_of_part(part: str) -> list[str]:
    """Return the packages of an extra or a provider. Raise `UserError` with the nearest name for another."""
    from interlock.services.models.names import PROVIDERS

    if part in EXTRAS:
        return extra_packages(part)
    if part in PROVIDERS:
        return [PROVIDERS[part].package]
    known = [*EXTRAS, *PROVIDERS]
    raise UserError(f"No part {part!r}.{did_you_mean(part, known)} List them: interlock install")


def _print_parts(as_json: bool) -> None:
    rows = [(name, not missing_packages(extra_packages(name)), adds) for name, adds in EXTRAS.items()]
    if as_json:
        return print_json([dict(zip(("part", "installed", "adds"), row, strict=True)) for row in rows])
    print_table(
        [(name, "yes" if is_installed else "no", adds) for name, is_installed, adds in rows],
        ("part", "installed", "adds"),
        flexible=(2,),
    )
    remark_paint().print_line("Add one with: interlock install PART. Providers are parts, too, such as groq.")
