"""guessed_encodings: what people are told when an approval confirms a file's encoding, too."""

from interlock.state.calls import Preview


def encoding_note(preview: Preview) -> str:
    """Return what a person confirms with the approval of a call; empty: only the call."""
    if preview.confirms is None:
        return ""
    pattern, encoding = preview.confirms.pattern, preview.confirms.encoding
    return (
        f"The file's encoding is guessed: {encoding}. If you approve, text in files like {pattern} is written in it for"
        " the rest of this run. If it is another one, reject, and set files.encodings."
    )
