"""prompts: a prompt's content blocks as the text, files and notes that a run is given."""

import base64
import binascii
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from interlock.cli.acp.wire import PARAMS, RpcError

Block = Mapping[str, Any]
_LONGEST_FILE = 256_000
"""Bytes of a linked file from outside the workspace that the run is given."""


@dataclass
class Given:
    """What a prompt brings."""

    text: str = ""
    files: list[Path] = field(default_factory=list[Path])
    """Pictures and PDFs, to be attached."""
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Texts with their names."""
    outside: list[Path] = field(default_factory=list[Path])
    """Linked files beyond the workspace: the person is asked."""


def given(blocks: Sequence[Block], workspace: Path, roots: Sequence[Path], spool: Path) -> Given:
    """Raises `RpcError` naming a block that can't be used. `spool`: where pictures are put."""
    found, words = Given(), list[str]()
    for number, block in enumerate(blocks):
        try:
            words += _taken(block, found, workspace, roots, spool / str(number))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise RpcError(
                PARAMS, f"prompt[{number}] ({block.get('type')!r}) is malformed: {error}."
            ) from None
    found.text = "".join(words).strip()
    return found


def _taken(block: Block, found: Given, workspace: Path, roots: Sequence[Path], spool: Path) -> Iterator[str]:
    match block["type"]:
        case "text":
            yield _text(block["text"])
        case "image":
            found.files.append(_kept(block["data"], block["mimeType"], spool))
        case "resource_link":
            yield from _linked(str(block["uri"]), found, workspace, roots)
        case "resource":
            resource: Block = block["resource"]
            if "text" in resource:
                found.notes.append((_shown(str(resource["uri"]), workspace), _text(resource["text"])))
            else:
                kind = resource.get("mimeType") or mimetypes.guess_type(str(resource["uri"]))[0] or ""
                found.files.append(_kept(resource["blob"], kind, spool))
        case kind:
            raise ValueError(f"{kind!r} isn't supported; expected text, image, resource_link or resource")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("'text' isn't a text")
    return value


def _kept(data: object, kind: str, spool: Path) -> Path:
    if not isinstance(data, str):
        raise TypeError("its data isn't a text in base 64")
    file = spool.with_suffix(mimetypes.guess_extension(kind) or ".bin")
    file.write_bytes(base64.b64decode(data, validate=True))
    return file


def _linked(uri: str, found: Given, workspace: Path, roots: Sequence[Path]) -> Iterator[str]:
    """A file of the workspace as a reference, which the run resolves under its rules; any other address as text."""
    path = file_of(uri)
    if path is None:
        yield f" {uri} "
        return
    real = path.resolve()
    if any(real.is_relative_to(root) for root in roots):
        named = str(real.relative_to(workspace) if real.is_relative_to(workspace) else real)
        yield f' @"{named}" ' if '"' not in named and "\n" not in named else f" {uri} "
    else:
        found.outside.append(real)
        yield f" {path} "


def take_file(path: Path, found: Given) -> None:
    """Give the run a file that the person agreed to: a picture or PDF as it is, another as its text."""
    from interlock.services.files.filesystem import UnreadableError, read_text

    kind = mimetypes.guess_type(path)[0] or ""
    if kind.startswith("image/") or kind == "application/pdf":
        found.files.append(path)
        return
    try:
        found.notes.append((str(path), read_text(path, _LONGEST_FILE, path.parent)))
    except UnreadableError as error:
        found.notes.append((str(path), f"The file can't be read: {error}."))


def file_of(uri: str) -> Path | None:
    """The file that an address names; None: it names none. Raises `ValueError`."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return None
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ValueError(f"{uri!r} names no file of this machine")
    return Path(path)


def _shown(uri: str, workspace: Path) -> str:
    path = file_of(uri)
    return str(path.relative_to(workspace)) if path and path.is_relative_to(workspace) else uri
