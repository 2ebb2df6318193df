"""new_files: encode the text of a new file as its project's `.editorconfig` and `.gitattributes` say."""

import codecs
from dataclasses import dataclass

from interlock.state.workspace import FileConventions
from interlock.tools.encodings import find_declared_encoding, find_text_codec

_MARKED = {
    "utf-8-bom": codecs.BOM_UTF8,
    "utf-16": codecs.BOM_UTF16_LE,
    "utf-16le-bom": codecs.BOM_UTF16_LE,
    "utf-16be-bom": codecs.BOM_UTF16_BE,
    "utf-32": codecs.BOM_UTF32_LE,
}
"""Names of encodings that ask for a byte order mark."""
_EDITORCONFIG_MARKED = {"utf-16le": codecs.BOM_UTF16_LE, "utf-16be": codecs.BOM_UTF16_BE}
"""Editors write one there, as without it few programs read the file."""
_ENDS = {"\n": "LF", "\r\n": "CRLF", "\r": "CR"}


@dataclass(frozen=True)
class NewFile:
    data: bytes
    note: str
    """What the conventions made of it, to follow its number of lines; empty: nothing special."""


def encode_new_file(text: str, conventions: FileConventions, name: str) -> NewFile | str:
    """Return a new file's bytes; or why its text can't be written, as a sentence that begins with the file."""
    notes: list[str] = []
    plain = text.removeprefix("\ufeff")
    if conventions.final_newline and plain and not plain.endswith("\n"):
        plain += "\n"
    if conventions.line_end:
        plain = plain.replace("\r\n", "\n").replace("\n", conventions.line_end)
        if conventions.line_end != "\n":
            notes.append(f"{_ENDS[conventions.line_end]} line ends ({conventions.line_end_source})")
    codec, mark, source = _choose_encoding(text, conventions, name)
    if codec != "utf-8" or mark:
        notes.append(f"{codec}{' with a byte order mark' if mark else ''} ({source})")
    if text.startswith("\ufeff") and not mark and codec == "utf-8":
        mark = codecs.BOM_UTF8
    try:
        data = mark + plain.encode(codec)
    except UnicodeEncodeError as error:
        sign = plain[error.start]
        return f"is {codec} ({source}), which can't hold {sign!r}; write it with characters that it can."
    if mismatch := _indentation_mismatch(text, conventions.indent):
        notes.append(mismatch)
    return NewFile(data, f", {', '.join(notes)}" if notes else "")


def _choose_encoding(text: str, conventions: FileConventions, name: str) -> tuple[str, bytes, str]:
    """Return the codec, the byte order mark and who says so."""
    declared = find_declared_encoding(text[:8192].encode(errors="replace"), name)
    said = [
        declared or ("", ""),
        (conventions.working_tree_encoding, ".gitattributes"),
        (conventions.confirmed_encoding, "files.encodings"),
        (conventions.charset, ".editorconfig"),
    ]
    for name, source in said:
        if name and (codec := find_text_codec(name)):
            mark = _MARKED.get(name.lower(), b"")
            if source == ".editorconfig":
                mark = mark or _EDITORCONFIG_MARKED.get(name.lower(), b"")
            return codec, mark, source
    return "utf-8", b"", "the default"


def _indentation_mismatch(text: str, indent: str) -> str:
    """Return what the model should know if the text is indented in another way than `.editorconfig` says."""
    if not indent:
        return ""
    starts = {line[0] for line in text.split("\n") if line[:1] in (" ", "\t") and line.strip()}
    asked, other = ("tabs", " ") if indent == "\t" else ("spaces", "\t")
    return f"though .editorconfig asks for {asked} as indentation" if starts == {other} else ""
