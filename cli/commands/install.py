"""install: adds optional parts and providers' packages to this installation of Interlock."""

from interlock.cli.inputs import ask_to_confirm
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.output import print_json, print_table, remark_paint
from interlock.engine.client.installation import (
    install_command,
    install_packages,
    list_parts,
    missing_packages_of_parts,
)
from interlock.state.errors import InterlockError


@declare_arguments(
    argparse_argument("parts", nargs="*", metavar="PART", help="an extra, or a provider of models"),
    flag_argument("--yes", "install without asking; required without a terminal"),
    Parser.add_json_flag,
)
def install(args: Args) -> int | None:
    if not args.parts:
        return _print_parts(args.json)
    named, paint = " ".join(args.parts), remark_paint()
    missing = missing_packages_of_parts(args.parts)
    if not missing:
        paint.print_line(f"Already installed: {named}.")
        return 0
    paint.print_line(install_command(*missing))
    nobody = f"Installing needs a person, and there is no terminal. Use: interlock install {named} --yes"
    if not args.yes and not ask_to_confirm("Run this command?", nobody):
        paint.print_line("Nothing was installed.")
        return 1
    if problem := install_packages(missing):
        raise InterlockError(problem)
    paint.print_line(f"Installed: {named}.")
    return 0


def _print_parts(as_json: bool) -> None:
    parts = list_parts()
    if as_json:
        return print_json([one._asdict() for one in parts])
    print_table(
        [(one.part, "yes" if one.installed else "no", one.adds) for one in parts],
        ("part", "installed", "adds"),
        flexible=(2,),
    )
    remark_paint().print_line("Add one with: interlock install PART. Providers are parts, too, such as groq.")
