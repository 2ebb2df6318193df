"""secret: what the command line shows by itself, without what the environment holds secret."""

import os


def redacted(text: str) -> str:
    """Errors quote what they met: settings, URLs, answers of servers; headlines quote the prompt."""
    from interlock.services.redaction import Redactor
    from interlock.services.tool_environment import secret_variables

    return Redactor(secret_variables(os.environ))(text)
