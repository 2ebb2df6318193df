"""clipboard: the image in the clipboard, read with the program that the desktop has for it."""

import shutil
import subprocess
import sys
from pathlib import Path

from interlock.services.files.filesystem import replace_file, sha256
from interlock.services.files.folders import private_directory
from interlock.state.errors import UserError

_READERS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_APPLE = (
    "write (the clipboard as «class PNGf») to (open for access POSIX file {file!r} with write permission)"
)
_WINDOWS = (
    "Add-Type -AssemblyName System.Windows.Forms; $i = [Windows.Forms.Clipboard]::GetImage(); if ($i) { "
    "$m = New-Object IO.MemoryStream; $i.Save($m, [Drawing.Imaging.ImageFormat]::Png); "
    "$o = [Console]::OpenStandardOutput(); $o.Write($m.ToArray(), 0, $m.Length) }"
)
_PNG = b"\x89PNG"
_WAIT_S = 5.0
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def image_from_clipboard(folder: Path) -> Path:
    """Save the clipboard's image in `folder`, under a name made of its content. Raises `UserError`."""
    data, names = b"", [reader[0] for reader in _READERS]
    for command in [*_READERS, ("powershell.exe", "-NoProfile", "-Command", _WINDOWS)]:
        if shutil.which(command[0]) and (data := _output(command)).startswith(_PNG):
            return _saved(data, folder)
    if sys.platform == "darwin" and (data := _from_apple(folder)):
        return _saved(data, folder)
    if not any(map(shutil.which, [*names, "powershell.exe"])) and sys.platform != "darwin":
        raise UserError(
            f"No program reads the clipboard here. Install one of {', '.join(names)}; or name a file: @PATH"
        )
    raise UserError("The clipboard holds no image. Copy one, or name a file: @PATH")


def image_named(text: str) -> Path | None:
    """The image file that a pasted text names, as terminals paste a file dropped on them."""
    name = text.strip().strip("'\"").replace("\\ ", " ").removeprefix("file://")
    if "\n" in name or not name.startswith("/") or not name.lower().endswith(IMAGES):
        return None
    return file if (file := Path(name)).is_file() else None


def _output(command: tuple[str, ...]) -> bytes:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_WAIT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""


def _from_apple(folder: Path) -> bytes:
    private_directory(folder)
    file = folder / "clipboard.png"
    _output(("osascript", "-e", _APPLE.format(file=str(file))))
    data = file.read_bytes() if file.exists() else b""
    file.unlink(missing_ok=True)
    return data


def _saved(data: bytes, folder: Path) -> Path:
    private_directory(folder)
    replace_file(file := folder / f"{sha256(data)[:16]}.png", data)
    return file
