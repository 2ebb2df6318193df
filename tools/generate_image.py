"""generate_image: have a model draw a picture from words and optionally another picture; saved in the workspace."""

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from pathlib import PurePath

from pydantic import Field, field_validator

from interlock.state.calls import FileState, Preview, ToolError
from interlock.state.file_names import format_file_name, quote_name
from interlock.state.messages import DataPart, Message, TextPart
from interlock.state.tooling import Args, FileChange, Tool, ToolContext
from interlock.tools.file_content import to_media_part_or_notice
from interlock.tools.workspace_files import prepare_write_target, read_file_bytes

_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}


class GenerateImageArgs(Args):
    prompt: str = Field(min_length=1, description="What the picture shows, in what style; or what to change.")
    path: str = Field(
        min_length=1,
        description="File to write it to, relative to the workspace or absolute inside it; ends in .png, as models make"
        " PNG. An existing file is replaced.",
    )
    image: str | None = Field(
        default=None, min_length=1, description="Path of a picture in the workspace to start from."
    )

    @field_validator("path")
    @classmethod
    def _require_picture_suffix(cls, value: str) -> str:
        if PurePath(value).suffix.lower() not in _TYPES:
            raise ValueError(f"expected a name that ends in {', '.join(_TYPES)}")
        return value


async def generate_and_plan_image(
    args: GenerateImageArgs, context: ToolContext, earlier_contents: Mapping[str, bytes]
) -> FileChange:
    """Ask a model for the picture and return the change that writes it. Raise `ToolError` if it made none."""
    target = await asyncio.to_thread(prepare_write_target, args.path, context, earlier_contents, text=False)
    target.refuse_unseen_overwrite(b"")
    if context.ask is None:
        raise TypeError("A picture is planned only when its call runs.")
    message = await context.ask(
        "image", [await asyncio.to_thread(_build_image_request, args, context)], "picture"
    )
    parts = () if isinstance(message.content, str) else message.content
    pictures = [part for part in parts if isinstance(part, DataPart) and part.type == "image"]
    if not pictures:
        raise ToolError(
            "no_picture", f"The model made no picture. It said: {message.text.strip() or '(nothing)'}"
        )
    made, wanted = pictures[0].mime_type, _TYPES[PurePath(args.path).suffix.lower()]
    if made != wanted:
        raise ToolError("no_picture", f"The model made {made}, not {wanted}; name the file accordingly.")
    data = base64.b64decode(pictures[0].data or "")
    return target.to_file_change(
        data, f"Made the picture {quote_name(target.display_path)} ({made}, {len(data)} bytes)."
    )


def _build_image_request(args: GenerateImageArgs, context: ToolContext) -> Message:
    if args.image is None:
        return Message(role="user", content=args.prompt)
    path = context.workspace.resolve_readable(args.image)
    part = to_media_part_or_notice(args.image, read_file_bytes(context.workspace, path))
    if not isinstance(part, DataPart) or part.type != "image":
        raise ToolError(
            "not_a_picture",
            f"{quote_name(args.image)} isn't a picture that models accept (PNG, JPEG, GIF, WebP).",
        )
    return Message(role="user", content=(TextPart(text=args.prompt), part))


async def preview_image_generation(args: GenerateImageArgs, context: ToolContext) -> Preview:
    """Return what will be written: the picture itself isn't known yet."""
    target = await asyncio.to_thread(prepare_write_target, args.path, context, {}, text=False)
    target.refuse_unseen_overwrite(b"")
    await asyncio.to_thread(_build_image_request, args, context)
    before = None if target.before is None else hashlib.sha256(target.before).hexdigest()
    begin = f", from {quote_name(args.image)}" if args.image else ""
    what = (
        f"{'replace' if before else 'create'} {quote_name(target.display_path)} with a picture made by a "
        f"model{begin}:"
    )
    state = FileState(path=format_file_name(str(target.path)), sha256=before, on_disk=before)
    return Preview(text=f"{what}\n{args.prompt}", files=(state,))


TOOL = Tool(
    name="generate_image",
    description="Makes a picture from a description, or changes a picture of the workspace, with a model, and writes it"
    " to a file. Say what it shows, where, in what style, colours and light.",
    args=GenerateImageArgs,
    risk="write",
    summary=lambda args: f"Make the picture {args.path}",
    plan=generate_and_plan_image,
    preview=preview_image_generation,
    paths=lambda args: [(args.path, "write"), *([(args.image, "read")] if args.image else [])],
)
