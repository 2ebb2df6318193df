"""guessed_encodings: have a person confirm a guessed encoding before the first edit that writes new text in it."""

from collections.abc import Sequence

from interlock.state.calls import CallView, Preview, Verdict
from interlock.state.deps import Deps
from interlock.state.seen import SeenFiles


async def ask_about_guessed_encoding(
    deps: Deps,
    call: CallView,
    verdict: Verdict,
    mode: str,
    earlier: Sequence[CallView],
    seen: SeenFiles | None,
) -> Verdict:
    """Return the verdict on a call that writes a file, or one that asks where it would write new text in a guessed
    encoding. In yolo mode nobody is asked: there the write is refused."""
    if verdict.decision != "allow" or mode == "yolo":
        return verdict
    if await deps.toolset.find_encoding_to_confirm(call, earlier, seen) is None:
        return verdict
    reason = "New text beyond ASCII needs an encoding that a person confirmed."
    return Verdict(decision="ask", rule="guessed encoding", reason=reason, by_checker=True)


def encoding_note(preview: Preview) -> str:
    """Return what a person confirms with the approval of a call; empty: only the call."""
    if preview.confirms is None:
        return ""
    pattern, encoding = preview.confirms.pattern, preview.confirms.encoding
    return (
        f"The file's encoding is guessed: {encoding}. If you approve, text in files like {pattern} is written in it for"
        " the rest of this run. If it is another one, reject, and set files.encodings."
    )
