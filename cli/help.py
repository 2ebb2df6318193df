"""help: `interlock --help`: what it is, how to start, every command in its group."""

from interlock.cli.catalog import COMMANDS

_INTRO = """\
Interlock: a coding agent for the terminal. Each run can be stopped at any moment, looked
into, decided on by somebody else tomorrow, and resumed; nothing it did is lost or done twice.

usage: interlock -p 'what to do'          work in this folder, answer, end
       … | interlock -p 'what to do'      piped text is put before the prompt
       interlock COMMAND …

start here:
  interlock -p 'fix the failing test'     asks before it changes anything; without a terminal: exit 75
  interlock approvals                     what waits for you, and the commands that decide it
  interlock resume latest --approve all   decide, and go on
  interlock show latest                   what happened
"""
_OUTRO = """\
RUN is an id, the beginning of one, or `latest`: the newest of this folder. Lists take --json. Flags for
running (model, approval mode, output format, limits): interlock run --help. A command's own help:
interlock COMMAND --help.

exit codes: 0 done, 1 error, 2 usage, 41 no key, 42 bad input, 44 no sandbox, 52 bad settings,
  53 turn limit, 54 tool failure, 55 folder not trusted, 56 refused, 57 budget, 58 loop,
  75 waits for a person, 124 time-out, 130 cancelled.
environment: GEMINI_API_KEY, GEMINI_MODEL, OPENAI_API_KEY, INTERLOCK_HOME, NO_COLOR.
"""


def root_help() -> str:
    """The text of `interlock --help`; README shows the same."""
    lines: list[str] = []
    group = ""
    for command in COMMANDS.values():
        if command.group != group:
            group = command.group
            lines.append(f"\n{group.lower()}:")
        lines.append(f"  {command.usage:<26}{command.summary}")
    return _INTRO + "\n".join(lines) + "\n\n" + _OUTRO
