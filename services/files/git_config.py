"""git_config: which configurations of a repository name no command, path or other configuration."""

import re

_SAFE_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|quotepath|longpaths)"
    r"|(remote|branch)\.(url|pushurl|fetch|remote|merge|rebase|tagopt|prune|description|vscode-merge-base)"
    r"|user\.(name|email)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|autosetupremote)|color\.\w+"
    r"|commit\.gpgsign|tag\.gpgsign|merge\.(ff|conflictstyle)|rerere\.\w+|advice\.\w+"
)
"""Keys that contain no command, path or other configuration file. All others may."""
_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)(?:\s+\"(?:[^\"\\\n]|\\.)*\")?\s*\]")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=[^\\]*)?")


def is_plain_config(text: str) -> bool:
    """Whether nothing in a repository's configuration makes git run a program or look elsewhere."""
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
            line = line[header.end() :].strip()
            if not line:
                continue
        key = _KEY.fullmatch(line)
        if key is None or not _SAFE_KEYS.fullmatch(f"{section}.{key[1].lower()}"):
            return False
    return True
