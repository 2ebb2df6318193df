"""media: pictures and PDFs by their bytes, as parts that models see."""

import base64
import mimetypes

from interlock.state.messages import DataPart

LARGEST_MEDIA = 10 * 1024 * 1024
"""Bytes of a picture or PDF that is sent: in base64 it must fit into a request of 20 MB (Gemini's limit)."""
_MARKS = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftypheif", 4, "image/heif"),
    (b"ftypmif1", 4, "image/heif"),
    (b"%PDF-", 0, "application/pdf"),
)


def mime_of(data: bytes) -> str:
    """Of a picture or PDF that models take, by its first bytes; empty: it is none."""
    return next((mime for mark, at, mime in _MARKS if data[at : at + len(mark)] == mark), "")


def is_named_media(name: str) -> bool:
    """Its name says that it is a picture or PDF."""
    mime = mimetypes.guess_type(name)[0] or ""
    return (mime.startswith("image/") and mime != "image/svg+xml") or mime == "application/pdf"


def media_part(shown: str, data: bytes) -> DataPart | str | None:
    """The part, or a line that says why there is none; None: it doesn't claim to be a picture or PDF."""
    mime = mime_of(data)
    if not mime:
        if not is_named_media(shown):
            return None
        return (
            f"[{shown!r} is named like a picture or PDF, but its bytes are none that models take "
            "(PNG, JPEG, GIF, WebP, HEIC, PDF); it isn't shown.]"
        )
    if len(data) > LARGEST_MEDIA:
        return f"[{shown!r} has {len(data)} bytes, more than the {LARGEST_MEDIA} that can be shown; make it smaller.]"
    kind = "image" if mime.startswith("image/") else "file"
    return DataPart(type=kind, mime_type=mime, data=base64.b64encode(data).decode())


def media_line(shown: str, part: DataPart, size: int) -> str:
    """What stands in the text where the part is, for models that don't see and for people."""
    kind = "picture" if part.type == "image" else "PDF"
    return f"[{shown!r}: {kind} ({part.mime_type}, {size} bytes), shown beside this text.]"
