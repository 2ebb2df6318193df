"""content: what a server answers, as text; images and other bytes apart, to be kept in files."""

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Literal

from interlock.state.text import clean


@dataclass(frozen=True)
class Data:
    """Bytes among an answer; `place` is the mark that stands for them in its text."""

    place: str
    kind: Literal["image", "audio", "file"]
    mime_type: str
    data: bytes


@dataclass(frozen=True)
class Content:
    """An answer: its texts in order, with a mark where bytes were."""

    text: str
    data: tuple[Data, ...] = ()
    is_error: bool = False


def content_of(result: Any) -> Content:
    """Of a tool's result. What is only structured is given as JSON."""
    made = _joined(result.content, is_error=bool(result.is_error))
    if made.text or result.structured_content is None:
        return made
    text = json.dumps(result.structured_content, ensure_ascii=False, indent=2)
    return Content(clean(text), made.data, made.is_error)


def resource_of(result: Any) -> Content:
    return _parts([_resource(c, i) for i, c in enumerate(result.contents)])


def prompt_of(result: Any) -> Content:
    """Its messages; who says each stands before it, where not all are the user's."""
    parts: list[str | Data] = []
    several = len({m.role for m in result.messages}) > 1
    for place, message in enumerate(result.messages):
        parts += [f"[{message.role}]"] if several else []
        parts.append(_block(message.content, place))
    return _parts(parts)


def _joined(blocks: Any, is_error: bool = False) -> Content:
    return _parts([_block(block, place) for place, block in enumerate(blocks)], is_error)


def _parts(parts: list[str | Data], is_error: bool = False) -> Content:
    texts = [part if isinstance(part, str) else part.place for part in parts]
    data = tuple(part for part in parts if isinstance(part, Data))
    return Content(clean("\n\n".join(text for text in texts if text)), data, is_error)


def _block(block: Any, place: int) -> str | Data:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _data(block.data, block.type, block.mime_type, place)
        case "resource":
            found = _resource(block.resource, place)
            return f"[resource {block.resource.uri}]\n{found}" if isinstance(found, str) else found
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return f"[resource {block.uri} ({block.mime_type or 'unknown type'}){about}]"
        case other:
            return f"[{other}: of a kind that can't be shown]"


def _resource(contents: Any, place: int) -> str | Data:
    if hasattr(contents, "text"):
        return contents.text
    mime = contents.mime_type or "application/octet-stream"
    return _data(contents.blob, "image" if mime.startswith("image/") else "file", mime, place)


def _data(text: str, kind: Literal["image", "audio", "file"], mime: str, place: int) -> str | Data:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return f"[{kind} ({mime}): its data can't be read]"
    return Data(f"[[{kind} {place}]]", kind, mime, data)
