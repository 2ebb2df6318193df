"""folders: writes files with the folders that they lie in; reads tables of test cases."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def put(file: Path, content: object = "") -> Path:
    """A text or bytes as they are, anything else as JSON; a script can be run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
        return file
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(text, encoding="utf-8")
    if text.startswith("#!"):
        file.chmod(0o755)
    return file


def tree(root: Path, files: Mapping[str, object]) -> Path:
    """A file for each name below `root`; a name that ends with a slash is an empty folder."""
    for name, content in files.items():
        if name.endswith("/"):
            (root / name).mkdir(parents=True, exist_ok=True)
        else:
            put(root / name, content)
    return root


def table(test: str, name: str) -> Any:
    """The YAML file of this name beside a test file."""
    return yaml.load(Path(test).with_name(name).read_text(encoding="utf-8"), yaml.CSafeLoader)
