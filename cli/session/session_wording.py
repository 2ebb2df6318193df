"""session_wording: what an error names for the command line, said as one types it in a session."""

import re
from collections.abc import Callable

_SLASH = "agents|approvals|auth|diff|doctor|export|fork|history|hooks|mcp|memory|policy|rewind|runs|show|tools|undo"
"""Commands with the same name in a session."""
_RUN = r"(?:RUN|latest|[0-9a-hjkmnp-tv-z]{8})"
_WORDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (rf"[Tt]ry again (?:later )?with: interlock resume {_RUN}", "Send a prompt to try again"),
    (rf"then: interlock resume {_RUN}", "then send a prompt"),
    (rf"what to do instead: interlock resume {_RUN} -p '[^']*'", "what to do instead"),
    (rf"interlock resume {_RUN} -p '[^']*'", "a prompt"),
    (rf"interlock resume {_RUN} --approve \S+", "/approvals"),
    (rf"interlock undo {_RUN} --call (\S+)", r"/undo \1"),
    (rf"interlock (?:fork|rewind) {_RUN} --at (\S+)", lambda m: f"/{m[0].split()[1]} {m[1]}"),
    (rf"interlock diff {_RUN} --files", "/diff"),
    (rf"interlock (?:-r|resume) ({_RUN})(?![\w-])(?! --)", r"/resume \1"),
    (rf"interlock ({_SLASH})(?: {_RUN})?(?![\w-])", r"/\1"),
    (r"-m/--model\b|--model\b", "/model"),
    (r"(?<![\w-])-m (?=\w+:)", "/model "),
    (r"another -m\b", "another /model"),
    (r"\(-m\)", "(/model)"),
    (r"with -m\b", "with /model"),
    (rf"(?:interlock (?:resume {_RUN}|run \S+ …) )?--no-loop-check\b", "/loops off"),
    (r"--approval-mode\b", "/approval-mode"),
)


def reword_for_session(text: str) -> str:
    """The text with flags and commands that work outside a session replaced by what works inside."""
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return text
